//! Content stores: traits, the local store on disk, copy helpers, conformance suite.
//!
//! A store holds blobs by digest and *ingests*, which are blobs being written, by a name of the writer's
//! choice. A handle is already scoped: the store that a client sees is bound to its namespace and lease by
//! `core-metadata`, over the one local store that has neither.

mod store;

pub use store::{Info, IngestStatus, Reader, Store, Writer, WriterOptions};
