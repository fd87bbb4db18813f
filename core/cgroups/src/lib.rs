//! Reading cgroup v1 and v2 statistics and events.
//!
//! Limits are set by the OCI runtime; this crate only looks: usage and limits, which processes are inside,
//! and how many the kernel killed for want of memory. All calls read small pseudo files and do not block.

#![forbid(unsafe_code)]

/// Finding a process's cgroup, and what is asked of either version.
mod cgroup;
/// Parsing of the pseudo files.
mod files;
/// Waiting for out-of-memory kills.
mod oom;
/// Statistics of version 1 hierarchies.
pub mod v1;
/// Statistics of the version 2 hierarchy.
pub mod v2;

pub use cgroup::{Cgroup, RdmaEntry, Stats};
pub use oom::OomWatch;
