//! `ctr`, the command line client of containerd.
//!
//! Flags, columns and exit codes are those of containerd's `ctr`: errors go to standard error as `ctr: …` with
//! exit code 1, and commands that run a process end with its exit code.

#![forbid(unsafe_code)]
// A command line program talks by printing.
#![allow(clippy::print_stdout, clippy::print_stderr)]

/// The grammar of the command line.
mod cli;
/// One module for each command.
mod commands;
/// What all commands share: global flags, connection.
mod context;
/// Tables, sizes, times and JSON.
mod output;
/// Progress of transfers.
mod progress;
/// Signals by name, and passing them on.
mod signals;
/// Small parsers of arguments.
mod values;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;

use crate::context::Exit;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, not errors.
            let code = u8::from(error.use_stderr());
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let result = runtime.context("start").and_then(|runtime| {
        let result = runtime.block_on(cli.run());
        // A read of standard input may never end; it must not hold the program.
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(Exit(code)) = error.downcast_ref::<Exit>() {
        return ExitCode::from(u8::try_from(*code).unwrap_or(u8::MAX));
    }
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(closed) {
        // Whoever read the output has seen enough.
        return ExitCode::SUCCESS;
    }
    eprintln!("ctr: {}", context::error_text(error));
    ExitCode::FAILURE
}
