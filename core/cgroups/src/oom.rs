//! Waiting for out-of-memory kills.

use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    event::{EventfdFlags, eventfd},
    fs::inotify,
};

/// A descriptor that becomes readable when something changed about out-of-memory kills; how many there were
/// is then to be asked of [`Cgroup::oom_kills`](crate::Cgroup::oom_kills).
#[derive(Debug)]
pub struct OomWatch {
    notify: OwnedFd,
    // Version 1 delivers only while the control file is open.
    _control: Option<File>,
}

impl OomWatch {
    pub(crate) fn v1(dir: &Path) -> io::Result<Self> {
        let notify = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let control = File::open(dir.join("memory.oom_control"))?;
        let line = format!("{} {}", notify.as_raw_fd(), control.as_raw_fd());
        fs::write(dir.join("cgroup.event_control"), line)?;
        Ok(Self { notify, _control: Some(control) })
    }

    pub(crate) fn v2(dir: &Path) -> io::Result<Self> {
        let notify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        inotify::add_watch(&notify, dir.join("memory.events"), inotify::WatchFlags::MODIFY)?;
        Ok(Self { notify, _control: None })
    }

    /// Takes what made the descriptor readable. False when the cgroup is gone and nothing more will come.
    pub fn drain(&self) -> bool {
        let mut buffer = [0_u8; 1024];
        loop {
            match rustix::io::read(&self.notify, &mut buffer) {
                Ok(0) => return false,
                // The kernel removes an inotify watch together with its file (IN_IGNORED).
                Ok(length) => {
                    let mask = buffer.get(4..8).filter(|_| length >= 16).and_then(|mask| mask.try_into().ok());
                    if mask.is_some_and(|mask| u32::from_ne_bytes(mask) & IN_IGNORED != 0) {
                        return false;
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
    }
}

const IN_IGNORED: u32 = 0x8000;

impl AsFd for OomWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notify.as_fd()
    }
}

impl AsRawFd for OomWatch {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.notify.as_raw_fd()
    }
}
