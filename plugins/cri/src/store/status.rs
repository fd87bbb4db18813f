use std::{
    fs, io,
    io::Write as _,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use containerd_api_cri::v1::ContainerState;
use core_types::{Error, Result};
use serde::{Deserialize, Serialize};

/// Exit code of a container whose own is not known.
const UNKNOWN_EXIT: i32 = 255;

/// State of a container. What is kept on disk outlives the daemon; after a power cut a file that is missing or torn
/// means that the container ended with the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    /// Pid of its first process on the host; 0 when it does not run.
    pub(crate) pid: u32,
    /// When it was made, started and ended, in nanoseconds since 1970; 0 for not yet.
    pub(crate) created_at: i64,
    pub(crate) started_at: i64,
    pub(crate) finished_at: i64,
    /// Exit code, once it ended.
    pub(crate) exit_code: i32,
    /// A word that says why it is as it is, such as `OOMKilled`.
    pub(crate) reason: String,
    /// The same for people.
    pub(crate) message: String,
    /// Resources as last set: `LinuxContainerResources`, encoded.
    pub(crate) resources: Vec<u8>,
    /// What is being done with it now.
    #[serde(skip)]
    pub(crate) phase: Phase,
    /// Whether the out-of-memory killer hit it.
    #[serde(skip)]
    pub(crate) oom_killed: bool,
    /// Whether nothing is known of its process.
    #[serde(skip)]
    pub(crate) unknown: bool,
}

/// What is being done with a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// It is being started.
    Starting,
    /// It is being removed.
    Removing,
}

impl Status {
    /// The status of a container that was just made.
    pub(crate) fn created() -> Self {
        Self { created_at: now(), ..Self::default() }
    }

    /// Marks it as ended.
    pub(crate) fn end(&mut self, exit_code: i32, at: Option<SystemTime>) {
        self.pid = 0;
        self.unknown = false;
        self.exit_code = exit_code;
        self.finished_at = at.map_or_else(now, nanoseconds);
        if self.oom_killed && exit_code != 0 {
            self.reason = "OOMKilled".into();
        }
    }

    /// Marks it as ended in a way that nobody saw.
    pub(crate) fn end_unseen(&mut self) {
        self.end(UNKNOWN_EXIT, None);
        self.reason = "Unknown".into();
    }

    /// The CRI's state.
    pub(crate) fn state(&self) -> ContainerState {
        if self.unknown {
            ContainerState::ContainerUnknown
        } else if self.finished_at != 0 {
            ContainerState::ContainerExited
        } else if self.started_at != 0 {
            ContainerState::ContainerRunning
        } else {
            ContainerState::ContainerCreated
        }
    }

    /// Reads the file. None when there is none, or none that can be read as a status. Blocking.
    ///
    /// # Errors
    /// What reading says.
    pub(crate) fn load(path: &Path) -> Result<Option<Self>> {
        match fs::read(path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(format_args!("read {}", path.display()), error)),
        }
    }

    /// Writes the file by renaming. Not synced: what it says of a process does not outlive the machine. Blocking.
    ///
    /// # Errors
    /// What writing says.
    pub(crate) fn store(&self, path: &Path) -> Result<()> {
        let doing = || format!("write {}", path.display());
        let bytes = serde_json::to_vec(self).map_err(|error| Error::internal(error.to_string()))?;
        let temporary = path.with_extension("new");
        let write = || {
            fs::File::create(&temporary)?.write_all(&bytes)?;
            fs::rename(&temporary, path)
        };
        write().map_err(|error| Error::io(doing(), error))
    }
}

/// Now, in nanoseconds since 1970.
pub(crate) fn now() -> i64 {
    nanoseconds(SystemTime::now())
}

/// A time in nanoseconds since 1970.
pub(crate) fn nanoseconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_follow_from_times_and_files_come_back() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("status");
        assert_eq!(Status::load(&file).unwrap(), None);
        let mut status = Status::created();
        assert_eq!(status.state(), ContainerState::ContainerCreated);
        status.started_at = now();
        status.pid = 7;
        assert_eq!(status.state(), ContainerState::ContainerRunning);
        status.store(&file).unwrap();
        assert_eq!(Status::load(&file).unwrap(), Some(status.clone()));
        status.oom_killed = true;
        status.end(137, None);
        assert_eq!((status.state(), status.reason.as_str()), (ContainerState::ContainerExited, "OOMKilled"));
        assert_eq!(status.pid, 0);
        fs::write(&file, b"{\"pid\":").unwrap();
        assert_eq!(Status::load(&file).unwrap(), None, "a torn file is none");
    }

    #[test]
    fn an_unseen_end_has_a_code_and_a_reason() {
        let mut status = Status { unknown: true, ..Status::created() };
        assert_eq!(status.state(), ContainerState::ContainerUnknown);
        status.end_unseen();
        assert_eq!((status.exit_code, status.reason.as_str()), (255, "Unknown"));
    }
}
