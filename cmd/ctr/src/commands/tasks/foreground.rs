use std::{fs, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path, time::Instant};

use anyhow::{Context as _, Result, bail};
use containerd_sdk::{Process, Stdio, Streams, Terminal};
use tokio::task::JoinSet;

use crate::{
    context::{Context, error_text, exit_with, warn},
    signals,
};

/// How a process is followed.
pub(crate) struct Session {
    /// The terminal of this program, if the process is to have one; set back when dropped.
    terminal: Option<Terminal>,
    /// When it must be over.
    deadline: Option<Instant>,
}

impl Session {
    /// Takes the terminal into raw mode when `tty` is set.
    pub(crate) fn new(context: &Context, tty: bool) -> Result<Self> {
        let deadline = context.deadline();
        if !tty {
            return Ok(Self { terminal: None, deadline });
        }
        let mut terminal = Terminal::current()?;
        terminal.set_raw()?;
        Ok(Self { terminal: Some(terminal), deadline })
    }

    /// Returns at the deadline; never when there is none.
    async fn overdue(&self) {
        match self.deadline {
            Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
            None => std::future::pending().await,
        }
    }

    /// Streams as the flags want them.
    pub(crate) fn stdio(&self, null: bool, log: Option<&str>, fifo_dir: &Path, detach: bool) -> Result<Stdio> {
        if null {
            return Ok(Stdio::Null);
        }
        match (&self.terminal, log) {
            (Some(_), Some(_)) => bail!("can't use log-uri with tty"),
            (None, Some(uri)) => Ok(Stdio::Log(uri.to_owned())),
            (terminal, None) if detach => Ok(Stdio::Fifos { dir: fifo_dir.to_owned(), terminal: terminal.is_some() }),
            (_, None) => Ok(Stdio::Streams(self.streams(fifo_dir)?)),
        }
    }

    /// Streams of this program: the terminal, or the standard ones.
    pub(crate) fn streams(&self, fifo_dir: &Path) -> Result<Streams> {
        let mut streams = Streams::inherit(fifo_dir);
        if let Some(terminal) = &self.terminal {
            streams.stdin = Some(Box::new(tokio::fs::File::from_std(terminal.file()?)));
            streams.stdout = Some(Box::new(tokio::fs::File::from_std(terminal.file()?)));
            streams.stderr = None;
            streams.terminal = true;
        }
        Ok(streams)
    }

    async fn resize(&self, process: &Process) {
        let Some((columns, rows)) = self.terminal.as_ref().and_then(Terminal::size) else { return };
        if let Err(error) = process.resize(columns, rows).await
            && !error.is_not_found()
        {
            warn(format!("resize terminal: {error}"));
        }
    }
}

/// Starts a process, follows it to its end and deletes it; ends with its exit code. Whatever goes wrong,
/// nothing of it is left.
pub(crate) async fn run(process: &mut Process, session: &Session) -> Result<()> {
    let waiting = tokio::spawn(process.wait());
    // Before the start: a signal that follows the first output must find the way.
    let started = match forwarding(process, session) {
        Ok(forwarding) => process.start().await.map(|_| forwarding).map_err(Into::into),
        Err(error) => Err(error),
    };
    match started {
        Ok(forwarding) => finish(process, session, waiting, forwarding).await,
        Err(error) => {
            waiting.abort();
            clean_up(process).await;
            Err(error)
        }
    }
}

/// Begins to pass on signals. Keys reach the process through its terminal, so that is done only without one.
pub(crate) fn forwarding(process: &Process, session: &Session) -> Result<JoinSet<()>> {
    if session.terminal.is_some() { Ok(JoinSet::new()) } else { signals::forward(process) }
}

/// Follows a process that runs to its end and deletes it; ends with its exit code.
pub(crate) async fn finish(
    process: &mut Process,
    session: &Session,
    waiting: tokio::task::JoinHandle<containerd_sdk::Result<containerd_sdk::ExitStatus>>,
    _forwarding: JoinSet<()>,
) -> Result<()> {
    let status = match follow(process, session, waiting).await {
        Ok(status) => status,
        Err(error) => {
            clean_up(process).await;
            return Err(error);
        }
    };
    match process.delete().await {
        Ok(_) => {}
        // Another client was faster; the exit code is known all the same.
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error.into()),
    }
    exit_with(status)
}

async fn follow(
    process: &Process,
    session: &Session,
    mut waiting: tokio::task::JoinHandle<containerd_sdk::Result<containerd_sdk::ExitStatus>>,
) -> Result<u32> {
    let with_terminal = session.terminal.is_some();
    let mut changes = signals::window_changes()?;
    session.resize(process).await;
    loop {
        tokio::select! {
            status = &mut waiting => return Ok(status.context("wait for process")??.code),
            () = session.overdue() => bail!("context deadline exceeded: the process ran longer than --timeout allows"),
            Some(()) = changes.recv(), if with_terminal => session.resize(process).await,
        }
    }
}

/// Ends and deletes a process after a failure; tells when that fails too.
pub(crate) async fn clean_up(process: &mut Process) {
    let gone = tokio::time::timeout(signals::STOP_LIMIT, process.kill_and_delete()).await;
    match gone {
        Ok(Ok(_)) => {}
        Ok(Err(error)) if error.is_not_found() => {}
        Ok(Err(error)) => warn(format!("failed to cleanup task: {}", error_text(&error.into()))),
        Err(_) => warn("failed to cleanup task: it did not end in time"),
    }
}

/// Writes a process id to a file, which is never seen half written.
pub(crate) fn write_pid_file(path: &Path, pid: u32) -> Result<()> {
    let path = std::path::absolute(path)?;
    let mut name = path.file_name().context("pid-file must name a file")?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let write = || -> std::io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o644).open(&temporary)?;
        write!(file, "{pid}")?;
        file.sync_all()?;
        fs::rename(&temporary, &path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&temporary))).with_context(|| format!("write {}", path.display()))
}
