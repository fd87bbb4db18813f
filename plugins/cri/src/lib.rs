//! The runtime service of the CRI (`runtime.v1.RuntimeService`): pods and containers for kubelet.
//!
//! `cri` holds what all share; everything else has one job: `sandbox` the lifecycle of pods, `container` that of
//! containers, `exec` and `stream` commands in them, `stats` their usage, `events` and `feed` what happened, `nri` what
//! plugins see and change, `recovery` finding all again after a restart. `service` is the door.
//!
//! Pods and containers are in memory, in the metadata database and in shims; the database says what was asked for,
//! shims what runs, and memory is made of both at the start.

#![forbid(unsafe_code)]

/// The sections of the configuration.
mod config;
/// The lifecycle of containers.
mod container;
/// What all parts share.
mod cri;
/// Telling what happened.
mod events;
/// Commands in containers.
mod exec;
/// Events for readers.
mod feed;
/// Joining requests that run.
mod flight;
/// Runtime handlers.
mod handler;
/// Requests and records for people.
mod json;
/// Where files are.
mod layout;
/// Names and ids.
mod names;
/// Network namespaces.
mod netns;
/// What the node tells of itself.
mod node;
/// What NRI plugins see and change.
mod nri;
/// Out-of-memory kills.
mod oom;
/// The registrations.
mod plugin;
/// After a restart.
mod recovery;
/// The lifecycle of pods.
mod sandbox;
/// The gRPC service.
mod service;
/// Usage.
mod stats;
/// What runs.
mod store;
/// Interactive streams.
mod stream;
/// CNI configuration from a template.
mod template;
/// Undoing steps.
mod undo;

use core_types::{Error, Result};

pub use config::{CniConfig, KeyPair, Runtime, RuntimeConfig, Runtimes, ServerConfig};
pub use plugin::plugins;

/// Runs work that blocks where it holds up nobody.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Error::internal("work on the disk broke off, see the log")))
}
