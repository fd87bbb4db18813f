use std::{os::fd::OwnedFd, path::Path, thread, time::Duration};

use core_types::{Error, Result};
use rustix::{
    fs::{FsWord, Mode, OFlags},
    io::Errno,
    mount::UnmountFlags,
};

use crate::{Mount, mountinfo::mounts_below, perform::resolve};

/// Tries for a busy mount before it is detached instead.
const BUSY_TRIES: u32 = 5;
/// Mounts of one directory that are undone at most, against a process that mounts as fast as we unmount.
const STACK_LIMIT: usize = 4096;
/// `OVERLAYFS_SUPER_MAGIC`.
const OVERLAY: FsWord = 0x794c_7630;

/// Undoes the mounts that [`mount_all`](crate::mount_all) made, last first.
///
/// # Errors
/// The first failure; the others are tried nevertheless.
pub fn unmount_mounts(mounts: &[Mount], target: &Path) -> Result<()> {
    let mut result = Ok(());
    for mount in mounts.iter().rev() {
        let undone = match resolve(target, &mount.target) {
            Ok(place) if mount.target.is_empty() => unmount_all(place.path()),
            // By its descriptor's path the mount on top is meant, since the path was resolved through it.
            Ok(place) => match std::fs::read_link(place.path()) {
                Ok(path) => {
                    drop(place);
                    unmount_all(&path)
                }
                Err(error) => Err(error.into()),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error.into()),
        };
        result = result.and(undone);
    }
    result
}

/// Undoes every mount at `target` and below it. Not following a final symbolic link; a missing path and one
/// that is no mount point are fine. What stays busy is detached: it goes when its last user does.
///
/// # Errors
/// What `umount2(2)` says, other than the above. Never delete below `target` after an error.
pub fn unmount_all(target: &Path) -> Result<()> {
    for _ in 0..STACK_LIMIT {
        match unmount_top(target) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOENT) => return unmount_below(target),
            Err(Errno::BUSY) => {
                unmount_below(target)?;
                detach(target)?;
            }
            Err(error) => {
                return Err(Error::io(format_args!("unmount {}", target.display()), error.into()));
            }
        }
    }
    Err(Error::aborted(format!("unmount {}: more mounts appear than are undone", target.display())))
}

/// Does what [`unmount_all`] does to the root file system of a container that has ended. The last step of undoing an
/// overlay writes out the whole file system it is on, other programs' data too, which takes long on a busy disk. So
/// the mount is gone from the tree when this returns, and that step comes when the answer is dropped: on a thread of
/// its own, as it blocks. Other file systems are undone wholly, since devices below them may be waiting for that.
///
/// # Errors
/// As [`unmount_all`].
pub fn unmount_rootfs(target: &Path) -> Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::open(target, flags, Mode::empty()).ok();
    let held = held.filter(|fd| rustix::fs::fstatfs(fd).is_ok_and(|found| found.f_type == OVERLAY));
    if held.is_some() {
        // Held here, it would only be busy. Failing is for what follows to find out.
        let _ = rustix::mount::unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
    unmount_all(target)?;
    Ok(held)
}

/// Undoes the mounts strictly below `target`.
fn unmount_below(target: &Path) -> Result<()> {
    let Ok(target) = target.canonicalize() else {
        return Ok(());
    };
    for point in mounts_below(&target)? {
        if point != target {
            detach(&point)?;
        }
    }
    Ok(())
}

/// Undoes the topmost mount at `target`, softly if possible.
fn detach(target: &Path) -> Result<()> {
    let mut result = unmount_top(target);
    let mut pause = Duration::from_millis(2);
    for _ in 1..BUSY_TRIES {
        if result != Err(Errno::BUSY) {
            break;
        }
        thread::sleep(pause);
        pause *= 2;
        result = unmount_top(target);
    }
    if result == Err(Errno::BUSY) {
        tracing::debug!(target = %target.display(), "mount is busy: detached");
        result = rustix::mount::unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
    match result {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(error) => Err(Error::io(format_args!("unmount {}", target.display()), error.into())),
    }
}

fn unmount_top(target: &Path) -> Result<(), Errno> {
    loop {
        match rustix::mount::unmount(target, UnmountFlags::NOFOLLOW) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Undoes the mounts at `target` and removes the then empty directory. What is in it is never deleted: if
/// something is left there, it may be a mounted file system's.
///
/// # Errors
/// As [`unmount_all`]; FailedPrecondition when the directory is not empty.
pub fn remove_mount_point(target: &Path) -> Result<()> {
    unmount_all(target)?;
    match std::fs::remove_dir(target) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => Err(Error::failed_precondition(
            format!("{} is not empty after unmounting; look at it and remove it by hand", target.display()),
        )),
        Err(error) => Err(Error::io(format_args!("remove {}", target.display()), error)),
    }
}
