use std::{
    collections::HashMap,
    ffi::{CStr, OsStr},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use core_types::{Error, Result};
use rustix::{
    fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid, XattrFlags},
    io::Errno,
};
use tracing::debug;

/// Bytes copied at once where the kernel cannot do it.
const BUFFER: usize = 256 * 1024;
/// The longest list of attributes and the longest value that Linux has.
const XATTR_MAX: usize = 64 * 1024;

/// Copies what is in `from`, and its own mode, owner, attributes and times, to the empty directory `to`.
///
/// Hard links within the tree, holes, devices and all extended attributes are kept as far as the file system takes
/// them. Names are never followed: all work is done below open directories.
///
/// # Errors
/// What the disk says, with the name of the file.
pub fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let doing = || format!("copy {} to {}", from.display(), to.display());
    let open = |path: &Path| -> io::Result<OwnedFd> { Ok(rustix::fs::open(path, DIRECTORY, Mode::empty())?) };
    let (source, target) =
        open(from).and_then(|source| Ok((source, open(to)?))).map_err(|error| Error::io(doing(), error))?;
    let mut copier =
        Copier { root: target.as_fd(), links: HashMap::new(), clones: true, buffer: Vec::new(), at: PathBuf::new() };
    copier
        .directory(source.as_fd(), target.as_fd())
        .map_err(|error| Error::io(format_args!("{}: at {}", doing(), copier.at.display()), error))
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

struct Copier<'a> {
    root: BorrowedFd<'a>,
    /// The copies of files with several names: path below the root by device and inode.
    links: HashMap<(u64, u64), PathBuf>,
    /// Whether the file system may share blocks; false after it refused.
    clones: bool,
    buffer: Vec<u8>,
    /// Where it is.
    at: PathBuf,
}

impl Copier<'_> {
    fn directory(&mut self, source: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
        for entry in Dir::read_from(source)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.at.push(OsStr::from_bytes(name.to_bytes()));
            self.entry(source, target, name)?;
            self.at.pop();
        }
        let stat = rustix::fs::fstat(source)?;
        finish_open(source, target, &stat)
    }

    fn entry(&mut self, source: BorrowedFd<'_>, target: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        let stat = rustix::fs::statat(source, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            rustix::fs::mkdirat(target, name, Mode::RWXU)?;
            let inner = rustix::fs::openat(source, name, DIRECTORY, Mode::empty())?;
            let copy = rustix::fs::openat(target, name, DIRECTORY, Mode::empty())?;
            return self.directory(inner.as_fd(), copy.as_fd());
        }
        if stat.st_nlink > 1 && self.link(target, name, &stat)? {
            return Ok(());
        }
        match kind {
            FileType::RegularFile => return self.file(source, target, name),
            FileType::Symlink => {
                let text = rustix::fs::readlinkat(source, name, Vec::new())?;
                rustix::fs::symlinkat(text, target, name)?;
            }
            _ => {
                let mode = Mode::from_raw_mode(stat.st_mode);
                rustix::fs::mknodat(target, name, kind, mode, stat.st_rdev)?;
            }
        }
        finish_named(source, target, name, &stat)
    }

    /// Makes `name` a further name of a file that is copied already. False for the first of its names.
    fn link(&mut self, target: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> io::Result<bool> {
        let Some(first) = self.links.get(&(stat.st_dev, stat.st_ino)) else {
            self.links.insert((stat.st_dev, stat.st_ino), self.at.clone());
            return Ok(false);
        };
        match rustix::fs::linkat(self.root, first, target, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            // Too many links or too deep for one path: a copy of its own.
            Err(Errno::MLINK | Errno::NAMETOOLONG) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn file(&mut self, source: BorrowedFd<'_>, target: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let from = rustix::fs::openat(source, name, flags | OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
        let flags = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let to = rustix::fs::openat(target, name, flags, Mode::RUSR | Mode::WUSR)?;
        let stat = rustix::fs::fstat(&from)?;
        self.content(from.as_fd(), to.as_fd(), stat.st_size as u64)?;
        finish_open(from.as_fd(), to.as_fd(), &stat)
    }

    fn content(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, size: u64) -> io::Result<()> {
        if size == 0 {
            return Ok(());
        }
        if self.clones {
            match rustix::fs::ioctl_ficlone(to, from) {
                Ok(()) => return Ok(()),
                Err(_) => self.clones = false,
            }
        }
        rustix::fs::ftruncate(to, size)?;
        let mut at = 0;
        while at < size {
            let (start, end) = match rustix::fs::seek(from, SeekFrom::Data(at)) {
                Ok(start) => (start, rustix::fs::seek(from, SeekFrom::Hole(start))?),
                // Nothing but a hole is left.
                Err(Errno::NXIO) => break,
                Err(Errno::INVAL) => (at, size),
                Err(error) => return Err(error.into()),
            };
            self.range(from, to, start, end.min(size))?;
            at = end;
        }
        Ok(())
    }

    fn range(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, start: u64, end: u64) -> io::Result<()> {
        let (mut read_at, mut write_at) = (start, start);
        while read_at < end {
            let length = usize::try_from(end - read_at).unwrap_or(usize::MAX).min(1 << 30);
            match rustix::fs::copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), length) {
                Ok(0) => return Ok(()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::XDEV | Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => {
                    return self.range_by_hand(from, to, read_at, end);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn range_by_hand(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, start: u64, end: u64) -> io::Result<()> {
        self.buffer.resize(BUFFER, 0);
        let mut at = start;
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(BUFFER).min(BUFFER);
            let read = rustix::io::pread(from, &mut self.buffer[..length], at)?;
            if read == 0 {
                return Ok(());
            }
            let mut rest = &self.buffer[..read];
            while !rest.is_empty() {
                let written = rustix::io::pwrite(to, rest, at)?;
                rest = &rest[written..];
                at += written as u64;
            }
        }
        Ok(())
    }
}

fn owner(stat: &Stat) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))
}

fn times(stat: &Stat) -> Timestamps {
    let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec as i64),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec as i64),
    }
}

/// Owner, attributes, mode and times of an open file or directory. In this order: a change of owner clears set-id
/// bits and capabilities, and everything changes times.
fn finish_open(source: BorrowedFd<'_>, target: BorrowedFd<'_>, stat: &Stat) -> io::Result<()> {
    let (user, group) = owner(stat);
    rustix::fs::fchown(target, user, group)?;
    attributes(&descriptor_path(source), &descriptor_path(target), true)?;
    rustix::fs::fchmod(target, Mode::from_raw_mode(stat.st_mode))?;
    rustix::fs::futimens(target, &times(stat))?;
    Ok(())
}

/// The same for what cannot be opened: links, devices, pipes, sockets.
fn finish_named(source: BorrowedFd<'_>, target: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> io::Result<()> {
    let (user, group) = owner(stat);
    rustix::fs::chownat(target, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
    let name_path = OsStr::from_bytes(name.to_bytes());
    attributes(&descriptor_path(source).join(name_path), &descriptor_path(target).join(name_path), false)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
        rustix::fs::chmodat(target, name, Mode::from_raw_mode(stat.st_mode), AtFlags::empty())?;
    }
    rustix::fs::utimensat(target, name, &times(stat), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

fn descriptor_path(descriptor: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

/// Copies extended attributes. `through` follows the last link, which is that of `/proc` for open files.
fn attributes(source: &Path, target: &Path, through: bool) -> io::Result<()> {
    let mut list = vec![0; 1024];
    let length = loop {
        let listed = if through {
            rustix::fs::listxattr(source, &mut list[..])
        } else {
            rustix::fs::llistxattr(source, &mut list[..])
        };
        match listed {
            Ok(length) => break length,
            Err(Errno::RANGE) if list.len() < XATTR_MAX => list.resize(XATTR_MAX, 0),
            Err(Errno::OPNOTSUPP) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    };
    let mut value = if length > 0 { vec![0; XATTR_MAX] } else { Vec::new() };
    for name in list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = OsStr::from_bytes(name);
        let copied = if through {
            rustix::fs::getxattr(source, name, &mut value[..])
                .and_then(|length| rustix::fs::setxattr(target, name, &value[..length], XattrFlags::empty()))
        } else {
            rustix::fs::lgetxattr(source, name, &mut value[..])
                .and_then(|length| rustix::fs::lsetxattr(target, name, &value[..length], XattrFlags::empty()))
        };
        match copied {
            // Labels of a security module are its own business.
            Err(error @ (Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP)) => {
                debug!(attribute = ?name, %error, "an extended attribute is not copied");
            }
            copied => copied?,
        }
    }
    Ok(())
}
