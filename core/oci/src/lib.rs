//! OCI runtime specifications: containerd's default and the changes that options make to it.
//!
//! A [`Spec`] is a JSON object that is patched in place. Fields that this crate does not know stay as they
//! are, so a specification from a newer client or a file passes through unharmed. The kinds of change are in
//! modules of their own, all as methods of [`Spec`].

#![forbid(unsafe_code)]

pub mod apparmor;
/// Sets of Linux capabilities.
mod capabilities;
/// Devices described by files of the Container Device Interface.
mod cdi;
/// The specification every Linux container starts from.
mod defaults;
/// Device nodes and the cgroup rules for them.
mod devices;
/// Environment variables: merging and files.
pub mod env;
/// The part of an image that says how to run it.
mod image;
/// Mounts of a container, and their command line form.
mod mounts;
/// Simple fields: process, namespaces, limits, annotations.
mod options;
/// Files of a container's root file system, read without mounting it.
mod rootfs;
/// The default system call filter.
mod seccomp;
/// The JSON object itself.
mod spec;
/// Users and groups of a root file system.
mod users;

pub use capabilities::{DEFAULT_CAPABILITIES, current_capabilities};
pub use cdi::{CdiInjection, CdiRegistry};
pub use devices::DeviceNode;
pub use image::{ImageConfig, RunConfig, clean_absolute};
pub use mounts::BindMount;
pub use options::{IdMapping, NAMESPACE_TYPES};
pub use rootfs::Rootfs;
pub use spec::{OCI_VERSION, SPEC_TYPE_URL, Spec};
pub use users::{ResolvedUser, UserSpec};
