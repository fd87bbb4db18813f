use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe,
};

use super::{Input, Output};
use crate::{Error, Result};

/// Bytes moved at once.
const BUFFER: usize = 32 * 1024;
/// How often it is looked whether somebody reads a FIFO: at first, and at most.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LAST_LOOK: Duration = Duration::from_millis(100);

/// Whether output still flows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activity(Arc<State>);

#[derive(Debug, Default)]
struct State {
    moved: AtomicU64,
    writing: AtomicBool,
}

impl Activity {
    /// Pieces of output seen so far.
    pub(crate) fn moved(&self) -> u64 {
        self.0.moved.load(Ordering::Relaxed)
    }

    /// Whether a piece is just being written, perhaps to somebody slow.
    pub(crate) fn is_writing(&self) -> bool {
        self.0.writing.load(Ordering::Relaxed)
    }
}

/// Opens the reading end without waiting for a writer. Until there has been a writer, the end of file is not
/// seen, since the kernel reports the FIFO as not ready.
pub(super) fn open_output(path: &Path) -> Result<pipe::Receiver> {
    pipe::OpenOptions::new()
        .open_receiver(path)
        .map_err(|error| Error::io(format!("open FIFO {}", path.display()), error))
}

/// Passes output on until the last writer has closed the FIFO. If `output` can take no more, the rest is read
/// and thrown away, so that the process does not hang.
pub(super) async fn copy_output(mut from: pipe::Receiver, mut output: Output, activity: Activity) {
    let mut buffer = vec![0; BUFFER];
    let mut broken = false;
    loop {
        let count = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        activity.0.moved.fetch_add(1, Ordering::Relaxed);
        if broken {
            continue;
        }
        activity.0.writing.store(true, Ordering::Relaxed);
        let mut written = output.write_all(&buffer[..count]).await;
        if written.is_ok() {
            written = output.flush().await;
        }
        broken = written.is_err();
        activity.0.writing.store(false, Ordering::Relaxed);
    }
    let _ = output.shutdown().await;
}

/// Passes input on until it ends or nobody reads any more, then closes the FIFO.
pub(super) async fn copy_input(mut input: Input, path: PathBuf) {
    let Some(mut to) = open_input(&path).await else { return };
    let mut buffer = vec![0; BUFFER];
    loop {
        match input.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                if to.write_all(&buffer[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Opens the writing end once somebody reads; `None` when the FIFO is gone. Opened earlier, bytes written and
/// closed before the reader comes would be lost.
async fn open_input(path: &Path) -> Option<pipe::Sender> {
    let mut pause = FIRST_LOOK;
    loop {
        match pipe::OpenOptions::new().open_sender(path) {
            Ok(sender) => return Some(sender),
            Err(error) if error.raw_os_error() == Some(nix::libc::ENXIO) => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LAST_LOOK);
            }
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "input is not connected");
                return None;
            }
        }
    }
}
