use std::{
    fs::File,
    io::{self, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use core_types::{Error, Result};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    pipe::{PipeFlags, pipe_with},
};
use tokio::{net::unix::pipe, task::JoinHandle};

use crate::{
    console::Console,
    logger::{self, Logger},
    reaper::Reaper,
};

/// How long a deleted process's output is waited for, when something still holds it open.
const DRAIN: Duration = Duration::from_secs(10);
/// Output is moved in pieces of a pipe's atomic size, so the buffer is small.
pub(crate) const BUFFER: usize = 4096;

/// Where a process's standard streams lead: paths of FIFOs or files, `file://` or `binary://` for output;
/// empty is nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stdio {
    /// Standard input: a FIFO.
    pub stdin: String,
    /// Standard output.
    pub stdout: String,
    /// Standard error; a terminal has none.
    pub stderr: String,
    /// Whether the process has a terminal.
    pub terminal: bool,
}

/// Who a process is, for those that take its output, and who owns the streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    pub(crate) id: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The ends that a process gets.
#[derive(Debug, Default)]
pub(crate) struct ChildStreams {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
}

/// The ends that the shim keeps while a process exists.
///
/// Output FIFOs are given to the process itself, so output needs no copying; the shim holds their other ends, so
/// that the process does not notice when the daemon goes away and comes back. Input is copied from its FIFO,
/// which is opened only once the process exists: what waits for that, and then asks to close it, must not come
/// too early.
#[derive(Debug, Default)]
pub(crate) struct ProcessIo {
    stdin: Option<OwnedFd>,
    /// FIFO and pipe of an input that is not connected yet.
    unconnected: Option<(PathBuf, OwnedFd)>,
    input: Option<JoinHandle<()>>,
    kept: Vec<OwnedFd>,
    copies: Vec<JoinHandle<()>>,
    logger: Option<Logger>,
    pub(crate) console: Option<Console>,
}

/// Where output goes.
pub(crate) enum Sink {
    Nowhere,
    Pipe(pipe::Sender),
    File(File),
}

impl Sink {
    /// Writes everything, or gives up on a reader that is gone.
    pub(crate) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Nowhere => Ok(()),
            Self::File(file) => file.write_all(bytes),
            Self::Pipe(sender) => {
                while !bytes.is_empty() {
                    sender.writable().await?;
                    match sender.try_write(bytes) {
                        Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(())
            }
        }
    }
}

/// An output as a request names it.
enum Target {
    Nowhere,
    Fifo(PathBuf),
    File(PathBuf),
    Binary(logger::Program),
}

impl Target {
    fn parse(uri: &str) -> Result<Self> {
        if uri.is_empty() {
            return Ok(Self::Nowhere);
        }
        let Some((scheme, rest)) = uri.split_once("://") else {
            return Ok(Self::of_path(uri.into()));
        };
        match scheme {
            "fifo" => Ok(Self::of_path(logger::decode(rest).into())),
            "file" => Ok(Self::File(logger::decode(rest).into())),
            "binary" | "binary-v2" => Ok(Self::Binary(logger::Program::parse(rest, scheme == "binary-v2")?)),
            _ => Err(Error::invalid_argument(format!("unknown STDIO scheme {scheme}"))),
        }
    }

    fn of_path(path: PathBuf) -> Self {
        let fifo = path.metadata().map_or(true, |meta| meta.file_type().is_fifo());
        if fifo { Self::Fifo(path) } else { Self::File(path) }
    }
}

impl ProcessIo {
    /// Opens the streams of a process without a terminal.
    pub(crate) async fn open(stdio: &Stdio, owner: Owner<'_>, reaper: &Reaper) -> Result<(Self, ChildStreams)> {
        let mut io = Self::default();
        let mut child = ChildStreams::default();
        if !stdio.stdin.is_empty() {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)
                .map_err(|error| Error::io("make a pipe for standard input", error.into()))?;
            child.stdin = Some(reader);
            io.unconnected = Some((PathBuf::from(&stdio.stdin), writer));
        }
        let stdout = Target::parse(&stdio.stdout)?;
        if let Target::Binary(program) = stdout {
            let (logger, [out, err]) = Logger::start(program, owner, reaper).await?;
            io.logger = Some(logger);
            (child.stdout, child.stderr) = (Some(out), Some(err));
        } else {
            child.stdout = io.open_output(&stdout)?;
            // A file takes both streams, whatever standard error says.
            child.stderr = match &stdout {
                Target::File(_) if stdio.stdout.starts_with("file://") => io.open_output(&stdout)?,
                _ => io.open_output(&Target::parse(&stdio.stderr)?)?,
            };
        }
        if owner.uid != 0 || owner.gid != 0 {
            for fd in [&child.stdin, &child.stdout, &child.stderr].into_iter().flatten() {
                let uid = rustix::fs::Uid::from_raw(owner.uid);
                let gid = rustix::fs::Gid::from_raw(owner.gid);
                rustix::fs::fchown(fd, Some(uid), Some(gid))
                    .map_err(|error| Error::io("give the standard streams to their owner", error.into()))?;
            }
        }
        Ok((io, child))
    }

    /// Opens standard input, for a process that exists.
    pub(crate) fn connect_stdin(&mut self) -> Result<()> {
        let Some((path, writer)) = self.unconnected.take() else { return Ok(()) };
        let doing = |error| Error::io("copy standard input", error);
        let reader = pipe::Receiver::from_owned_fd(self.open_stdin(&path)?).map_err(doing)?;
        let writer = pipe::Sender::from_owned_fd(writer).map_err(doing)?;
        self.input = Some(tokio::spawn(copy(reader, Sink::Pipe(writer))));
        Ok(())
    }

    /// Opens the streams of a process with a terminal, whose output is then copied from `master`.
    pub(crate) async fn open_console(
        stdio: &Stdio,
        owner: Owner<'_>,
        reaper: &Reaper,
        master: OwnedFd,
    ) -> Result<Self> {
        let mut io = Self::default();
        let input = match stdio.stdin.as_str() {
            "" => None,
            path => {
                let reader = io.open_stdin(Path::new(path))?;
                Some(pipe::Receiver::from_owned_fd(reader).map_err(|error| Error::io("read standard input", error))?)
            }
        };
        let sink = match Target::parse(&stdio.stdout)? {
            Target::Nowhere => Sink::Nowhere,
            Target::File(path) => Sink::File(open_file(&path)?),
            Target::Fifo(path) => {
                let writer = io.open_fifo(&path)?;
                Sink::Pipe(sender(writer)?)
            }
            Target::Binary(program) => {
                let (logger, [out, _]) = Logger::start(program, owner, reaper).await?;
                io.logger = Some(logger);
                Sink::Pipe(sender(out)?)
            }
        };
        io.console = Some(Console::start(master, input, sink).map_err(|error| Error::io("copy the terminal", error))?);
        Ok(io)
    }

    /// The reading end of standard input. The shim keeps it from ending until it is told to close it.
    fn open_stdin(&mut self, path: &Path) -> Result<OwnedFd> {
        let reader = open(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        self.stdin = Some(open(path, OFlags::WRONLY | OFlags::NONBLOCK)?);
        Ok(reader)
    }

    /// The writing end of an output FIFO. The shim keeps a reading end, so that writers survive readers.
    fn open_fifo(&mut self, path: &Path) -> Result<OwnedFd> {
        self.kept.push(open(path, OFlags::RDONLY | OFlags::NONBLOCK)?);
        let writer = open(path, OFlags::WRONLY | OFlags::NONBLOCK)?;
        blocking(&writer)?;
        Ok(writer)
    }

    fn open_output(&mut self, target: &Target) -> Result<Option<OwnedFd>> {
        match target {
            Target::Nowhere => Ok(None),
            Target::Fifo(path) => Ok(Some(self.open_fifo(path)?)),
            Target::File(path) => {
                // Not given to the process, which could truncate it or read what others have written.
                let sink = Sink::File(open_file(path)?);
                let doing = |error| Error::io("copy output to a file", error);
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| doing(error.into()))?;
                let reader = pipe::Receiver::from_owned_fd(reader).map_err(doing)?;
                self.copies.push(tokio::spawn(copy(reader, sink)));
                Ok(Some(writer))
            }
            Target::Binary(_) => Err(Error::invalid_argument("a log program takes both streams: it belongs in stdout")),
        }
    }

    /// Lets standard input end once its other writers are gone.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for output that is still being copied, for a limited time, and closes everything.
    pub(crate) async fn finish(mut self) {
        self.stdin = None;
        if let Some(console) = self.console.take() {
            self.copies.extend(console.into_copy());
        }
        let end = tokio::time::Instant::now() + DRAIN;
        for mut copy in std::mem::take(&mut self.copies) {
            if tokio::time::timeout_at(end, &mut copy).await.is_err() {
                copy.abort();
            }
        }
        if let Some(logger) = self.logger.take() {
            logger.finish();
        }
    }
}

impl Drop for ProcessIo {
    fn drop(&mut self) {
        for copy in self.copies.iter().chain(&self.input) {
            copy.abort();
        }
    }
}

async fn copy(reader: pipe::Receiver, mut sink: Sink) {
    let mut buffer = vec![0; BUFFER];
    while reader.readable().await.is_ok() {
        match reader.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                let written = sink.write_all(buffer.get(..count).unwrap_or_default()).await;
                // A full disk must not stop the process: what cannot be written is dropped. A pipe without a
                // reader stays so.
                if written.is_err() && matches!(sink, Sink::Pipe(_)) {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOCTTY, rustix::fs::Mode::empty())
        .map_err(|error| Error::io(format_args!("open {}", path.display()), error.into()))
}

/// Clears O_NONBLOCK, which programs do not expect on their standard streams.
fn blocking(fd: &OwnedFd) -> Result<()> {
    let flags = fcntl_getfl(fd).map_err(io::Error::from)?;
    fcntl_setfl(fd, flags - OFlags::NONBLOCK).map_err(io::Error::from)?;
    Ok(())
}

fn open_file(path: &Path) -> Result<File> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)
            .map_err(|error| Error::io(format_args!("make the folder of {}", path.display()), error))?;
    }
    let mut options = File::options();
    options.append(true).create(true).mode(0o644);
    options.open(path).map_err(|error| Error::io(format_args!("open {}", path.display()), error))
}

fn sender(fd: OwnedFd) -> Result<pipe::Sender> {
    pipe::Sender::from_owned_fd(fd).map_err(|error| Error::io("write the terminal's output", error))
}

#[cfg(test)]
#[path = "stdio/tests.rs"]
mod tests;
