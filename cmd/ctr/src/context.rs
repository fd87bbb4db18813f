use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use containerd_sdk::Client;

use crate::cli::Globals;

/// How long connecting may take when nothing is said.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What all commands share.
#[derive(Debug)]
pub(crate) struct Context {
    globals: Globals,
    started: Instant,
}

impl Context {
    pub(crate) fn new(globals: Globals) -> Self {
        Self { globals, started: Instant::now() }
    }

    /// Connects to the daemon.
    pub(crate) async fn client(&self) -> Result<Client> {
        let globals = &self.globals;
        let path = globals.address.strip_prefix("unix://").unwrap_or(&globals.address);
        std::fs::metadata(path).with_context(|| format!("cannot access socket {path}"))?;
        let timeout = if globals.connect_timeout.is_zero() { CONNECT_TIMEOUT } else { globals.connect_timeout };
        Ok(Client::connect_within(&globals.address, &globals.namespace, timeout).await?)
    }

    /// When the command must be over, if that was said.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        (!self.globals.timeout.is_zero()).then(|| self.started + self.globals.timeout)
    }

    /// Says what is going on, when that is wanted.
    pub(crate) fn debug(&self, text: impl fmt::Display) {
        if self.globals.debug {
            eprintln!("ctr: {text}");
        }
    }
}

/// Ends the program with an exit code and without a message.
#[derive(Debug)]
pub(crate) struct Exit(pub(crate) u32);

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit code {}", self.0)
    }
}

impl std::error::Error for Exit {}

/// Ends with the exit code of a process.
pub(crate) fn exit_with(code: u32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Exit(code).into()) }
}

/// Says that something did not work while the command goes on.
pub(crate) fn warn(text: impl fmt::Display) {
    eprintln!("ctr: {text}");
}

/// An error with its causes; a cause that its wrapper tells already is left out.
pub(crate) fn error_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Does the same for several objects: goes on after a failure, and ends with exit code 1 if there was one.
#[derive(Debug, Default)]
pub(crate) struct Failures(bool);

impl Failures {
    /// Tells the failure.
    pub(crate) fn note(&mut self, doing: &str, error: anyhow::Error) {
        self.0 = true;
        warn(error_text(&error.context(doing.to_owned())));
    }

    pub(crate) fn result(self) -> Result<()> {
        exit_with(u32::from(self.0))
    }
}
