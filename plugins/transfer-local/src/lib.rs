//! Transfers inside the daemon: `io.containerd.transfer.v1.local`.

#![forbid(unsafe_code)]

/// The daemon's stores as transfers see them.
mod backend;
/// The section of the configuration file.
mod config;
/// The registration.
mod plugin;

pub use backend::{DaemonBackend, Unpack};
pub use config::{Config, UnpackSection};
pub use plugin::{registration, transferer};
