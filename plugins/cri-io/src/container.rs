//! The streams of a container.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use core_runtime_v2::Io;
use core_types::{Error, Result};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    attach::{self, AttachStreams},
    fifo::{Ends, Fifos, Output, Stdin},
    format::{Lines, Stream},
    hub::Hub,
    log::Log,
    pump::{Phase, Pump},
};

/// Longest line of a log in bytes, unless the configuration says otherwise: containerd's default.
pub const DEFAULT_MAX_LINE: usize = 16 << 10;

/// How long closing waits for a write that hangs.
const CLOSE: Duration = Duration::from_secs(5);

/// Which streams a container has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoOptions {
    /// Whether it has standard input.
    pub stdin: bool,
    /// Whether its input ends with that of the first client that attaches. With a terminal it does not.
    pub stdin_once: bool,
    /// Whether it has a terminal, and so a single output.
    pub tty: bool,
    /// Longest content of a line in the log, in bytes; longer ones are split. None is no limit but for one of
    /// 64 MiB, which keeps a container from using up the daemon's memory.
    pub max_line: Option<usize>,
}

impl Default for IoOptions {
    fn default() -> Self {
        Self { stdin: false, stdin_once: false, tty: false, max_line: Some(DEFAULT_MAX_LINE) }
    }
}

/// The daemon's side of a container's standard streams.
///
/// Output is read from [`Self::start_log`] on, and until it ends. Dropping this stops reading and leaves the FIFOs
/// to a later [`Self::reattach`]; [`Self::close`] removes them.
#[derive(Debug)]
pub struct ContainerIo {
    options: IoOptions,
    fifos: Fifos,
    stdin: Stdin,
    hub: Arc<Hub>,
    log: Arc<Log>,
    phase: watch::Sender<Phase>,
    pumps: Mutex<Pumps>,
}

#[derive(Debug)]
struct Pumps {
    /// Outputs that are not read yet.
    idle: [Option<Output>; 2],
    tasks: Vec<JoinHandle<()>>,
}

impl ContainerIo {
    /// Makes FIFOs named after `id` in `directory` (which is made too, with mode 0700) and opens them.
    ///
    /// # Errors
    /// InvalidArgument for an id that is no file name; what making and opening them says. Nothing is left then.
    pub async fn create(directory: &Path, id: &str, options: IoOptions) -> Result<Self> {
        let (directory, id) = (directory.to_path_buf(), id.to_owned());
        Self::open(options, move || {
            let fifos = Fifos::create(&directory, &id, options.stdin, options.tty)?;
            Ok(fifos)
        })
        .await
    }

    /// Opens the FIFOs in `directory`, or in a directory in it, that an earlier daemon has made.
    ///
    /// # Errors
    /// NotFound when they are not there; what opening them says.
    pub async fn reattach(directory: &Path, id: &str, options: IoOptions) -> Result<Self> {
        let (directory, id) = (directory.to_path_buf(), id.to_owned());
        Self::open(options, move || Fifos::find(&directory, &id, options.stdin, options.tty)).await
    }

    /// Opens FIFOs by the paths that the shim has of them. `io` decides whether there is input and a terminal.
    ///
    /// # Errors
    /// InvalidArgument for something else than absolute paths; what opening them says.
    pub async fn reattach_streams(io: &Io, mut options: IoOptions) -> Result<Self> {
        options.stdin = !io.stdin.is_empty();
        options.tty = io.terminal;
        let io = io.clone();
        Self::open(options, move || Fifos::at(&io)).await
    }

    async fn open(options: IoOptions, fifos: impl FnOnce() -> Result<Fifos> + Send + 'static) -> Result<Self> {
        let opened = tokio::task::spawn_blocking(move || {
            let fifos = fifos()?;
            let ends = fifos.open()?;
            Ok::<_, Error>((fifos, ends))
        });
        let (mut fifos, Ends { stdin, outputs }) =
            opened.await.map_err(|error| Error::internal(format!("open the streams: {error}")))??;
        // Until here an error or an abandoned call removes what was made.
        fifos.temporary = false;
        Ok(Self {
            options,
            fifos,
            stdin,
            hub: Arc::new(Hub::new([outputs[0].is_some(), outputs[1].is_some()])),
            log: Arc::default(),
            phase: watch::Sender::new(Phase::Running),
            pumps: Mutex::new(Pumps { idle: outputs, tasks: Vec::new() }),
        })
    }

    /// The paths for the shim.
    pub fn streams(&self) -> Io {
        self.fifos.io().clone()
    }

    /// Starts reading the output, into the log at `path` or, without one, only for clients that attach.
    ///
    /// The file is made with mode 0640 if it is not there, its directory is not; a symbolic link in the place of
    /// the file is refused. To be called before the task is created. When the output is being read already, only
    /// the file changes.
    ///
    /// # Errors
    /// What opening the file says.
    pub async fn start_log(&self, path: Option<&Path>) -> Result<()> {
        self.switch(path).await?;
        let mut pumps = self.pumps.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in Stream::BOTH {
            let output = pumps.idle.get_mut(stream as usize).and_then(Option::take);
            if let Some(output) = output {
                let lines = Lines::new(stream, self.options.max_line);
                let (log, hub) = (self.log.clone(), self.hub.clone());
                let pump = Pump::new(output, lines, stream, log, hub, self.phase.subscribe());
                pumps.tasks.push(tokio::spawn(pump.run()));
            }
        }
        Ok(())
    }

    /// Goes on in a new file at `path`, after the log was moved away. Every line is wholly in one of the two files,
    /// and when this returns nothing more is written to the old one.
    ///
    /// # Errors
    /// What opening the file says; then the old file is kept.
    pub async fn reopen_log(&self, path: &Path) -> Result<()> {
        self.switch(Some(path)).await
    }

    async fn switch(&self, path: Option<&Path>) -> Result<()> {
        let (log, path) = (self.log.clone(), path.map(Path::to_path_buf));
        tokio::task::spawn_blocking(move || log.switch(path.as_deref()))
            .await
            .map_err(|error| Error::internal(format!("open the log: {error}")))?
    }

    /// Gives a client the output from now on and the container what it types, until the output ends or the client
    /// goes. It has gone when one of its streams cannot be written, and when its input ends, unless the container's
    /// input ends with it (`stdin_once`, no terminal). Dropping the future ends it too.
    ///
    /// A client does not slow down the log or its neighbours: up to [`ATTACH_BACKLOG`](crate::ATTACH_BACKLOG) wait
    /// for it.
    ///
    /// # Errors
    /// ResourceExhausted when more waits.
    pub async fn attach(&self, streams: AttachStreams) -> Result<()> {
        attach::attach(&self.hub, &self.stdin, streams, self.options.stdin_once, self.options.tty).await
    }

    /// Waits until all output is in the log. To be called when the process has ended, and with a bound, since a
    /// process that it has left behind may hold its output. Returns at once when no output was ever read.
    pub async fn finished(&self) {
        self.phase.send_if_modified(|phase| {
            let first = *phase == Phase::Running;
            if first {
                *phase = Phase::Ended;
            }
            first
        });
        let started = !self.pumps.lock().unwrap_or_else(PoisonError::into_inner).tasks.is_empty();
        if started {
            self.hub.ended().await;
        }
    }

    /// Stops everything and removes the FIFOs and their directory. Output that was not read is lost; clients see
    /// the end.
    pub async fn close(&self) {
        self.phase.send_replace(Phase::Stop);
        self.stdin.close();
        let tasks = {
            let mut pumps = self.pumps.lock().unwrap_or_else(PoisonError::into_inner);
            pumps.idle = [None, None];
            std::mem::take(&mut pumps.tasks)
        };
        let stopped = tokio::time::timeout(CLOSE, futures::future::join_all(tasks)).await;
        if stopped.is_ok() {
            // Closing the file does not fail.
            let _ = self.switch(None).await;
        } else {
            tracing::warn!(
                stdout = self.fifos.io().stdout,
                "a write to a log hangs; its file stays open until it ends"
            );
        }
        for stream in Stream::BOTH {
            self.hub.end(stream);
        }
        self.fifos.remove();
    }
}

#[cfg(test)]
#[path = "container/tests.rs"]
mod tests;
