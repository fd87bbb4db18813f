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
    pipe::{PipeFlags, fcntl_setpipe_size, pipe_with},
};
use tokio::{net::unix::pipe, sync::watch, task::JoinHandle};

use crate::{
    console::Console,
    logger::{self, Logger},
    reaper::Reaper,
};

/// How long a deleted process's output may take to be written, when nobody reads it.
const DRAIN: Duration = Duration::from_secs(10);
/// Output is moved in pieces of a pipe's atomic size, so the buffer is small.
pub(crate) const BUFFER: usize = 4096;

/// What a runtime may complain before anybody reads it: more than the longest command, which it may quote.
const COMPLAINT: usize = 1 << 20;
/// What the pipe holds from then on, as any other does.
const PIPE: usize = 1 << 16;

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
/// The FIFO of standard output is given to the process itself, so output needs no copying; the shim holds its
/// other end, so that the process does not notice when the daemon goes away and comes back. Standard error goes
/// through a pipe: the runtime has it before the process does, and complains on it when it fails. That is copied
/// only once the process exists, and otherwise becomes part of the error. Input is copied from its FIFO, which is
/// opened only then too: what waits for that, and then asks to close it, must not come too early.
#[derive(Debug, Default)]
pub(crate) struct ProcessIo {
    stdin: Option<OwnedFd>,
    /// FIFO and pipe of an input that is not connected yet.
    unconnected: Option<(PathBuf, OwnedFd)>,
    input: Option<JoinHandle<()>>,
    kept: Vec<OwnedFd>,
    /// Pipes whose copying has not begun, and where they lead.
    held_back: Vec<(pipe::Receiver, Sink)>,
    copies: Vec<JoinHandle<()>>,
    /// Told when the process has ended: then there is nothing to copy but what the pipes hold.
    ended: watch::Sender<bool>,
    logger: Option<Logger>,
    pub(crate) console: Option<Console>,
}

/// Where output goes.
#[derive(Debug)]
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
                _ => io.open_error(&Target::parse(&stdio.stderr)?)?,
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

    /// Begins to copy, for a process that exists.
    pub(crate) fn connect(&mut self) -> Result<()> {
        for (reader, sink) in self.held_back.drain(..) {
            // One that holds more than that already stays as it is.
            let _ = fcntl_setpipe_size(&reader, PIPE);
            self.copies.push(tokio::spawn(copy(reader, sink, self.ended.subscribe())));
        }
        let Some((path, writer)) = self.unconnected.take() else { return Ok(()) };
        let doing = |error| Error::io("copy standard input", error);
        let reader = pipe::Receiver::from_owned_fd(self.open_stdin(&path)?).map_err(doing)?;
        let writer = pipe::Sender::from_owned_fd(writer).map_err(doing)?;
        self.input = Some(tokio::spawn(copy(reader, Sink::Pipe(writer), watch::Sender::new(false).subscribe())));
        Ok(())
    }

    /// What is in the pipes of a process that came to nothing.
    pub(crate) fn complaint(&self) -> Option<String> {
        let mut bytes = Vec::new();
        for (reader, _) in &self.held_back {
            let mut buffer = vec![0; BUFFER];
            if let Ok(count) = rustix::io::read(reader, &mut buffer) {
                bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
            }
        }
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
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
                self.through_pipe(sink).map(Some)
            }
            Target::Binary(_) => Err(Error::invalid_argument("a log program takes both streams: it belongs in stdout")),
        }
    }

    /// As [`open_output`](Self::open_output), with a pipe in front of a FIFO.
    fn open_error(&mut self, target: &Target) -> Result<Option<OwnedFd>> {
        let Target::Fifo(path) = target else { return self.open_output(target) };
        let sink = Sink::Pipe(sender(self.open_fifo(path)?)?);
        self.through_pipe(sink).map(Some)
    }

    /// A pipe whose content goes to `sink` once the process exists.
    fn through_pipe(&mut self, sink: Sink) -> Result<OwnedFd> {
        let doing = |error| Error::io("make a pipe for output", error);
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| doing(error.into()))?;
        // Nobody reads it while the runtime runs. A machine that refuses this has a shorter limit.
        let _ = fcntl_setpipe_size(&writer, COMPLAINT);
        self.held_back.push((pipe::Receiver::from_owned_fd(reader).map_err(doing)?, sink));
        Ok(writer)
    }

    /// Lets standard input end once its other writers are gone.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for output that is still being copied, for a limited time, and closes everything.
    pub(crate) async fn finish(mut self) {
        self.stdin = None;
        self.ended.send_replace(true);
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

/// Copies until the pipe ends, or until it is empty after `ended` was told: others may hold it open for long, but
/// what the process itself wrote is in it by then.
async fn copy(reader: pipe::Receiver, mut sink: Sink, mut ended: watch::Receiver<bool>) {
    let mut buffer = Vec::new();
    let mut last = false;
    loop {
        if !last {
            tokio::select! {
                ready = reader.readable() => if ready.is_err() { return },
                told = async { ended.wait_for(|ended| *ended).await.is_ok() } => if told {
                    last = true;
                } else if reader.readable().await.is_err() {
                    // Nobody will tell: it ends with the pipe.
                    return;
                },
            }
        }
        // A process that writes nothing takes no memory.
        buffer.resize(BUFFER, 0);
        // At the end the pipe itself is asked: what the event loop knows may be older than the last bytes.
        let count = if last {
            rustix::io::read(&reader, &mut buffer).map_err(io::Error::from)
        } else {
            reader.try_read(&mut buffer)
        };
        match count {
            Ok(0) => return,
            Ok(count) => {
                let written = sink.write_all(buffer.get(..count).unwrap_or_default()).await;
                // A full disk must not stop the process: what cannot be written is dropped. A pipe without a
                // reader stays so.
                if written.is_err() && matches!(sink, Sink::Pipe(_)) {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !last => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
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
    pipe::Sender::from_owned_fd(fd).map_err(|error| Error::io("write output", error))
}

#[cfg(test)]
#[path = "stdio/tests.rs"]
mod tests;
