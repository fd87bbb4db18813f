//! The native snapshotter: plain copies.
//!
//! `<root>/snapshots/<id>` is the whole tree of a snapshot, copied from its parent (sharing blocks where the file
//! system can). It works everywhere, and takes the time and the space that copies take.

#![forbid(unsafe_code)]

/// The section of the configuration file.
mod config;
/// The registration.
mod plugin;
/// The snapshotter itself.
mod snapshotter;
#[cfg(test)]
mod tests;

pub use config::Config;
pub use plugin::registration;
pub use snapshotter::NativeSnapshotter;
