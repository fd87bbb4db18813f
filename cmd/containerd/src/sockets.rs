//! Listening on Unix sockets that outlive their daemon as files.

use std::{
    fs,
    io::ErrorKind,
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt},
        net::{UnixListener, UnixStream},
    },
    path::Path,
};

use anyhow::{Context, bail};

use crate::builtins::Listener;

/// Who may connect: owner and group.
const MODE: u32 = 0o660;
/// The longest path of a socket, in bytes (`sun_path` less its end).
const LONGEST: usize = 107;

/// Listens. A socket file of a daemon that is gone is replaced; one that somebody listens on is not.
///
/// # Errors
/// What keeps it from listening.
pub(crate) fn listen(listener: &Listener) -> anyhow::Result<UnixListener> {
    let address = listener.address.strip_prefix("unix://").unwrap_or(&listener.address);
    let path = Path::new(address);
    if !path.is_absolute() {
        bail!("the address {address:?} is no absolute path");
    }
    if address.len() > LONGEST {
        bail!("the address {address:?} is longer than {LONGEST} bytes, the limit of socket paths");
    }
    if let Some(parent) = path.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(parent)
            .with_context(|| format!("make directory {}", parent.display()))?;
    }
    remove_stale(path)?;
    // Nobody may connect between binding and changing the mode; nothing else makes files at this point.
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o777 & !MODE));
    let bound = UnixListener::bind(path);
    rustix::process::umask(mask);
    let bound = bound.with_context(|| format!("listen on {address}"))?;
    std::os::unix::fs::chown(path, Some(listener.uid), Some(listener.gid))
        .with_context(|| format!("give {address} to {}:{}", listener.uid, listener.gid))?;
    bound.set_nonblocking(true).with_context(|| format!("listen on {address}"))?;
    Ok(bound)
}

fn remove_stale(path: &Path) -> anyhow::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("look at {}", path.display())),
        Ok(found) if !found.file_type().is_socket() => {
            bail!("{} is in the way and is no socket; remove it", path.display());
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => bail!("another process listens on {}; stop it, or use another --address", path.display()),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path).with_context(|| format!("remove the stale socket {}", path.display()))
        }
        Err(error) => Err(error).with_context(|| format!("see whether somebody listens on {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn at(path: &Path) -> Listener {
        let owner = fs::metadata("/proc/self").unwrap();
        Listener { address: path.to_str().unwrap().into(), uid: owner.uid(), gid: owner.gid() }
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/c.sock");
        let first = listen(&at(&path)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        let error = listen(&at(&path)).unwrap_err().to_string();
        assert!(error.contains("another process listens"), "{error}");
        drop(first);
        let _second = listen(&at(&path)).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn a_file_in_the_way_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.sock");
        fs::write(&path, "mine").unwrap();
        assert!(listen(&at(&path)).unwrap_err().to_string().contains("no socket"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        assert!(listen(&at(Path::new("relative"))).is_err());
        assert!(listen(&at(&dir.path().join("x".repeat(120)))).is_err());
    }
}
