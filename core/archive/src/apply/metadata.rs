use std::{
    fs,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use rustix::{
    fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid, XattrFlags},
    io::Errno,
};

use super::{ledger::Times, place::Directory};
use crate::{Entry, Error, Result, Xattrs, error::shown};

/// With whose ids and which mode bits the kernel makes files for this process; what is right already is not set
/// again.
pub(super) struct Creator {
    uid: u32,
    gid: u32,
    umask: u32,
    in_user_namespace: bool,
}

impl Creator {
    pub(super) fn current() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            umask: umask().unwrap_or(0o7777),
            in_user_namespace: core_sys::in_user_namespace(),
        }
    }

    pub(super) fn in_user_namespace(&self) -> bool {
        self.in_user_namespace
    }

    /// Whether a file made in `directory` needs another owner.
    pub(super) fn needs_chown(&self, directory: &Directory, entry: &Entry) -> bool {
        entry.uid != self.uid || entry.gid != self.gid || directory.set_gid()
    }

    /// Whether a file made with the entry's mode needs it set again. A change of owner clears set-id bits.
    pub(super) fn needs_chmod(&self, entry: &Entry, chowned: bool) -> bool {
        entry.mode & self.umask != 0 || (chowned && entry.mode & 0o6000 != 0)
    }
}

/// The mask, read without changing it.
fn umask() -> Option<u32> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

pub(super) fn owner(entry: &Entry) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(entry.uid)), Some(Gid::from_raw(entry.gid)))
}

fn timespec(time: crate::Timestamp) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanos) }
}

/// Both times; without an access time of its own a file was read when it was written.
pub(super) fn timestamps(times: Times) -> Timestamps {
    Timestamps { last_access: timespec(times.atime.unwrap_or(times.mtime)), last_modification: timespec(times.mtime) }
}

pub(super) fn entry_times(entry: &Entry) -> Timestamps {
    timestamps(Times { mtime: entry.mtime, atime: entry.atime })
}

/// Whether an attribute is overlay's own, by which a layer could reach into others.
pub(crate) fn is_overlay_attribute(name: &[u8]) -> bool {
    name.starts_with(b"trusted.overlay.") || name.starts_with(b"user.overlay.")
}

/// Sets the attributes of an entry by `set`. What the file system or a user namespace cannot have is left out
/// with a warning.
pub(super) fn set_xattrs(
    entry: &Entry,
    in_user_namespace: bool,
    set: impl Fn(&[u8], &[u8]) -> Result<(), Errno>,
) -> Result<()> {
    for (name, value) in &entry.xattrs {
        if is_overlay_attribute(name) || name.contains(&0) {
            continue;
        }
        match set(name, value) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP) => warn_attribute(entry, name, "the file system has no such attributes"),
            // Links and devices cannot have attributes of users.
            Err(Errno::PERM) if name.starts_with(b"user.") => warn_attribute(entry, name, "not for this kind of file"),
            Err(Errno::PERM) if in_user_namespace => warn_attribute(entry, name, "not in a user namespace"),
            Err(error) => return Err(Error::io(format_args!("set attribute {}", shown(name)), error)),
        }
    }
    Ok(())
}

fn warn_attribute(entry: &Entry, name: &[u8], why: &str) {
    tracing::warn!(path = shown(&entry.path), attribute = shown(name), why, "attribute of the layer left out");
}

pub(super) fn set_xattr_fd(fd: impl AsFd, name: &[u8], value: &[u8]) -> Result<(), Errno> {
    rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty())
}

/// Sets an attribute of a file that cannot be opened. Its directory is named by descriptor, so no path is
/// resolved.
pub(super) fn set_xattr_at(directory: &Directory, file: &[u8], name: &[u8], value: &[u8]) -> Result<(), Errno> {
    let mut path = format!("/proc/self/fd/{}/", directory.as_fd().as_raw_fd()).into_bytes();
    path.extend_from_slice(file);
    rustix::fs::lsetxattr(&path[..], name, value, XattrFlags::empty())
}

/// Gives `target` the metadata of the directory `path` of a lower layer. False when that has none there.
pub(super) fn copy_directory(lower: BorrowedFd<'_>, path: &[u8], target: impl AsFd) -> Result<bool> {
    let target = target.as_fd();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let Ok(source) = rustix::fs::openat2(lower, path, flags, Mode::empty(), resolve) else { return Ok(false) };
    let copy = || -> Result<(), Errno> {
        let stat = rustix::fs::fstat(&source)?;
        rustix::fs::fchown(target, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
        rustix::fs::fchmod(target, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
        for (name, value) in xattrs(&source)? {
            if !name.starts_with(b"trusted.") && !is_overlay_attribute(&name) {
                match set_xattr_fd(target, &name, &value) {
                    Ok(()) | Err(Errno::OPNOTSUPP) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        rustix::fs::futimens(target, &stat_times(&stat))
    };
    copy().map_err(|error| Error::io("copy the directory of the lower layer", error))?;
    Ok(true)
}

fn stat_times(stat: &Stat) -> Timestamps {
    let time = |seconds, nanos: u64| Timespec { tv_sec: seconds, tv_nsec: nanos as i64 };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

/// All attributes of an open file, by name.
pub(crate) fn xattrs(fd: impl AsFd) -> Result<Xattrs, Errno> {
    let fd = fd.as_fd();
    collect(|buffer| rustix::fs::flistxattr(fd, buffer), |name, buffer| rustix::fs::fgetxattr(fd, name, buffer))
}

/// All attributes of what a path names, not following a link at its end.
pub(crate) fn xattrs_at(path: &[u8]) -> Result<Xattrs, Errno> {
    collect(|buffer| rustix::fs::llistxattr(path, buffer), |name, buffer| rustix::fs::lgetxattr(path, name, buffer))
}

fn collect(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> Result<Xattrs, Errno> {
    let names = match sized(&list) {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        names => names?,
    };
    let mut found = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        match sized(|buffer| get(name, buffer)) {
            Ok(value) => found.push((name.to_vec(), value)),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
    }
    found.sort();
    Ok(found)
}

/// Reads with growing buffers, up to the most that Linux gives.
fn sized(read: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    for size in [256, 4 << 10, 64 << 10] {
        let mut buffer = vec![0; size];
        match read(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(Errno::RANGE) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::RANGE)
}

/// Whether what `name` is in `directory` is of this kind.
pub(super) fn stat_kind(directory: &Directory, name: &[u8]) -> Result<FileType, Errno> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}
