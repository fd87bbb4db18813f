//! Transfers between registry, image store and archive.

#![forbid(unsafe_code)]

/// Sources, destinations, progress and the trait of who transfers.
mod types;

pub use types::{
    Destination, Export, ImageReference, ImageStore, Import, Progress, ProgressSink, Registry, Source, Transferer,
    UnpackConfiguration,
};
