use std::{
    fs, io,
    os::unix::{
        fs::{DirBuilderExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

/// Where sockets are unless the daemon says otherwise.
const DIR: &str = "/run/containerd/s";

/// What became of asking for a socket.
pub(crate) enum Bound {
    /// It is ours to serve.
    New(UnixListener),
    /// A shim serves it already.
    Served,
}

/// The path of the socket of a pod: the same as containerd's, so that either finds the other's.
pub(crate) fn path(dir: Option<&str>, daemon: &str, namespace: &str, group: &str) -> PathBuf {
    // As Go's filepath.Join cleans it: no doubled and no trailing slashes.
    let joined: Vec<_> = [daemon, namespace, group].iter().flat_map(|part| part.split('/')).collect();
    let joined: Vec<_> = joined.into_iter().filter(|part| !part.is_empty() && *part != ".").collect();
    let rooted =
        [daemon, namespace, group].iter().find(|part| !part.is_empty()).is_some_and(|part| part.starts_with('/'));
    let name = format!("{}{}", if rooted { "/" } else { "" }, joined.join("/"));
    let digest = Sha256::digest(name.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Path::new(dir.filter(|dir| !dir.is_empty()).unwrap_or(DIR)).join(hex)
}

/// Listens on `path`, unless a living shim does; a socket that a dead one left is replaced.
pub(crate) fn bind(path: &Path) -> io::Result<Bound> {
    if let Some(dir) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if UnixStream::connect(path).is_ok() {
                return Ok(Bound::Served);
            }
            fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        other => other?,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(Bound::New(listener))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_gos() {
        let found = path(None, "/run/containerd/containerd.sock", "default", "c1");
        // echo -n /run/containerd/containerd.sock/default/c1 | sha256sum
        let digest = Sha256::digest(b"/run/containerd/containerd.sock/default/c1");
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, Path::new("/run/containerd/s").join(hex));
        assert_eq!(path(Some("/x"), "/a//b/", "n", "g"), path(Some("/x"), "/a/b", "n", "g"));
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_living_one_kept() {
        let dir = std::env::temp_dir().join(format!("shim-socket-{}", std::process::id()));
        let path = dir.join("s");
        let Ok(Bound::New(first)) = bind(&path) else { unreachable!() };
        assert!(matches!(bind(&path).unwrap(), Bound::Served));
        drop(first);
        assert!(matches!(bind(&path).unwrap(), Bound::New(_)));
        fs::remove_dir_all(dir).unwrap();
    }
}
