//! Letting init go without a second process of the runtime.
//!
//! A container of runc's waits, after `create`, to open the FIFO `exec.fifo` in its state folder for writing. All that
//! `runc start` does to it is to read that FIFO and to remove it. Doing the same here saves a process that needs
//! longer to start than the rest of the start takes. Where anything is not as expected, nothing was done and the
//! runtime is asked.

use std::{
    fs::File,
    io::Read,
    os::fd::AsFd,
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, Mode, OFlags},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};

/// Where init waits.
const FIFO: &str = "exec.fifo";
/// What runc knows of the container.
const STATE: &str = "state.json";
/// How long init may take to notice that it is awaited, before the runtime is asked what is wrong. A frozen init
/// does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Lets the container go whose state is in the folder `state` and whose init is `pid`. False when init did not go,
/// and the runtime has to find out why.
pub(crate) fn release(state: &Path, pid: u32) -> bool {
    match wait_and_read(state, pid) {
        Ok(true) => {
            // Its being there is how runc tells a container that was not started.
            let _ = std::fs::remove_file(state.join(FIFO));
            true
        }
        Ok(false) | Err(_) => false,
    }
}

fn wait_and_read(state: &Path, pid: u32) -> Result<bool, Errno> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(false) };
    if !state.join(STATE).is_file() {
        return Ok(false);
    }
    let init = pidfd_open(pid, PidfdFlags::empty())?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Looked at before it is opened: opening lets init go on.
    let path = state.join(FIFO);
    if !FileType::from_raw_mode(rustix::fs::lstat(&path)?.st_mode).is_fifo() {
        return Ok(false);
    }
    let mut fifo = File::from(rustix::fs::open(&path, flags, Mode::empty())?);
    let end = Instant::now() + PATIENCE;
    loop {
        let Some(left) = end.checked_duration_since(Instant::now()) else { return Ok(false) };
        let limit = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        let mut waited = [PollFd::new(&fifo, PollFlags::IN), PollFd::from_borrowed_fd(init.as_fd(), PollFlags::IN)];
        match poll(&mut waited, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let (said, died) = (!waited[0].revents().is_empty(), !waited[1].revents().is_empty());
        if said {
            // Nothing to read: somebody else was faster.
            let mut word = [0; 16];
            match fifo.read(&mut word) {
                Ok(count) => return Ok(count > 0),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
        }
        if died {
            return Ok(false);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{fs::OpenOptions, io::Write, path::PathBuf, process::Command};

    use super::*;

    fn state(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("shim-release-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(STATE), "{}").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, dir.join(FIFO), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        dir
    }

    #[test]
    fn a_waiting_init_goes_on_and_the_fifo_goes() {
        let dir = state("waits");
        let path = dir.join(FIFO);
        let init =
            std::thread::spawn(move || OpenOptions::new().write(true).open(path).unwrap().write_all(b"0").unwrap());
        assert!(release(&dir, std::process::id()));
        init.join().unwrap();
        assert!(!dir.join(FIFO).exists());
        assert!(!release(&dir, std::process::id()));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_dead_init_is_left_to_the_runtime() {
        let dir = state("dead");
        let mut init = Command::new("true").spawn().unwrap();
        let began = Instant::now();
        assert!(!release(&dir, init.id()));
        assert!(began.elapsed() < PATIENCE);
        init.wait().unwrap();
        assert!(dir.join(FIFO).exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn other_files_are_left_alone() {
        let dir = state("file");
        std::fs::remove_file(dir.join(FIFO)).unwrap();
        std::fs::write(dir.join(FIFO), "0").unwrap();
        assert!(!release(&dir, std::process::id()));
        assert!(dir.join(FIFO).exists());
        std::fs::remove_file(dir.join(STATE)).unwrap();
        assert!(!release(&dir, std::process::id()));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
