use std::{
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use core_types::{Error, Result};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
    termios::{Winsize, tcsetwinsize},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::{UnixListener, unix::pipe},
    task::JoinHandle,
};

use crate::stdio::{BUFFER, Sink};

/// How long the runtime may take to hand the terminal over once it is done.
const RECEIVE: Duration = Duration::from_secs(30);

/// The socket on which the runtime hands over the master side of a terminal.
#[derive(Debug)]
pub(crate) struct ConsoleSocket {
    listener: UnixListener,
    dir: PathBuf,
}

impl Drop for ConsoleSocket {
    fn drop(&mut self) {
        // An empty folder in the temporary directory does no harm.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl ConsoleSocket {
    /// A socket in a folder that nobody else can enter. Bundles lie too deep for socket paths.
    pub(crate) fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let doing = |error| Error::io("make the console socket", error);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("shim-pty-{}-{number}", std::process::id()));
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&dir).map_err(doing)?;
        match UnixListener::bind(dir.join("s")) {
            Ok(listener) => Ok(Self { listener, dir }),
            Err(error) => {
                let _ = std::fs::remove_dir(&dir);
                Err(doing(error))
            }
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        Path::new(&self.dir).join("s")
    }

    /// Waits for the terminal.
    pub(crate) async fn receive(self) -> Result<OwnedFd> {
        let receive = async {
            let (stream, _) = self.listener.accept().await?;
            stream
                .async_io(Interest::READABLE, || receive_fd(stream.as_fd()))
                .await?
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the runtime sent no terminal"))
        };
        match tokio::time::timeout(RECEIVE, receive).await {
            Ok(received) => received.map_err(|error| Error::io("receive the terminal", error)),
            Err(_) => Err(Error::deadline_exceeded(format!("the runtime sent no terminal within {RECEIVE:?}"))),
        }
    }
}

fn receive_fd(socket: std::os::fd::BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok(fds.next().and_then(|mut fds| fds.next()))
}

/// The master side of a process's terminal.
#[derive(Debug)]
pub(crate) struct Console {
    master: Arc<AsyncFd<OwnedFd>>,
    output: Option<JoinHandle<()>>,
    input: Option<JoinHandle<()>>,
}

impl Drop for Console {
    fn drop(&mut self) {
        for task in [&self.input, &self.output].into_iter().flatten() {
            task.abort();
        }
    }
}

impl Console {
    /// Copies between a terminal and its streams until nobody has the other side open any more.
    pub(crate) fn start(master: OwnedFd, input: Option<pipe::Receiver>, sink: Sink) -> io::Result<Self> {
        let flags = fcntl_getfl(&master)?;
        fcntl_setfl(&master, flags | OFlags::NONBLOCK)?;
        let master = Arc::new(crate::poll::watched(master)?);
        let output = Some(tokio::spawn(copy_out(master.clone(), sink)));
        let input = input.map(|input| tokio::spawn(copy_in(input, master.clone())));
        Ok(Self { master, output, input })
    }

    /// Sets the terminal's size.
    pub(crate) fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(self.master.get_ref(), size)?)
    }

    /// Stops the input; what is left is the copy of the output.
    pub(crate) fn into_copy(mut self) -> Option<JoinHandle<()>> {
        self.output.take()
    }
}

async fn copy_out(master: Arc<AsyncFd<OwnedFd>>, mut sink: Sink) {
    let mut buffer = vec![0; BUFFER];
    loop {
        // EIO says that the last of the other side was closed.
        let read = master.async_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd, &mut buffer)?)).await;
        let Ok(count @ 1..) = read else { return };
        // A reader that is gone must not stop the process.
        let _ = sink.write_all(buffer.get(..count).unwrap_or_default()).await;
    }
}

async fn copy_in(input: pipe::Receiver, master: Arc<AsyncFd<OwnedFd>>) {
    let mut buffer = vec![0; BUFFER];
    while input.readable().await.is_ok() {
        let count = match input.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => return,
        };
        let mut bytes = buffer.get(..count).unwrap_or_default();
        while !bytes.is_empty() {
            let written = master.async_io(Interest::WRITABLE, |fd| Ok(rustix::io::write(fd, bytes)?)).await;
            let Ok(count) = written else { return };
            bytes = bytes.get(count..).unwrap_or_default();
        }
    }
}
