use std::sync::Arc;

use crate::{Exit, Stdio};
use core_mount::Mount;

/// What happened to a container or a process of it. Clients rely on the order: create, start, exit, delete
/// for each process; an out-of-memory kill before the exit that it causes; the exit of init after those of
/// all its execs.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Event {
    /// A container was made and its init waits for the start.
    Create { id: String, bundle: String, rootfs: Vec<Mount>, stdio: Stdio, checkpoint: String, pid: u32 },
    /// Init runs.
    Start { id: String, pid: u32 },
    /// An exec is known.
    ExecAdded { id: String, exec_id: String },
    /// An exec runs.
    ExecStarted { id: String, exec_id: String, pid: u32 },
    /// The kernel killed a process of the container for want of memory.
    Oom { id: String },
    /// A process ended; `process` is the container's id for init.
    Exit { id: String, process: String, exit: Exit },
    /// A container is gone.
    Delete { id: String, exit: Exit },
    /// All processes are frozen.
    Paused { id: String },
    /// All processes run again.
    Resumed { id: String },
}

/// Where events go. Called from within state changes, so it must neither block nor call back.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;
