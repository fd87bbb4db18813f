//! What a runtime implements, and what is asked of it.

use async_trait::async_trait;
use core_types::{Error, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

/// A stream that flows both ways.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// What the client sends; ends when the client closes its half or is gone.
pub type Reader = Box<dyn AsyncRead + Send + Unpin>;

/// What the client receives; dropping it ends the stream, writing fails once the client is gone.
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// The size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// The streams of an exec or attach; those that were not asked for are `None`.
pub struct Streams {
    /// The client's input.
    pub stdin: Option<Reader>,
    /// The output of the process.
    pub stdout: Option<Writer>,
    /// The errors of the process; never there with a terminal.
    pub stderr: Option<Writer>,
    /// Whether the process has a terminal.
    pub tty: bool,
    /// New sizes of the terminal; ends with the client.
    pub resize: mpsc::Receiver<TerminalSize>,
}

/// Runs what the clients ask for. A returned future is dropped when its client goes away.
///
/// The streams must be dropped by the time the future is done: their ends are what the client waits for.
#[async_trait]
pub trait Runtime: Send + Sync {
    /// Runs `command` in `container` and returns its exit code.
    async fn exec(&self, container: &str, command: Vec<String>, streams: Streams) -> Result<i32>;

    /// Connects `streams` with the main process of `container` until either ends.
    async fn attach(&self, container: &str, streams: Streams) -> Result<()>;

    /// Connects `stream` with `port` in the network of `sandbox` until either ends.
    async fn port_forward(&self, sandbox: &str, port: u16, stream: Box<dyn Duplex>) -> Result<()>;
}

/// A command to run in a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecRequest {
    /// The container's id.
    pub container: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Whether the process has a terminal.
    pub tty: bool,
    /// Whether the client sends input.
    pub stdin: bool,
    /// Whether the client wants the output.
    pub stdout: bool,
    /// Whether the client wants the errors; not with `tty`, where the terminal carries both.
    pub stderr: bool,
}

/// A container to attach to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttachRequest {
    /// The container's id.
    pub container: String,
    /// Whether the container has a terminal.
    pub tty: bool,
    /// Whether the client sends input.
    pub stdin: bool,
    /// Whether the client wants the output.
    pub stdout: bool,
    /// Whether the client wants the errors; not with `tty`.
    pub stderr: bool,
}

/// A sandbox whose ports are forwarded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortForwardRequest {
    /// The sandbox's id.
    pub sandbox: String,
    /// The ports, for clients whose protocol does not name one for each stream.
    pub ports: Vec<u16>,
}

/// Which streams a session has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) tty: bool,
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
}

impl Wanted {
    pub(crate) fn check(self, container: &str) -> Result<()> {
        if container.is_empty() {
            return Err(Error::invalid_argument("container_id: missing"));
        }
        if self.tty && self.stderr {
            return Err(Error::invalid_argument("tty and stderr cannot both be true: a terminal carries both outputs"));
        }
        if !(self.stdin || self.stdout || self.stderr) {
            return Err(Error::invalid_argument("one of stdin, stdout or stderr must be true"));
        }
        Ok(())
    }
}

/// A checked request.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Exec(ExecRequest),
    Attach(AttachRequest),
    PortForward(PortForwardRequest),
}

impl Request {
    /// The first part of the path of the request's URL.
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            Request::Exec(_) => "exec",
            Request::Attach(_) => "attach",
            Request::PortForward(_) => "portforward",
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Request::Exec(e) if e.command.is_empty() => Err(Error::invalid_argument("cmd: missing")),
            Request::PortForward(p) if p.sandbox.is_empty() => Err(Error::invalid_argument("pod_sandbox_id: missing")),
            Request::PortForward(_) => Ok(()),
            Request::Exec(ExecRequest { container, .. }) | Request::Attach(AttachRequest { container, .. }) => {
                self.wanted().check(container)
            }
        }
    }

    pub(crate) fn wanted(&self) -> Wanted {
        match self {
            Request::Exec(e) => Wanted { tty: e.tty, stdin: e.stdin, stdout: e.stdout, stderr: e.stderr },
            Request::Attach(a) => Wanted { tty: a.tty, stdin: a.stdin, stdout: a.stdout, stderr: a.stderr },
            Request::PortForward(_) => Wanted { tty: false, stdin: false, stdout: false, stderr: false },
        }
    }
}
