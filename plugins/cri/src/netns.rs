//! Network namespaces of pods, pinned by a bind mount so that they live without a process.

use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use core_sys::UserMappings;
use core_types::{Error, Result, ResultExt};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns, unshare},
};

use crate::layout;

/// Where network namespaces are pinned; tools such as `ip netns` look there.
pub(crate) const DIRECTORY: &str = "/var/run/netns";

/// Where a new network namespace will be pinned: `<directory>/cni-<uuid>`. Nothing is there yet, so that the path can be
/// noted down before.
///
/// # Errors
/// When there is no randomness.
pub(crate) fn new_path(directory: &Path) -> Result<PathBuf> {
    let uuid = crate::names::new_id()?;
    let uuid = [&uuid[..8], &uuid[8..12], &uuid[12..16], &uuid[16..20], &uuid[20..32]].join("-");
    Ok(directory.join(format!("cni-{uuid}")))
}

/// Makes a network namespace and pins it at `path`. Blocking.
///
/// # Errors
/// PermissionDenied and what the kernel says; nothing is left then.
pub(crate) fn create(path: &Path) -> Result<()> {
    pin(path, |target| {
        // A namespace belongs to the thread that leaves the old one, so a thread ends with this work.
        std::thread::scope(|scope| {
            let worker = std::thread::Builder::new().name("netns".into()).spawn_scoped(scope, || {
                unshare(CloneFlags::CLONE_NEWNET)?;
                bind("/proc/thread-self/ns/net", target)
            })?;
            worker.join().unwrap_or_else(|_| Err(io::Error::other("the thread broke off")))
        })
    })
}

/// The same, owned by a new user namespace with these ids, which is pinned as `user`. Blocking.
///
/// # Errors
/// PermissionDenied and what the kernel says; nothing is left then.
pub(crate) fn create_owned(path: &Path, mappings: &UserMappings, user: &Path) -> Result<()> {
    let made = pin(path, |target| {
        fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o444).open(user)?;
        core_sys::with_owned_network_namespace(mappings, |pid| {
            bind(&format!("/proc/{pid}/ns/user"), user)?;
            bind(&format!("/proc/{pid}/ns/net"), target)
        })
    });
    if made.is_err() {
        let _ = remove(user);
    }
    made
}

fn bind(source: &str, target: &Path) -> io::Result<()> {
    Ok(mount(Some(source), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)?)
}

fn pin(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> Result<()> {
    let doing = || format!("make network namespace {}", path.display());
    if let Some(directory) = path.parent() {
        layout::make_directory(directory, 0o755)?;
    }
    let open = fs::OpenOptions::new().write(true).create_new(true).mode(0o444).open(path);
    open.map_err(|error| Error::io(doing(), error))?;
    if let Err(error) = make(path) {
        let _ = fs::remove_file(path);
        return Err(Error::io(doing(), error));
    }
    Ok(())
}

/// Unpins a namespace; it ends with its last process. One that is gone is no error. Blocking.
///
/// # Errors
/// When it stays.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let doing = || format!("remove network namespace {}", path.display());
    match umount2(path, MntFlags::MNT_DETACH) {
        // EINVAL: the file is there and nothing is mounted on it.
        Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT) => {}
        Err(error) => return Err(Error::io(doing(), error.into())),
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io(doing(), error)),
        _ => Ok(()),
    }
}

/// Moves the calling thread into a pinned network namespace, for as long as it lives.
///
/// # Errors
/// NotFound when it is gone, and what the kernel says.
pub(crate) fn enter(path: &Path) -> Result<()> {
    let doing = || format!("enter network namespace {}", path.display());
    let file = fs::File::open(path).map_err(|error| Error::io(doing(), error))?;
    setns(&file, CloneFlags::CLONE_NEWNET).map_err(|error| Error::io(doing(), error.into()))
}

/// Whether a pinned namespace is there: a file of the kernel's namespace file system.
pub(crate) fn exists(path: &Path) -> bool {
    const NSFS: i64 = 0x6e73_6673;
    nix::sys::statfs::statfs(path).is_ok_and(|stat| stat.filesystem_type().0 == NSFS)
}

/// [`remove`] on the blocking pool.
pub(crate) async fn removed(path: PathBuf) -> Result<()> {
    crate::blocking(move || remove(&path)).await.doing("give the network namespace back")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_can_belong_to_a_user_namespace_that_is_pinned_too() {
        if core_sys::private_mount_namespace().is_err() {
            eprintln!("skipped: no mount namespace of its own");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let range = core_sys::IdRange { inside: 0, outside: 100_000, length: 65_536 };
        let mappings = UserMappings { uids: vec![range], gids: vec![range] };
        let user = directory.path().join("user");
        let network = new_path(&directory.path().join("net")).unwrap();
        match create_owned(&network, &mappings, &user) {
            Ok(()) => {}
            Err(error) if error.kind() == core_types::ErrorKind::PermissionDenied => {
                eprintln!("skipped: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(exists(&network) && exists(&user));
        remove(&network).unwrap();
        remove(&user).unwrap();
    }

    #[test]
    fn a_namespace_lives_without_a_process_and_goes_for_good() {
        if core_sys::private_mount_namespace().is_err() {
            eprintln!("skipped: no mount namespace of its own");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = new_path(directory.path()).unwrap();
        create(&path).unwrap();
        assert!(exists(&path));
        let ours = fs::metadata("/proc/self/ns/net").unwrap();
        let made = fs::metadata(&path).unwrap();
        assert_ne!(std::os::unix::fs::MetadataExt::ino(&ours), std::os::unix::fs::MetadataExt::ino(&made));
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(!exists(&path) && !path.exists());
    }
}
