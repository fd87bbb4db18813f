//! The image service of the CRI (`runtime.v1.ImageService`), plugin `io.containerd.cri.v1.images`.
//!
//! Images live in the daemon's image store, in the namespace of Kubernetes, and are pulled by the daemon's transfer
//! plugin: this crate decides which names an image has, keeps an index of them by image id that follows the events of
//! the store, and knows what snapshots weigh. [`Images`] is the handle for the rest of the CRI; the gRPC service is a
//! conversion over it.

#![forbid(unsafe_code)]

/// Credentials of one pull.
mod auth;
/// The section of the configuration file.
mod config;
/// Usage of snapshots, sampled.
mod fs;
/// The handle.
mod images;
/// Images by id and by name.
mod index;
/// From a record of the store to an image.
mod load;
/// The registration.
mod plugin;
/// Giving up on a pull that stands still.
mod progress;
/// Pulls, joined.
mod pull;
/// Names of images.
mod reference;
/// The gRPC service.
mod service;
/// Following the image store.
mod sync;

pub use config::{Config, HandlerPlatform, Mirror, RegistryAuth, RegistryConfig, RegistrySection};
pub use fs::SnapshotUsage;
pub use images::{Images, PullRequest};
pub use index::Image;
pub use plugin::registration;
