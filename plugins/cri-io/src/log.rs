//! The log file of a container.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use core_types::{Error, Result};
use rustix::fs::OFlags;

/// The file that the lines of both outputs go to, or nothing.
///
/// Every write is of whole lines, and the file is only changed between two writes: a line is never torn between
/// two files. When the disk is full, what cannot be written is dropped, and said once.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    file: Option<File>,
    path: PathBuf,
    /// The rest of a line whose start is in the file already, and how long that start is.
    torn: Vec<u8>,
    torn_start: u64,
    failing: bool,
    lost: u64,
}

impl Log {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on in another file, or nowhere. The current one stays when the other cannot be opened.
    pub(crate) fn switch(&self, path: Option<&Path>) -> Result<()> {
        let file = match path {
            Some(path) => {
                Some(open(path).map_err(|error| Error::io(format_args!("open the log {}", path.display()), error))?)
            }
            None => None,
        };
        let mut state = self.state();
        state.leave();
        state.file = file;
        state.path = path.map(Path::to_path_buf).unwrap_or_default();
        Ok(())
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state().file.is_some()
    }

    /// Writes whole lines.
    pub(crate) fn write(&self, lines: &[u8]) {
        if !lines.is_empty() {
            self.state().write(lines);
        }
    }
}

impl State {
    fn write(&mut self, lines: &[u8]) {
        let Some(file) = &mut self.file else { return };
        let torn = std::mem::take(&mut self.torn);
        let (done, failed) = write_most(file, &torn);
        self.torn_start += done as u64;
        if let Some(error) = failed {
            self.torn = torn.get(done..).unwrap_or_default().to_vec();
            return self.failed(lines.len(), &error);
        }
        let (done, failed) = write_most(file, lines);
        match failed {
            None => {
                self.torn_start = 0;
                self.recovered();
            }
            Some(error) => {
                let (written, rest) = lines.split_at_checked(done).unwrap_or((lines, &[]));
                let start = written.len() - memchr::memrchr(b'\n', written).map_or(0, |at| at + 1);
                let end = memchr::memchr(b'\n', rest).filter(|_| start > 0).map_or(0, |at| at + 1);
                self.torn_start = start as u64;
                self.torn = rest.get(..end).unwrap_or_default().to_vec();
                self.failed(rest.len() - end, &error);
            }
        }
    }

    fn failed(&mut self, lost: usize, error: &io::Error) {
        self.lost += lost as u64;
        if !std::mem::replace(&mut self.failing, true) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "a log cannot be written; output is dropped until it can");
        }
    }

    fn recovered(&mut self) {
        if std::mem::take(&mut self.failing) {
            let lost = std::mem::take(&mut self.lost);
            tracing::info!(path = %self.path.display(), lost, "a log can be written again; bytes were dropped");
        }
    }

    /// Completes a line that was written in part, or takes back its start.
    fn leave(&mut self) {
        let torn = std::mem::take(&mut self.torn);
        let Some(file) = &mut self.file else { return };
        if torn.is_empty() {
            return;
        }
        let (done, failed) = write_most(file, &torn);
        let start = std::mem::take(&mut self.torn_start) + done as u64;
        if let Some(error) = failed {
            let cut = file.metadata().and_then(|meta| file.set_len(meta.len().saturating_sub(start)));
            let cut = cut.map_or_else(|error| error.to_string(), |()| "its start was removed".into());
            tracing::warn!(path = %self.path.display(), %error, cut, "the last line of a log could not be completed");
        }
    }
}

/// Writes as much as possible: how much that was, and why not all.
fn write_most(file: &mut File, bytes: &[u8]) -> (usize, Option<io::Error>) {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match file.write(rest) {
            Ok(0) => return (done, Some(io::ErrorKind::WriteZero.into())),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (done, Some(error)),
        }
    }
    (done, None)
}

/// Opens a log to be continued. A line that a killed daemon has left unfinished is ended.
fn open(path: &Path) -> io::Result<File> {
    // Not blocking, for who puts a FIFO in the place.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o640).custom_flags(i32::from_ne_bytes(flags.to_ne_bytes()));
    let mut file = options.open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    if meta.len() > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        if file.read(&mut last)? == 1 && last != *b"\n" {
            // On a full disk it stays as it is.
            let _ = file.write(b"\n");
        }
    }
    Ok(file)
}

#[cfg(test)]
#[path = "log/tests.rs"]
mod tests;
