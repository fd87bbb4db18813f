use std::{
    fs::{self, DirBuilder},
    os::unix::fs::{DirBuilderExt as _, FileTypeExt as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use core_types::identifiers;
use nix::{sys::stat::Mode, unistd::mkfifo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
};

use crate::{Error, Result, streams::stream_id};

/// Moving bytes between FIFOs and this program.
mod pump;

pub(crate) use pump::Activity;

/// Directory below which FIFOs are made.
pub const DEFAULT_FIFO_DIR: &str = "/run/containerd/fifo";

/// How long FIFOs may be without a reader after they were made.
const NEW: Duration = Duration::from_secs(60);

/// Where a process's input comes from.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;
/// Where a process's output goes to.
pub type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// What a process's standard streams are connected to.
pub enum Stdio {
    /// Nothing.
    Null,
    /// A log driver of the shim (`file://…`, `binary://…`), for both outputs.
    Log(String),
    /// This program, by FIFOs.
    Streams(Streams),
    /// FIFOs for a later attach, from which nothing is read now; `terminal` says whether the process has one.
    Fifos {
        /// Directory below which they are made.
        dir: PathBuf,
        /// Whether the process has a terminal.
        terminal: bool,
    },
}

/// The ends of a process's streams in this program.
pub struct Streams {
    /// What it reads; none for an empty input.
    pub stdin: Option<Input>,
    /// What it writes; none to throw it away.
    pub stdout: Option<Output>,
    /// What it writes as errors; a terminal has none.
    pub stderr: Option<Output>,
    /// Whether it has a terminal.
    pub terminal: bool,
    /// Directory below which the FIFOs are made.
    pub fifo_dir: PathBuf,
}

impl Streams {
    /// This program's own standard streams.
    pub fn inherit(fifo_dir: impl Into<PathBuf>) -> Self {
        Self {
            stdin: Some(Box::new(tokio::io::stdin())),
            stdout: Some(Box::new(tokio::io::stdout())),
            stderr: Some(Box::new(tokio::io::stderr())),
            terminal: false,
            fifo_dir: fifo_dir.into(),
        }
    }
}

/// The FIFOs of a process. They are removed when this is dropped, unless it is told to keep them.
#[derive(Debug, Default)]
pub struct FifoSet {
    /// The directory made for them.
    dir: Option<PathBuf>,
    paths: [PathBuf; 3],
    keep: bool,
}

impl FifoSet {
    /// Makes FIFOs called `<id>-stdin`, `-stdout` and `-stderr` in a new directory below `root`; a terminal has
    /// no `stderr`.
    ///
    /// # Errors
    /// InvalidArgument for an id that is no identifier; what the disk says. Nothing is left behind then.
    pub fn create(root: &Path, id: &str, stdin: bool, terminal: bool) -> Result<Self> {
        identifiers::validate(id)?;
        let private = || {
            let mut builder = DirBuilder::new();
            builder.mode(0o700);
            builder
        };
        private().recursive(true).create(root).map_err(|error| Error::io(format!("make {}", root.display()), error))?;
        remove_abandoned(root);
        let dir = root.join(stream_id("io"));
        private().create(&dir).map_err(|error| Error::io(format!("make {}", dir.display()), error))?;
        let path = |wanted: bool, name: &str| {
            if wanted { dir.join(format!("{id}-{name}")) } else { PathBuf::new() }
        };
        let paths = [path(stdin, "stdin"), path(true, "stdout"), path(!terminal, "stderr")];
        // From here on, dropping the set removes what was made.
        let set = Self { dir: Some(dir), paths, keep: false };
        for path in set.paths.iter().filter(|path| !path.as_os_str().is_empty()) {
            mkfifo(path, Mode::S_IRWXU)
                .map_err(|error| Error::io(format!("make FIFO {}", path.display()), error.into()))?;
        }
        Ok(set)
    }

    /// Takes FIFOs that another client made; they stay until [`remove`](Self::remove).
    pub fn adopt(stdin: &str, stdout: &str, stderr: &str) -> Self {
        let paths = [stdin, stdout, stderr].map(|path| if is_fifo(path) { path.into() } else { PathBuf::new() });
        Self { dir: None, paths, keep: true }
    }

    /// Path of the input; empty for none.
    pub fn stdin(&self) -> &Path {
        &self.paths[0]
    }

    /// Path of the output; empty for none.
    pub fn stdout(&self) -> &Path {
        &self.paths[1]
    }

    /// Path of the errors; empty for none.
    pub fn stderr(&self) -> &Path {
        &self.paths[2]
    }

    /// Leaves the FIFOs when dropped, for a later attach.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// Removes the FIFOs, and their directory when nothing else is in it.
    pub fn remove(&mut self) {
        for path in self.paths.iter().filter(|path| !path.as_os_str().is_empty()) {
            if is_fifo(path) {
                let _ = fs::remove_file(path);
            }
            if let Some(parent) = path.parent() {
                // Fails, as it should, while other things are in it.
                let _ = fs::remove_dir(parent);
            }
        }
        if let Some(dir) = self.dir.take() {
            let _ = fs::remove_dir(dir);
        }
        self.keep = true;
    }
}

impl Drop for FifoSet {
    fn drop(&mut self) {
        if !self.keep {
            self.remove();
        }
    }
}

/// Removes the FIFOs that killed clients left below `root`: those of a directory of ours that is no longer new, when
/// nobody reads an output. A client reads from the moment it has made them, and a shim as long as there is the
/// process; so the ids of processes, which come again, need not be asked.
fn remove_abandoned(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let age = entry.metadata().ok().and_then(|metadata| metadata.modified().ok()?.elapsed().ok());
        if !name.to_string_lossy().starts_with("io-") || age.is_none_or(|age| age < NEW) {
            continue;
        }
        let paths: Vec<PathBuf> =
            fs::read_dir(entry.path()).into_iter().flatten().flatten().map(|f| f.path()).collect();
        let abandoned = |path: &PathBuf| {
            let input = path.to_string_lossy().ends_with("-stdin");
            is_fifo(path)
                && (input
                    || tokio::net::unix::pipe::OpenOptions::new()
                        .open_sender(path)
                        .is_err_and(|error| error.raw_os_error() == Some(nix::libc::ENXIO)))
        };
        // Something else in it, or an error of another kind: not ours to judge.
        if !paths.iter().all(abandoned) {
            continue;
        }
        for path in paths {
            let _ = fs::remove_file(path);
        }
        let _ = fs::remove_dir(entry.path());
    }
}

fn is_fifo(path: impl AsRef<Path>) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The standard streams of one process on this side. Dropping it ends the copying and removes the FIFOs.
#[derive(Default)]
pub(crate) struct ProcessIo {
    pub(crate) stdin: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) terminal: bool,
    fifos: FifoSet,
    /// In a lock only so that the whole can be shared between threads.
    input: Mutex<Option<Input>>,
    pumping: JoinSet<()>,
    outputs: JoinSet<()>,
    /// Outputs that are open so that the shim is not kept waiting, but not read.
    held: Vec<tokio::net::unix::pipe::Receiver>,
    activity: Activity,
}

impl ProcessIo {
    /// Makes what the shim will open. Outputs are open on this side before the shim is told of them.
    pub(crate) fn prepare(stdio: Stdio, id: &str) -> Result<Self> {
        match stdio {
            Stdio::Null => Ok(Self::default()),
            Stdio::Log(uri) => Ok(Self { stdout: uri.clone(), stderr: uri, ..Self::default() }),
            Stdio::Fifos { dir, terminal } => {
                let mut io = Self::named(FifoSet::create(&dir, id, true, terminal)?, terminal);
                // A shim may wait in opening an output until somebody reads.
                for path in [io.fifos.stdout(), io.fifos.stderr()].iter().filter(|path| !path.as_os_str().is_empty()) {
                    io.held.push(pump::open_output(path)?);
                }
                Ok(io)
            }
            Stdio::Streams(streams) => {
                let fifos = FifoSet::create(&streams.fifo_dir, id, streams.stdin.is_some(), streams.terminal)?;
                let mut io = Self::named(fifos, streams.terminal);
                io.connect(streams)?;
                Ok(io)
            }
        }
    }

    /// Connects to the FIFOs of a process that runs already.
    pub(crate) fn attach(fifos: FifoSet, streams: Streams) -> Result<Self> {
        let mut io = Self::named(fifos, streams.terminal);
        io.connect(streams)?;
        Ok(io)
    }

    /// Knows FIFOs of another client, to remove them with the process.
    pub(crate) fn attach_nothing(fifos: FifoSet) -> Self {
        Self { fifos, ..Self::default() }
    }

    fn named(fifos: FifoSet, terminal: bool) -> Self {
        Self {
            stdin: text(fifos.stdin()),
            stdout: text(fifos.stdout()),
            stderr: text(fifos.stderr()),
            terminal,
            fifos,
            ..Self::default()
        }
    }

    fn connect(&mut self, streams: Streams) -> Result<()> {
        let ends = [(self.stdout.clone(), streams.stdout), (self.stderr.clone(), streams.stderr)];
        for (path, output) in ends.into_iter().filter(|(path, _)| !path.is_empty()) {
            let receiver = pump::open_output(Path::new(&path))?;
            let output = output.unwrap_or_else(|| Box::new(tokio::io::sink()));
            self.outputs.spawn(pump::copy_output(receiver, output, self.activity.clone()));
        }
        self.input = Mutex::new(streams.stdin);
        Ok(())
    }

    /// Begins passing on input; `closed` runs once it has ended and the FIFO is closed here.
    pub(crate) fn start_input(&mut self, closed: impl Future<Output = ()> + Send + 'static) {
        if let Some(input) = self.input.get_mut().unwrap_or_else(PoisonError::into_inner).take()
            && !self.stdin.is_empty()
        {
            let path = PathBuf::from(&self.stdin);
            self.pumping.spawn(async move {
                pump::copy_input(input, path).await;
                closed.await;
            });
        }
    }

    /// Waits until all output has been passed on, or none has come for `idle`.
    pub(crate) async fn drain(&mut self, idle: Duration) {
        loop {
            let before = self.activity.moved();
            match tokio::time::timeout(idle, self.outputs.join_next()).await {
                Ok(None) => return,
                Ok(Some(_)) => {}
                Err(_) if self.activity.moved() == before && !self.activity.is_writing() => return,
                Err(_) => {}
            }
        }
    }

    /// Ends the copying and removes the FIFOs for good.
    pub(crate) fn remove(&mut self) {
        self.stop();
        self.fifos.remove();
    }

    /// Leaves the FIFOs for a later attach.
    pub(crate) fn keep(&mut self) {
        self.fifos.keep();
    }

    fn stop(&mut self) {
        self.pumping.abort_all();
        self.outputs.abort_all();
        self.held.clear();
    }
}

#[cfg(test)]
mod tests;
