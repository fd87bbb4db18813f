//! Transfers between registry, image store and archive.
//!
//! One kind of request, [`Transferer::transfer`], with a source and a destination: registry to store is a pull, store
//! to registry a push, archive to store an import, store to archive an export, store to store a tag.

#![forbid(unsafe_code)]

/// Archives of images: `docker save` and OCI layouts in a tar.
mod archive;
/// What transfers need of the daemon.
mod backend;
/// The transferer of the daemon.
mod local;
/// Progress as containerd's clients know it.
mod progress;
/// Registry to store.
mod pull;
/// Store to registry.
mod push;
/// Names for what was transferred.
mod save;
/// Unpacking what is in the store.
mod stored;
/// Sources, destinations, progress and the trait of who transfers.
mod types;

pub use backend::{Backend, Verifier};
pub use local::{LocalTransferer, Settings};
pub use types::{
    Destination, Export, ImageReference, ImageStore, Import, Progress, ProgressSink, PullOptions, Registry, Source,
    Transferer, UnpackConfiguration,
};
