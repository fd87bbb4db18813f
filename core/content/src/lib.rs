//! Content stores: traits, the local store on disk, copy helpers, conformance suite.
//!
//! A store holds blobs by digest and *ingests*, which are blobs being written, by a name of the writer's
//! choice. A handle is already scoped: the store that a client sees is bound to its namespace and lease by
//! `core-metadata`, over the one local store that has neither.

#![forbid(unsafe_code)]

/// What filters can ask about blobs and ingests.
mod fields;
/// Whole blobs in and out, and streams into writers.
mod helpers;
/// The store in a directory, in containerd's layout.
mod local;
/// The traits.
mod store;
/// What every store must do, as tests that any store can run.
#[cfg(any(test, feature = "testsuite"))]
pub mod testsuite;

pub use helpers::{BlobReader, copy, read_blob, write_blob};
pub use local::LocalStore;
pub use store::{Info, IngestStatus, Reader, Store, Writer, WriterOptions};
