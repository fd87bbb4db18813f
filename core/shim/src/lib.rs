//! The inside of a shim: processes, stdio, consoles, exit records, the OCI runtime command line.
//!
//! Everything runs on one current-thread tokio runtime. One [`Reaper`] collects every child; the OCI runtime is
//! driven by [`OciRuntime`]; a [`Container`] holds an init process and its execs and reports what happens to
//! them as [`Event`]s, in the order in which clients rely on.

#![forbid(unsafe_code)]

/// Terminals: receiving the master side from the runtime, and copying.
mod console;
/// A container: its init process, its execs and the rules between them.
mod container;
/// Making containers.
mod create;
/// What a shim reports.
mod event;
/// Processes that are executed in a container beside its init.
mod exec;
/// What happens when processes exit.
mod exits;
/// The log processes named by `binary://`.
mod logger;
/// Descriptors on the event loop.
mod poll;
/// One process of a container and its states.
mod process;
/// Collecting children.
mod reaper;
/// Exit records on disk.
mod record;
/// Letting init go without a second process of the runtime.
mod release;
/// The command line of OCI runtimes.
mod runtime;
/// What a container's specification says about how it ends.
mod spec;
/// Standard streams.
mod stdio;

pub use container::{Container, Host};
pub use create::CreateConfig;
pub use event::{Event, EventSink};
pub use exec::ExecConfig;
pub use process::{Process, State, Status};
pub use reaper::{Exit, Reaper};
pub use record::ExitRecord;
pub use runtime::{DEFAULT_ROOT, OciRuntime, RuntimeOptions};
pub use stdio::Stdio;
