//! The CRI of the workspace's daemon, spoken to by the crate `k8s-cri`, made by others; with real CNI plugins, a real
//! registry and runc.

// Helpers of a test are tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

/// Absurd requests.
#[path = "cri/absurd.rs"]
mod absurd;
/// Containers: their lifecycle and what they see.
#[path = "cri/containers.rs"]
mod containers;
/// What happened: events.
#[path = "cri/events.rs"]
mod events;
/// Plugins, runtimes and shims that fail.
#[path = "cri/faults.rs"]
mod faults;
/// Several runtimes.
#[path = "cri/handlers.rs"]
mod handlers;
/// Lists, their filters, and what is told at length.
#[path = "cri/lists.rs"]
mod lists;
/// Logs of containers.
#[path = "cri/logs.rs"]
mod logs;
/// What is mounted into containers.
#[path = "cri/mounts.rs"]
mod mounts;
/// Namespaces, and what is in them.
#[path = "cri/namespaces.rs"]
mod namespaces;
/// A node: registry, networks, daemon, and requests as kubelet makes them.
#[path = "cri/node.rs"]
mod node;
/// Pods: their lifecycle, namespaces and networks.
#[path = "cri/pods.rs"]
mod pods;
/// What processes of containers are given, and what they may do.
#[path = "cri/process.rs"]
mod process;
/// Limits and usage.
#[path = "cri/resources.rs"]
mod resources;
/// The daemon is killed and started again.
#[path = "cri/restart.rs"]
mod restart;
/// Requests that are wrong.
#[path = "cri/wrong.rs"]
mod wrong;
