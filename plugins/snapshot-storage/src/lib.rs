//! Parent chains and ids of snapshots, shared by the snapshotters.
