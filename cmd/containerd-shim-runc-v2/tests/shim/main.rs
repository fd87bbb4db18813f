//! The shim as a daemon drives it: over its socket, with a real OCI runtime, in a mount namespace of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, missing_docs)]

mod bootstrap;
mod exec;
mod lifecycle;
mod sandbox;
mod setup;
mod terminal;
