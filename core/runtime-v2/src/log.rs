//! The FIFO `log` in the bundle, through which shims without a log of their own speak to the daemon's log.

use std::path::Path;

use core_types::{Result, ResultExt};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

/// The longest line taken as one.
const MAX_LINE: u64 = 16 * 1024;

/// Makes the FIFO if needed and copies what comes into the log, until aborted.
///
/// It is opened for reading and writing: neither side waits for the other, and it has no end.
///
/// # Errors
/// When it cannot be made or opened.
pub(crate) fn follow(bundle: &Path, id: &str) -> Result<tokio::task::AbortHandle> {
    let path = bundle.join("log");
    let mode = nix::sys::stat::Mode::S_IRWXU;
    match nix::unistd::mkfifo(&path, mode) {
        Ok(()) | Err(nix::errno::Errno::EEXIST) => {}
        Err(error) => return Err(std::io::Error::from(error)).doing(format_args!("make {}", path.display())),
    }
    let receiver = tokio::net::unix::pipe::OpenOptions::new()
        .read_write(true)
        .open_receiver(&path)
        .doing(format_args!("open {}", path.display()))?;
    let id = id.to_owned();
    let task = tokio::spawn(async move {
        let mut reader = BufReader::new(receiver);
        let mut line = Vec::new();
        loop {
            line.clear();
            match (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => tracing::info!(target: "shim", id, "{}", String::from_utf8_lossy(&line).trim_end()),
            }
        }
    });
    Ok(task.abort_handle())
}
