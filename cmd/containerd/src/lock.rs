//! The lock on the root directory: one daemon, one set of data.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use anyhow::{Context, bail};

/// Name of the lock file below the root directory.
const NAME: &str = "containerd.lock";

/// The lock; the kernel takes it back when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct RootLock {
    _file: File,
}

/// Takes the lock of `root`, which exists.
///
/// # Errors
/// When another daemon has it; its pid is named.
pub(crate) fn take(root: &Path) -> anyhow::Result<RootLock> {
    let path = root.join(NAME);
    let mut options = OpenOptions::new();
    let mut file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            let pid = if pid.trim().is_empty() { "unknown" } else { pid.trim() };
            bail!("another containerd is running on {} (pid {pid}); stop it, or use another --root", root.display());
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(|| format!("lock {}", path.display())),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).context("write the lock file")?;
    Ok(RootLock { _file: file })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_is_told_who_has_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let lock = take(dir.path()).unwrap();
        let message = take(dir.path()).unwrap_err().to_string();
        assert!(message.contains("another containerd is running"), "{message}");
        assert!(message.contains(&format!("pid {}", std::process::id())), "{message}");
        drop(lock);
        take(dir.path()).unwrap();
    }
}
