//! Opens the metadata database over the content store and the snapshotters that are loaded.

#![forbid(unsafe_code)]

/// The settings.
mod config;
/// The registration.
mod plugin;

pub use config::{Config, SharingPolicy};
pub use plugin::{directory, registration};
