//! The shim: owns the processes of one pod.
//!
//! `start` binds the socket and leaves a server behind, `delete` cleans up after a shim that died, and without
//! an action this is the server. It outlives the daemon and is as small as it can be, since every pod has one.

/// The flags, in Go's form.
mod args;
/// The `delete` action.
mod cleanup;
/// Core types as API messages.
mod convert;
/// The `-info` action.
mod info;
/// The log that the daemon reads.
mod log;
mod metrics;
/// Options of the runc runtime.
mod options;
/// Sending events to the daemon.
mod publisher;
/// The sandbox service.
mod sandbox;
/// The server.
mod serve;
/// The sockets of shims.
mod socket;
/// The `start` action.
mod start;
/// The task service.
mod task;

use std::{io::Write, process::ExitCode};

use args::{Action, Args};

/// What each part of this program fails with; it ends up on standard error or in the log.
type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    match Args::parse(std::env::args().skip(1)).map_err(Into::into).and_then(|args| run(&args)) {
        Ok(output) => match std::io::stdout().write_all(&output) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => {
            // The daemon puts this into the error that the user sees.
            let _ = write!(std::io::stderr(), "containerd-shim-runc-v2: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Does what the flags say; gives what belongs on standard output.
fn run(args: &Args) -> Result<Vec<u8>> {
    match args.action {
        Action::Version => Ok(info::version().into_bytes()),
        Action::Info => info::info(),
        _ if args.namespace.is_empty() => Err("shim namespace cannot be empty".into()),
        Action::Start => start::start(args),
        Action::Delete => cleanup::delete(args),
        Action::Serve => serve::serve(args).map(|()| Vec::new()),
    }
}
