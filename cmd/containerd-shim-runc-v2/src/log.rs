use std::{
    fmt::Display,
    fs::File,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::fs::OFlags;

/// The log: a FIFO in the bundle that the daemon reads. Lines are dropped rather than waited for when nobody
/// reads them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Option<Arc<Mutex<File>>>);

impl Log {
    /// Opens the FIFO, if the daemon has made one.
    pub(crate) fn open(path: &Path) -> Self {
        // Both ways, so that opening does not wait and writing never meets a broken pipe.
        let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or_default();
        let file = File::options().read(true).write(true).custom_flags(flags).open(path);
        Self(file.ok().map(|file| Arc::new(Mutex::new(file))))
    }

    /// Writes a warning.
    pub(crate) fn warn(&self, message: impl Display) {
        let Some(file) = &self.0 else { return };
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = format!("{}.{:03}", time.as_secs(), time.subsec_millis());
        let line = format!("time={time} level=warning msg={:?} shim={}\n", message.to_string(), std::process::id());
        let _ = file.lock().unwrap_or_else(PoisonError::into_inner).write(line.as_bytes());
    }
}
