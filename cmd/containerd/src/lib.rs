//! The daemon: reads the configuration, starts the plugins, serves gRPC and ttrpc.
//!
//! [`main`] is the program. [`InProcess`] is the same daemon in a program of another kind, reached without a
//! socket.

#![forbid(unsafe_code)]

/// Which plugins there are.
mod builtins;
/// The command line.
mod cli;
/// The configuration file.
mod config;
/// Giving memory back.
mod idle;
/// The daemon as part of another program.
mod in_process;
/// The lock on the root directory.
mod lock;
/// Log lines as containerd writes them.
mod logging;
/// Telling the service manager.
mod notify;
/// Events of shims that publish by running this program.
mod publish;
/// Starting, serving, ending.
mod server;
/// Listening on Unix sockets.
mod sockets;

pub use in_process::{Connector, InProcess};

use std::process::ExitCode;

use clap::Parser;

/// Heap arenas: with few threads, more of them only keep memory.
const ARENAS: u16 = 2;

/// The program `containerd`: does what its command line says.
#[must_use]
pub fn main() -> ExitCode {
    core_sys::limit_arenas(ARENAS);
    match cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cli::complain(&error);
            ExitCode::FAILURE
        }
    }
}
