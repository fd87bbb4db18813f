//! The pull engine: fetches an image's tree into the content store and unpacks its layers while they arrive.
//!
//! Bytes go from the [`Fetcher`] to the content writer (and so the hash) and, over a bounded channel, to the
//! applier at once. Layers are unpacked in parallel into snapshots of their own and committed in order, where the
//! snapshotter can set a parent at commit; in order otherwise. Nothing is believed before it is verified: a layer is
//! committed after its blob's digest and its diff id are right. Whatever ends a pull early removes what was half
//! unpacked and leaves what was half downloaded to be resumed.
//!
//! A record of a layer is on disk as soon as it is committed, its files are when the kernel comes to it: a power cut in
//! between leaves a layer with empty files. With [`UnpackTarget::sync`] the file system is flushed before, once for
//! all layers of an image that are extracted side by side, and for each layer where they stand on each other.

#![forbid(unsafe_code)]

/// From a fetcher to the content store, and to the applier on the way.
mod blob;
/// The engine and its limits.
mod engine;
/// Layers on disk before their records.
mod flush;
/// One job at a time for each name.
mod key_locks;
/// Extraction of one layer.
mod layer;
/// What to pull, and what is told about it.
mod request;
/// Where content comes from.
mod source;
/// A byte stream from async to blocking code.
mod tee;
/// Manifests and indexes.
mod tree;
/// All layers of one manifest.
mod unpack;

pub use engine::{Engine, Limits};
pub use request::{Event, Observer, Request, UnpackTarget, ingest_reference};
pub use source::{Download, Fetcher};
