//! The overlayfs snapshotter.
//!
//! `<root>/snapshots/<id>/fs` holds the files of a snapshot, `work` beside it belongs to the kernel. Mounts are
//! containerd's: a bind mount where there is one layer, an overlay of the parents' directories otherwise.

#![forbid(unsafe_code)]

/// The section of the configuration file.
mod config;
/// From a snapshot to its mounts.
mod mounts;
/// The registration.
mod plugin;
/// Whether and how the kernel does overlays here.
mod probe;
/// The snapshotter itself.
mod snapshotter;
#[cfg(test)]
mod tests;

pub use config::Config;
pub use plugin::registration;
pub use probe::supported;
pub use snapshotter::OverlaySnapshotter;
