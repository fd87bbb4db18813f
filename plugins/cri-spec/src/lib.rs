//! From CRI requests to OCI specifications.
//!
//! [`sandbox_spec`] makes the specification of a pod's pause container, [`container_spec`] the one of a container
//! in it, and [`update_resources`] changes the limits of one that is there. Their inputs hold the request, the
//! image's configuration, what is known of the pod and the settings of the runtime handler; what the host can do
//! is in [`Host`], and what must be looked up on it (devices, profiles, links) goes through [`HostFiles`], so that
//! the rules can be tested without a host. Everything here blocks at most on small files: call it on a blocking
//! thread.

#![forbid(unsafe_code)]

/// Annotations that runtimes and plugins read.
mod annotations;
/// Putting the specification of a container together.
mod container;
/// Device nodes, of requests, of the host and by CDI.
mod devices;
/// What can be wrong with a request.
mod error;
/// Requests and hosts for tests.
#[cfg(test)]
mod fixture;
/// What the host can do, and where it is looked up.
mod host;
/// What specifications are made from, and what comes of it.
mod input;
/// File systems of a container.
mod mounts;
/// Namespaces and id mappings.
mod namespaces;
/// Command, environment, user and capabilities.
mod process;
/// Limits and cgroup paths.
mod resources;
/// Putting the specification of a sandbox together.
mod sandbox;
/// Seccomp and AppArmor profiles.
mod security;
/// SELinux labels.
mod selinux;

pub use annotations::passthrough;
pub use container::container_spec;
pub use error::{Result, SpecError};
pub use host::{Host, HostFiles, LocalHost};
pub use input::{
    ContainerInput, ContainerSpec, Handler, Options, PodNamespaces, ResourceUpdate, SandboxFiles, SandboxInput,
    SandboxSpec, Volume,
};
pub use namespaces::{IdMappings, user_namespace};
pub use process::stop_signal;
pub use resources::{cgroups_path, update_resources};
pub use sandbox::resolv_conf;
pub use sandbox::sandbox_spec;
pub use security::APPARMOR_DEFAULT_PROFILE;
pub use selinux::{SelinuxDefaults, SelinuxLevels, relabel};
