//! The Snapshotter trait and the suite every snapshotter runs.
//!
//! A snapshot is *active* (writable, by key) until it is committed under a name; committed snapshots are
//! parents of others; a *view* is an active snapshot that is not written. A handle is already scoped: see
//! `core-metadata`, which keeps the keys of namespaces apart.

mod snapshotter;

pub use snapshotter::{Info, Kind, Snapshotter, Usage};
