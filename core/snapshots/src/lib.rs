//! The Snapshotter trait and the suite every snapshotter runs.
//!
//! A snapshot is *active* (writable, by key) until it is committed under a name; committed snapshots are
//! parents of others; a *view* is an active snapshot that is not written. A handle is already scoped: see
//! `core-metadata`, which keeps the keys of namespaces apart.

#![forbid(unsafe_code)]

/// What filters can ask about snapshots.
mod fields;
/// The trait and what it speaks of.
mod snapshotter;
/// What every snapshotter must do, as tests with real mounts.
#[cfg(feature = "testsuite")]
pub mod testsuite;

pub use snapshotter::{Info, Kind, Snapshotter, Usage};

/// Label with the user ids of a snapshot's user namespace, `container:host:length`.
pub const LABEL_UID_MAPPING: &str = "containerd.io/snapshot/uidmapping";
/// Label with the group ids of a snapshot's user namespace, `container:host:length`.
pub const LABEL_GID_MAPPING: &str = "containerd.io/snapshot/gidmapping";
