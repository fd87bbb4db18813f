//! Leases and the resources they hold.

#![forbid(unsafe_code)]

use std::time::SystemTime;

use core_types::Labels;

/// Holds resources until it is deleted or expires (label `containerd.io/gc.expire`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its id.
    pub id: String,
    /// When it was made.
    pub created_at: SystemTime,
    /// Labels.
    pub labels: Labels,
}

/// Something that a lease holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// A digest, a snapshot's key, an ingest's reference, an image's name.
    pub id: String,
    /// `content`, `ingests`, `snapshots/<snapshotter>`, `images`.
    pub kind: String,
}
