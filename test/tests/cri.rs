//! The CRI of the workspace's daemon, spoken to by the crate `k8s-cri`, made by others; with real CNI plugins, a real
//! registry and runc.

// Helpers of a test are tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

/// Containers: their lifecycle and what they see.
#[path = "cri/containers.rs"]
mod containers;
/// A node: registry, networks, daemon, and requests as kubelet makes them.
#[path = "cri/node.rs"]
mod node;
/// Pods: their lifecycle, namespaces and networks.
#[path = "cri/pods.rs"]
mod pods;
/// The daemon is killed and started again.
#[path = "cri/restart.rs"]
mod restart;
/// Requests that are wrong.
#[path = "cri/wrong.rs"]
mod wrong;
