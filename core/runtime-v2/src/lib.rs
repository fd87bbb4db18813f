//! Bundles, shim management, tasks.
//!
//! A task is driven through its shim, a process of its own that outlives the daemon. The transport to the
//! shim is a trait, [`ShimClient`], made by a [`Connector`]; the ttrpc one is in `plugins/shim-transport`.
//! [`TaskManager`] is the way in.

/// Running the binary of a shim.
mod binary;
/// What daemon and shim tell each other at the start, and the file that keeps it.
mod bootstrap;
/// A task's directories.
mod bundle;
/// What a shim does for its daemon, in plain types.
mod client;
/// Settings.
mod config;
/// Creating a task.
mod create;
/// What is kept of one task.
mod entry;
/// The events that the daemon publishes for dead shims.
mod events;
/// Exit codes that shims keep on disk.
mod exits;
/// Finding tasks after a restart.
mod load;
/// The shims' logs.
mod log;
/// All tasks.
mod manager;
/// From runtime names to binaries.
mod resolve;
/// The shims of sandboxes.
mod sandbox;
/// Watching and finding shims.
mod supervise;
/// One task, as services see it.
mod task;
/// Protobuf for the few messages that need it here.
mod wire;

pub use bootstrap::Endpoint;
pub use client::{
    Any, Connector, CreateRequest, ExecRequest, ExitStatus, Io, KillRequest, Process, ShimClient, ShimInfo, State,
    Status,
};
pub use config::{Config, IsSandbox, Timeouts};
pub use manager::{CreateOptions, TaskManager};
pub use sandbox::{SandboxOptions, SandboxShim, SandboxShims};
pub use task::Task;
