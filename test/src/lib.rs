//! What system tests share: a private world, a daemon, a registry, images.
//!
//! A test is a process of its own (nextest). It enters a mount namespace where `/run/containerd` is an empty
//! tmpfs, so that default paths are free to use, and everything it starts is a child of it or of a shim in the
//! same namespace: [`World`] ends all of that when it is dropped.

// Only tests use this crate: a fault of the surroundings ends the test.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr)]

/// A daemon and the command lines that talk to it.
mod daemon;
/// A registry that misbehaves on purpose.
pub mod hostile;
/// Images made from Debian's busybox.
mod image;
/// A real registry on a loopback port.
mod registry;
/// What a daemon and its machine hold, to be compared.
mod state;
/// The private namespace of a test and what runs in it.
mod world;

pub use daemon::{Daemon, Kind, Output};
pub use image::{busybox, idle, layered};
pub use registry::Registry;
pub use state::State;
pub use world::{World, eventually, skip_without, unique};
