use std::{path::Path, sync::Arc, time::SystemTime};

use async_trait::async_trait;
pub use core_events::Any;
use core_mount::Mount;
use core_types::{Namespace, Result};

/// Standard streams: paths of FIFOs or URIs, empty for none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Io {
    /// Standard input.
    pub stdin: String,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Whether there is a terminal.
    pub terminal: bool,
}

/// Makes a task of a bundle.
#[derive(Clone, Debug, Default)]
pub struct CreateRequest {
    /// Container id.
    pub id: String,
    /// Path of the bundle.
    pub bundle: String,
    /// The root file system.
    pub rootfs: Vec<Mount>,
    /// Standard streams.
    pub io: Io,
    /// Directory of the checkpoint to restore, empty for none.
    pub checkpoint: String,
    /// Runtime options, as the client sent them.
    pub options: Option<Any>,
}

/// Adds a process to a task.
#[derive(Clone, Debug, Default)]
pub struct ExecRequest {
    /// Container id.
    pub id: String,
    /// Name of the process.
    pub exec_id: String,
    /// Standard streams.
    pub io: Io,
    /// The OCI process, JSON as the client sent it.
    pub spec: Option<Any>,
}

/// Sends a signal.
#[derive(Clone, Debug, Default)]
pub struct KillRequest {
    /// Container id.
    pub id: String,
    /// Name of the process, empty for the first.
    pub exec_id: String,
    /// Signal number.
    pub signal: u32,
    /// To all processes of the container.
    pub all: bool,
}

/// What a process is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Not known, for example because the shim does not answer.
    #[default]
    Unknown,
    /// Made and not started.
    Created,
    /// Running.
    Running,
    /// Ended.
    Stopped,
    /// Frozen.
    Paused,
    /// Being frozen.
    Pausing,
}

/// State of a process.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Container id.
    pub id: String,
    /// Name of the process, empty for the first.
    pub exec_id: String,
    /// Path of the bundle.
    pub bundle: String,
    /// Its pid on the host.
    pub pid: u32,
    /// What it is doing.
    pub status: Status,
    /// Its standard streams.
    pub io: Io,
    /// Its exit code once it ended.
    pub exit_status: u32,
    /// When it ended.
    pub exited_at: Option<SystemTime>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitStatus {
    /// Its pid on the host, when known.
    pub pid: u32,
    /// Exit code; 128 + n for signal n.
    pub status: u32,
    /// When it ended.
    pub exited_at: Option<SystemTime>,
}

/// One process of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its pid on the host.
    pub pid: u32,
    /// What the runtime says of it.
    pub info: Option<Any>,
}

/// What a shim says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShimInfo {
    /// Pid of the shim.
    pub shim_pid: u32,
    /// Pid of the container's first process.
    pub task_pid: u32,
}

/// The task service of one shim (containerd `runtime/task/v2` and `v3`). Every call has a deadline.
#[async_trait]
pub trait ShimClient: Send + Sync {
    /// State of a process.
    async fn state(&self, id: &str, exec_id: &str) -> Result<State>;
    /// Makes the container; answers its pid.
    async fn create(&self, request: CreateRequest) -> Result<u32>;
    /// Starts a process; answers its pid.
    async fn start(&self, id: &str, exec_id: &str) -> Result<u32>;
    /// Forgets a process that ended.
    async fn delete(&self, id: &str, exec_id: &str) -> Result<ExitStatus>;
    /// All processes.
    async fn pids(&self, id: &str) -> Result<Vec<Process>>;
    /// Freezes the container.
    async fn pause(&self, id: &str) -> Result<()>;
    /// Lets it go on.
    async fn resume(&self, id: &str) -> Result<()>;
    /// Writes a checkpoint to `path`.
    async fn checkpoint(&self, id: &str, path: &str, options: Option<Any>) -> Result<()>;
    /// Sends a signal.
    async fn kill(&self, request: KillRequest) -> Result<()>;
    /// Adds a process.
    async fn exec(&self, request: ExecRequest) -> Result<()>;
    /// Sets the size of a terminal.
    async fn resize_pty(&self, id: &str, exec_id: &str, width: u32, height: u32) -> Result<()>;
    /// Closes standard input.
    async fn close_io(&self, id: &str, exec_id: &str) -> Result<()>;
    /// Changes resource limits.
    async fn update(&self, id: &str, resources: Option<Any>, annotations: core_types::Labels) -> Result<()>;
    /// Waits for the end of a process; no deadline.
    async fn wait(&self, id: &str, exec_id: &str) -> Result<ExitStatus>;
    /// Resource usage, an `io.containerd.cgroups.v1|v2.Metrics` message.
    async fn stats(&self, id: &str) -> Result<Any>;
    /// Who the shim is.
    async fn connect(&self, id: &str) -> Result<ShimInfo>;
    /// Ends the shim when it has no containers, or at once when `now`.
    async fn shutdown(&self, id: &str, now: bool) -> Result<()>;
    /// Resolves when the connection is lost: the shim is gone.
    async fn closed(&self);
}

/// Connects to shims.
#[async_trait]
pub trait Connector: Send + Sync {
    /// Connects to the socket `address` (a path, or `unix://path`) that speaks `protocol` (`ttrpc`, `grpc`) of
    /// task service `version` (2 or 3); within `deadline`.
    ///
    /// # Errors
    /// NotFound when there is no socket and Unavailable when it refuses: both say that the shim is dead.
    /// Anything else says nothing about it: DeadlineExceeded, Unimplemented for a protocol not spoken.
    async fn connect(
        &self,
        namespace: &Namespace,
        protocol: &str,
        version: u32,
        address: &Path,
        deadline: std::time::Duration,
    ) -> Result<Arc<dyn ShimClient>>;
}
