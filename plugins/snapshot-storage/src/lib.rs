//! Parent chains and ids of snapshots, shared by the snapshotters.
//!
//! # What is kept where, and how durable it is
//!
//! All records are in memory, so reading never touches the disk. On disk there are two places:
//!
//! - *Committed* snapshots are in LMDB (`<root>/metadata.lmdb`). Each change of them is one durable transaction:
//!   once `commit` returns, a power cut does not undo it, so a reference to it from elsewhere never dangles.
//! - *Active* snapshots and views are one small file each (`<root>/active/<id>`), renamed into place but not
//!   synced in the request: the file survives any end of the daemon, and is synced within about a second for
//!   the case that the power goes. The writable directory of such a snapshot is no more durable than that (the
//!   kernel writes it back when it likes), so a sync in `prepare` would buy nothing, and starting a container
//!   would pay for it. A snapshot that is removed before its sync costs no sync at all.
//!
//! Ids are never used for two directories: the next one is above every record and every directory that exists.

/// Records of active snapshots: a file each.
mod active;
/// Records of committed snapshots: LMDB.
mod committed;
/// The directories of a snapshotter.
mod directories;
/// What is kept of a snapshot.
mod record;
/// The records in memory, and which of them are being changed.
mod state;
/// Requests as transactions.
mod storage;
#[cfg(test)]
mod tests;
/// Walking, measuring and removing trees.
mod tree;

pub use directories::Directories;
pub use storage::{Creation, Snapshot, Storage, run};
pub use tree::{Trash, disk_usage, remove_tree};
