//! What a task manager is told by the daemon that owns it.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use core_types::Namespace;

/// Says whether an id names a sandbox: its shim is kept although it has no task.
pub type IsSandbox = Arc<dyn Fn(&Namespace, &str) -> bool + Send + Sync>;

/// Settings of a [`TaskManager`](crate::TaskManager).
#[derive(Clone)]
pub struct Config {
    /// Directory that survives a reboot, `<root>/io.containerd.runtime.v2.task`.
    pub root: PathBuf,
    /// Directory that does not, `<state>/io.containerd.runtime.v2.task`.
    pub state: PathBuf,
    /// gRPC socket of the daemon, told to shims.
    pub grpc_address: String,
    /// ttrpc socket of the daemon, where shims publish events.
    pub ttrpc_address: String,
    /// Executable of the daemon: told to shims, and its directory is searched for theirs first.
    pub executable: PathBuf,
    /// Version of the daemon, told to shims.
    pub version: String,
    /// Where shims make their sockets; at most 42 bytes long, so that a socket's path fits.
    pub socket_dir: PathBuf,
    /// Whether shims log more.
    pub debug: bool,
    /// More environment for shims, `NAME=value`.
    pub env: Vec<String>,
    /// Directories searched for shims after that of the daemon; none is those of `PATH`.
    pub search_path: Option<Vec<PathBuf>>,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// Whether an id names a sandbox.
    pub is_sandbox: Option<IsSandbox>,
}

impl Config {
    /// Settings with everything else as containerd has it.
    pub fn new(root: PathBuf, state: PathBuf, grpc_address: String, ttrpc_address: String) -> Self {
        Self {
            root,
            state,
            grpc_address,
            ttrpc_address,
            executable: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("containerd")),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            socket_dir: PathBuf::from("/run/containerd/s"),
            debug: false,
            env: Vec::new(),
            search_path: None,
            timeouts: Timeouts::default(),
            is_sandbox: None,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("root", &self.root).field("state", &self.state).finish_non_exhaustive()
    }
}

/// How long things may take before they count as failed. Waiting for an exit alone has no bound.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// A shim's binary starting its shim.
    pub start: Duration,
    /// Reaching a shim after a restart (`io.containerd.timeout.shim.load`).
    pub load: Duration,
    /// Cleaning up after a dead shim (`io.containerd.timeout.shim.cleanup`).
    pub cleanup: Duration,
    /// A shim ending (`io.containerd.timeout.shim.shutdown`).
    pub shutdown: Duration,
    /// The state of a process (`io.containerd.timeout.task.state`).
    pub state: Duration,
    /// A signal being sent, and other short requests.
    pub short: Duration,
    /// Creating, starting and what else runs the OCI runtime and its hooks.
    pub long: Duration,
    /// Longest pause between two attempts to reach a shim that does not answer.
    pub retry: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(60),
            load: Duration::from_secs(5),
            cleanup: Duration::from_secs(5),
            shutdown: Duration::from_secs(3),
            state: Duration::from_secs(2),
            short: Duration::from_secs(10),
            long: Duration::from_secs(120),
            retry: Duration::from_secs(30),
        }
    }
}
