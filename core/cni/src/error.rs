use std::{io, path::PathBuf, time::Duration};

use core_types::ErrorKind;

use crate::version::SpecVersion;

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a network cannot be used, attached or taken off.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration directory holds no network.
    #[error("no network configuration in {}: install a network plugin, which puts a .conflist file there", dir.display())]
    NoConfig {
        /// The directory searched.
        dir: PathBuf,
    },
    /// A configuration file cannot be used.
    #[error("network configuration {}: {reason}", file.display())]
    BadConfig {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No directory has the plugin's binary.
    #[error("network plugin {plugin:?} is in none of the directories {}: install it there", list(dirs))]
    PluginMissing {
        /// The plugin's type.
        plugin: String,
        /// The directories searched, in order.
        dirs: Vec<PathBuf>,
    },
    /// A plugin ran and did not do its work.
    #[error(transparent)]
    Plugin(#[from] PluginFailure),
    /// A plugin's result cannot be used.
    #[error("result of network {network:?}: {reason}")]
    BadResult {
        /// The network.
        network: String,
        /// What is wrong with it.
        reason: String,
    },
    /// What was asked can never work.
    #[error("{0}")]
    Invalid(String),
    /// The record of attachments cannot be read or written.
    #[error("record of network attachments {}: {source}", path.display())]
    Cache {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The loopback interface did not come up.
    #[error("loopback interface in {}: {source}", netns.display())]
    Loopback {
        /// The network namespace.
        netns: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The network's version of the specification has no CHECK.
    #[error("network {network:?} is of version {version}, which has no CHECK: it begins with 0.4.0")]
    CheckUnsupported {
        /// The network.
        network: String,
        /// Its version.
        version: SpecVersion,
    },
    /// Several steps failed, each of which was tried.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<Error>),
}

impl Error {
    /// Nothing, the one error or all of them.
    pub(crate) fn all(mut errors: Vec<Self>) -> Result<()> {
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Self::Several(errors)),
        }
    }
}

fn list(dirs: &[PathBuf]) -> String {
    dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Which call of which plugin failed, and how.
#[derive(Debug, thiserror::Error)]
#[error("network {network:?}: plugin {plugin:?} failed at {command}: {cause}")]
pub struct PluginFailure {
    /// The network's name; empty where none is concerned.
    pub network: String,
    /// The plugin's type.
    pub plugin: String,
    /// The value of `CNI_COMMAND`.
    pub command: &'static str,
    /// How it failed.
    pub cause: Cause,
}

/// How a plugin failed.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// It said so itself, as the specification wants.
    #[error("{msg}{} (code {code})", if details.is_empty() { String::new() } else { format!(": {details}") })]
    Reported {
        /// The specification's error code, or the plugin's own from 100 on.
        code: u64,
        /// The short text.
        msg: String,
        /// The long text; may be empty.
        details: String,
    },
    /// It ended with a failure and did not say why in the specified form.
    #[error("it ended with status {status} and said: {output}")]
    Exit {
        /// The exit status.
        status: i32,
        /// The beginning of what it wrote.
        output: String,
    },
    /// A signal ended it.
    #[error("signal {signal} ended it; it had said: {output}")]
    Signal {
        /// The signal's number.
        signal: i32,
        /// The beginning of what it wrote.
        output: String,
    },
    /// It did not end in time and was killed with all it had started.
    #[error("it did not end within {after:?} and was killed")]
    TimedOut {
        /// The time it had.
        after: Duration,
    },
    /// It ended well but did not answer in the specified form.
    #[error("its answer cannot be read ({reason}): {output}")]
    Garbage {
        /// What is wrong with the answer.
        reason: String,
        /// The beginning of what it wrote.
        output: String,
    },
    /// It wrote more than is read.
    #[error("it wrote more than {limit} bytes and was killed")]
    TooMuch {
        /// The limit in bytes.
        limit: usize,
    },
    /// It could not be started or waited for.
    #[error("it cannot be run: {0}")]
    Run(#[source] io::Error),
}

impl From<Error> for core_types::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::NoConfig { .. } | Error::BadConfig { .. } | Error::PluginMissing { .. } => {
                ErrorKind::FailedPrecondition
            }
            Error::Plugin(PluginFailure { cause: Cause::TimedOut { .. }, .. }) => ErrorKind::DeadlineExceeded,
            // Code 11 of the specification: try again later.
            Error::Plugin(PluginFailure { cause: Cause::Reported { code: 11, .. }, .. }) => ErrorKind::Unavailable,
            Error::Invalid(_) => ErrorKind::InvalidArgument,
            Error::CheckUnsupported { .. } => ErrorKind::Unimplemented,
            _ => ErrorKind::Unknown,
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}
