use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use crate::Exit;

/// The file in the bundle.
const FILE: &str = "exit.json";

/// How init ended, kept in the bundle until the exit is acknowledged by Delete: whoever cleans up after a
/// shim that died can still tell the true code.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ExitRecord {
    /// Init's process id.
    pub pid: u32,
    /// Exit code, or 128 and the signal.
    pub status: u32,
    /// Nanoseconds since 1970.
    pub exited_at: u64,
    /// Whether the kernel killed a process of the container for want of memory.
    pub oom_killed: bool,
}

impl ExitRecord {
    pub(crate) fn new(exit: &Exit, oom_killed: bool) -> Self {
        let since = exit.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let exited_at = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        Self { pid: exit.pid, status: exit.status, exited_at, oom_killed }
    }

    /// When init ended.
    pub fn time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.exited_at)
    }

    /// Reads the record of a bundle, if there is one that can be understood.
    pub fn read(bundle: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(bundle.join(FILE)).ok()?).ok()
    }

    /// Writes the record so that it is there wholly or not at all.
    pub(crate) fn write(&self, bundle: &Path) -> io::Result<()> {
        let temp = bundle.join(format!(".{FILE}"));
        let mut file = File::create(&temp)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        fs::rename(&temp, path(bundle))?;
        File::open(bundle)?.sync_all()
    }

    /// Forgets the record.
    pub(crate) fn remove(bundle: &Path) {
        // What is left of it goes with the bundle.
        let _ = fs::remove_file(path(bundle));
    }
}

fn path(bundle: &Path) -> PathBuf {
    bundle.join(FILE)
}
