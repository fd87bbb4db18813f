//! Leases and the resources they hold.

#![forbid(unsafe_code)]

mod lease;

pub use lease::{Lease, Resource, ResourceKind};
