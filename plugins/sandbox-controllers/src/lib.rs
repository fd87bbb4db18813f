//! Controllers of sandboxes.
//!
//! [`ShimController`] runs a sandbox as a shim of its own, by the sandbox API that the shim serves
//! (`containerd.runtime.sandbox.v1`). [`plugins`] registers it, and the [`core_sandbox::Controllers`] that every
//! controller is found in by its name, those of other plugins too.

#![forbid(unsafe_code)]

/// The controller.
mod controller;
/// What is kept of one sandbox.
mod entry;
/// The events of a sandbox's life.
mod events;
/// Registrations.
mod plugin;
/// The sandbox service of one shim.
mod remote;
/// Watching shims, and finding them again.
mod supervise;

pub use controller::ShimController;
pub use events::{publish_create, publish_exit, publish_start};
pub use plugin::{CONTROLLERS, SHIM, plugins};
