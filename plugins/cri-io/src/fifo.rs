//! The FIFOs between the daemon and the shim, and the daemon's ends of them.

use std::{
    fs::DirBuilder,
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, FileTypeExt},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use core_runtime_v2::Io;
use core_types::{Error, Result};
use rustix::{
    fs::{FileType, Mode, OFlags},
    io::Errno,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::watch,
};

/// Size asked for the buffer of an output FIFO. The kernel may refuse it.
const PIPE_SIZE: usize = 1 << 20;

/// Paths of a process's FIFOs.
#[derive(Debug)]
pub(crate) struct Fifos {
    directory: PathBuf,
    io: Io,
    /// Whether the directory goes when this is dropped.
    pub(crate) temporary: bool,
}

impl Drop for Fifos {
    fn drop(&mut self) {
        if self.temporary {
            self.remove();
        }
    }
}

impl Fifos {
    fn named(directory: &Path, id: &str, stdin: bool, tty: bool) -> Result<Self> {
        if id.is_empty() || id.contains(['/', '\0']) {
            return Err(Error::invalid_argument(format!("{id:?} cannot be part of a file name")));
        }
        let path = |stream: &str| match directory.join(format!("{id}-{stream}")).into_os_string().into_string() {
            Ok(path) => Ok(path),
            Err(path) => Err(Error::invalid_argument(format!("{} is not UTF-8", path.display()))),
        };
        let io = Io {
            stdin: if stdin { path("stdin")? } else { String::new() },
            stdout: path("stdout")?,
            stderr: if tty { String::new() } else { path("stderr")? },
            terminal: tty,
        };
        Ok(Self { directory: directory.into(), io, temporary: false })
    }

    /// Makes FIFOs in `directory`, which is made too. Leftovers of the same names are replaced.
    pub(crate) fn create(directory: &Path, id: &str, stdin: bool, tty: bool) -> Result<Self> {
        let mut fifos = Self::named(directory, id, stdin, tty)?;
        fifos.temporary = true;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| Error::io(format_args!("make {}", directory.display()), error))?;
        for path in fifos.paths() {
            if let Err(Errno::EXIST) = make(path) {
                std::fs::remove_file(path).map_err(|error| Error::io(format_args!("replace {path}"), error))?;
            }
            match make(path) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(Error::io(format_args!("make the FIFO {path}"), error.into())),
            }
        }
        Ok(fifos)
    }

    /// FIFOs that [`Self::create`] or a daemon before made: in `directory` or in a directory in it.
    pub(crate) fn find(directory: &Path, id: &str, stdin: bool, tty: bool) -> Result<Self> {
        let here = Self::named(directory, id, stdin, tty)?;
        if Path::new(&here.io.stdout).exists() {
            return Ok(here);
        }
        let entries = std::fs::read_dir(directory)
            .map_err(|error| Error::io(format_args!("look for FIFOs in {}", directory.display()), error))?;
        for entry in entries.flatten() {
            let fifos = Self::named(&entry.path(), id, stdin, tty)?;
            if Path::new(&fifos.io.stdout).exists() {
                return Ok(Self { directory: directory.into(), io: fifos.io.clone(), temporary: false });
            }
        }
        Err(Error::not_found(format!("no FIFOs of {id} in {}", directory.display())))
    }

    /// FIFOs that are known by their paths.
    pub(crate) fn at(io: &Io) -> Result<Self> {
        let directory = Path::new(&io.stdout)
            .parent()
            .filter(|directory| directory.is_absolute())
            .ok_or_else(|| Error::invalid_argument(format!("{:?} is not the path of a FIFO", io.stdout)))?;
        Ok(Self { directory: directory.into(), io: io.clone(), temporary: false })
    }

    pub(crate) fn io(&self) -> &Io {
        &self.io
    }

    fn paths(&self) -> impl Iterator<Item = &str> {
        [&self.io.stdin, &self.io.stdout, &self.io.stderr]
            .into_iter()
            .map(String::as_str)
            .filter(|path| !path.is_empty())
    }

    /// Opens the daemon's ends. Must be called inside a runtime.
    pub(crate) fn open(&self) -> Result<Ends> {
        let output = |path: &str| match path {
            "" => Ok(None),
            path => {
                Output::open(path).map(Some).map_err(|error| Error::io(format_args!("open the FIFO {path}"), error))
            }
        };
        let stdin = match self.io.stdin.as_str() {
            "" => None,
            path => {
                let fd = open(path, OFlags::RDWR).and_then(|fd| watched(fd, Interest::WRITABLE));
                Some(fd.map_err(|error| Error::io(format_args!("open the FIFO {path}"), error))?)
            }
        };
        Ok(Ends { stdin: Stdin::new(stdin), outputs: [output(&self.io.stdout)?, output(&self.io.stderr)?] })
    }

    /// Removes the FIFOs and their directory. What else is in the directory stays, and it then too.
    pub(crate) fn remove(&self) {
        for path in self.paths() {
            if let Err(error) = std::fs::remove_file(path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(path, %error, "a FIFO cannot be removed");
            }
        }
        let inner = Path::new(&self.io.stdout).parent().filter(|inner| *inner != self.directory);
        for directory in inner.into_iter().chain([self.directory.as_path()]) {
            match std::fs::remove_dir(directory) {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => {}
                Err(error) => tracing::warn!(path = %directory.display(), %error, "a directory cannot be removed"),
            }
        }
    }
}

/// The daemon's ends of a process's FIFOs: input, then output and error output.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) stdin: Stdin,
    pub(crate) outputs: [Option<Output>; 2],
}

fn make(path: &str) -> Result<(), Errno> {
    rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
}

fn open(path: &str, access: OFlags) -> io::Result<OwnedFd> {
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY;
    let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a FIFO"));
    }
    Ok(file.into())
}

/// Lets the event loop watch a descriptor.
///
/// tokio deprecates this constructor for types that may close or change the descriptor behind its back; one that is
/// owned is not.
#[allow(deprecated)]
fn watched(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}

/// The reading end of an output.
///
/// It does not become readable before a writer has come, so a process that has yet to start is not mistaken for one
/// that has ended.
#[derive(Debug)]
pub(crate) struct Output(AsyncFd<OwnedFd>);

impl Output {
    fn open(path: &str) -> io::Result<Self> {
        let fd = open(path, OFlags::RDONLY)?;
        // A wish: the kernel limits what all pipes of a user may hold.
        let _ = rustix::pipe::fcntl_setpipe_size(&fd, PIPE_SIZE);
        watched(fd, Interest::READABLE).map(Self)
    }

    /// Waits until something may have come since the last call: bytes or the end.
    pub(crate) async fn ready(&self) -> io::Result<()> {
        // Cleared before reading, so what comes while it is read is noticed.
        self.0.readable().await?.clear_ready();
        Ok(())
    }

    /// Reads what is there: None when there is nothing now, zero when there is no writer.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::retry_on_intr(|| rustix::io::read(self.0.get_ref(), &mut *buffer)) {
            Ok(count) => Ok(Some(count)),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The writing end of standard input, until it is closed.
#[derive(Debug)]
pub(crate) struct Stdin {
    end: Mutex<Option<Arc<AsyncFd<OwnedFd>>>>,
    closed: watch::Sender<bool>,
}

impl Stdin {
    fn new(end: Option<AsyncFd<OwnedFd>>) -> Self {
        Self { closed: watch::Sender::new(end.is_none()), end: Mutex::new(end.map(Arc::new)) }
    }

    fn end(&self) -> Option<Arc<AsyncFd<OwnedFd>>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.end().is_some()
    }

    /// Writes everything. BrokenPipe when it was closed.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        let mut closed = self.closed.subscribe();
        let end = self.end().ok_or(io::ErrorKind::BrokenPipe)?;
        while !bytes.is_empty() {
            let mut guard = tokio::select! {
                _ = closed.wait_for(|closed| *closed) => return Err(io::ErrorKind::BrokenPipe.into()),
                guard = end.writable() => guard?,
            };
            match guard.try_io(|end| Ok(rustix::io::write(end.get_ref(), bytes)?)) {
                Ok(Ok(count)) => bytes = bytes.get(count..).unwrap_or_default(),
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Lets the process see the end, once the shim has closed its end too.
    pub(crate) fn close(&self) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.closed.send_replace(true);
    }
}
