//! The daemon: reads the configuration, starts the plugins, serves gRPC and ttrpc.

/// Which plugins there are.
mod builtins;
/// The command line.
mod cli;
/// The configuration file.
mod config;
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

use std::process::ExitCode;

use clap::Parser;

/// Heap arenas: with few threads, more of them only keep memory.
const ARENAS: u16 = 2;

fn main() -> ExitCode {
    core_sys::limit_arenas(ARENAS);
    match cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cli::complain(&error);
            ExitCode::FAILURE
        }
    }
}
