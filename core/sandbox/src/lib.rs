//! The sandbox record: a group of containers that share namespaces, and what its shim was told about it.

#![forbid(unsafe_code)]

mod record;

pub use record::{Runtime, Sandbox};
