use std::{
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
};

use core_types::{Error, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;

use crate::{Exit, Stdio, reaper::Reaper, stdio::ProcessIo};

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Made, not started.
    Created,
    /// Started.
    Running,
    /// Being frozen.
    Pausing,
    /// Frozen.
    Paused,
    /// Ended.
    Stopped,
}

impl Status {
    /// The name that messages use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Pausing => "pausing",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }
}

/// A process as State describes it.
#[derive(Clone, Debug)]
pub struct State {
    /// Its status.
    pub status: Status,
    /// Its id; 0 before it exists.
    pub pid: u32,
    /// How it ended, if it did.
    pub exit: Option<Exit>,
    /// Its streams.
    pub stdio: Stdio,
}

/// One process of a container: init or an exec.
#[derive(Debug)]
pub struct Process {
    id: String,
    stdio: Stdio,
    inner: Mutex<Inner>,
    exit: watch::Sender<Option<Exit>>,
    /// Held by what changes the process, so that its exit is announced after its start.
    pub(crate) operation: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Inner {
    status: Status,
    pid: u32,
    io: Option<ProcessIo>,
    /// What an exec is to run, until it runs.
    spec: Vec<u8>,
}

impl Process {
    pub(crate) fn new(id: &str, stdio: Stdio) -> Self {
        Self {
            id: id.to_owned(),
            stdio,
            inner: Mutex::new(Inner { status: Status::Created, pid: 0, io: None, spec: Vec::new() }),
            exit: watch::Sender::new(None),
            operation: tokio::sync::Mutex::new(()),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The container's id for init, the exec's otherwise.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its process id; 0 before it exists.
    pub fn pid(&self) -> u32 {
        self.inner().pid
    }

    /// What it is doing.
    pub fn status(&self) -> Status {
        self.inner().status
    }

    /// Everything that is known about it.
    pub fn state(&self) -> State {
        let inner = self.inner();
        State { status: inner.status, pid: inner.pid, exit: self.exit(), stdio: self.stdio.clone() }
    }

    pub(crate) fn stdio(&self) -> &Stdio {
        &self.stdio
    }

    /// How it ended, if it did.
    pub fn exit(&self) -> Option<Exit> {
        *self.exit.borrow()
    }

    /// Waits until it has ended.
    pub async fn wait(&self) -> Exit {
        let mut exit = self.exit.subscribe();
        loop {
            if let Some(exit) = *exit.borrow_and_update() {
                return exit;
            }
            // The sender is part of self, so this does not fail.
            if exit.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    pub(crate) fn set_created(&self, pid: u32, io: ProcessIo) {
        let mut inner = self.inner();
        inner.pid = pid;
        inner.spec = Vec::new();
        inner.io = Some(io);
    }

    /// Changes the status, unless the process has ended.
    pub(crate) fn set_status(&self, status: Status) {
        let mut inner = self.inner();
        if inner.status != Status::Stopped {
            inner.status = status;
        }
    }

    pub(crate) fn set_exited(&self, exit: Exit) {
        self.inner().status = Status::Stopped;
        self.exit.send_replace(Some(exit));
    }

    pub(crate) fn set_spec(&self, spec: Vec<u8>) {
        self.inner().spec = spec;
    }

    pub(crate) fn spec(&self) -> Vec<u8> {
        self.inner().spec.clone()
    }

    pub(crate) fn take_io(&self) -> Option<ProcessIo> {
        self.inner().io.take()
    }

    /// Lets standard input end.
    pub fn close_stdin(&self) {
        if let Some(io) = &mut self.inner().io {
            io.close_stdin();
        }
    }

    /// Sets the size of the terminal; a process without one ignores it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn resize(&self, columns: u16, rows: u16) -> Result<()> {
        match self.inner().io.as_ref().and_then(|io| io.console.as_ref()) {
            Some(console) => console.resize(columns, rows).map_err(|error| Error::io("resize the terminal", error)),
            None => Ok(()),
        }
    }

    /// Sends a signal to the process itself. It cannot meet another one: the id stays ours until the shim,
    /// whose child the process is, has collected it.
    pub(crate) async fn signal(&self, number: u32, reaper: &Reaper) -> Result<()> {
        let (status, pid) = {
            let inner = self.inner();
            (inner.status, inner.pid)
        };
        if status == Status::Stopped {
            return Err(Error::not_found("process already finished"));
        }
        let Some(target) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
            return Err(Error::failed_precondition("process not created"));
        };
        let number = i32::try_from(number).unwrap_or(i32::MAX);
        let sent = match (number, Signal::from_named_raw(number)) {
            (0, _) => rustix::process::test_kill_process(target),
            (_, Some(signal)) => kill_process(target, signal),
            (1..=64, None) => return realtime(pid, number, reaper).await,
            _ => return Err(Error::invalid_argument(format!("{number} is no signal"))),
        };
        match sent {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::SRCH) => Err(Error::not_found("process already finished")),
            Err(error) => Err(Error::io(format_args!("signal process {pid}"), error.into())),
        }
    }
}

/// Sends one of the real-time signals, which the shell knows by number.
async fn realtime(pid: u32, number: i32, reaper: &Reaper) -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("kill -{number} {pid}")]);
    let null = std::process::Stdio::null;
    command.stdin(null()).stdout(null()).stderr(null());
    let (_, exit) = reaper.spawn(&mut command).map_err(|error| Error::io("send a signal", error))?;
    match exit.await {
        Ok(exit) if exit.status == 0 => Ok(()),
        _ => Err(Error::not_found("process already finished")),
    }
}
