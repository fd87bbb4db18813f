use std::{
    io::BufRead,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
};

use super::{
    Layer, Whiteouts,
    delete::is_directory,
    metadata::{entry_times, owner, set_xattr_at, set_xattr_fd, set_xattrs, stat_kind, timestamps},
    place::{self, Directory, open_child},
    remove,
};
use crate::{Archive, Entry, Error, Kind, Result, error::shown};

fn doing(what: &'static str) -> impl Fn(Errno) -> Error {
    move |error| Error::io(what, error)
}

fn mode(entry: &Entry) -> Mode {
    Mode::from_raw_mode(entry.mode & 0o7777)
}

impl Layer {
    /// Makes something; what is there under that name already goes first.
    fn replacing<T>(
        &mut self,
        directory: &Directory,
        name: &[u8],
        make: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match make() {
            Err(Errno::EXIST) => {}
            other => return other,
        }
        let plain = stat_kind(directory, name)? == FileType::RegularFile;
        remove::remove(directory, name)?;
        if !plain {
            self.gone(&directory.join(name));
        }
        make()
    }

    pub(super) fn create_file<R: BufRead>(
        &mut self,
        directory: &Directory,
        name: &[u8],
        entry: &Entry,
        archive: &mut Archive<R>,
    ) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(directory, name, flags, mode(entry));
        let file = self.replacing(directory, name, open).map_err(doing("create file"))?;
        match &entry.sparse {
            None => while write_piece(&file, archive, None)?.is_some() {},
            Some(_) => write_sparse(&file, entry, archive)?,
        }
        let chowned = self.owner.needs_chown(directory, entry);
        self.finish(file.as_fd(), entry, chowned, self.owner.needs_chmod(entry, chowned))?;
        rustix::fs::futimens(&file, &entry_times(entry)).map_err(doing("set times"))
    }

    /// Owner, mode, attributes, in the order in which none undoes another.
    fn finish(&self, file: BorrowedFd<'_>, entry: &Entry, chown: bool, chmod: bool) -> Result<()> {
        if chown {
            let (uid, gid) = owner(entry);
            rustix::fs::fchown(file, uid, gid).map_err(doing("set owner"))?;
        }
        if chmod {
            rustix::fs::fchmod(file, mode(entry)).map_err(doing("set mode"))?;
        }
        set_xattrs(entry, self.owner.in_user_namespace(), |name, value| set_xattr_fd(file, name, value))
    }

    pub(super) fn create_directory(
        &mut self,
        parent: &Directory,
        name: &[u8],
        path: &[u8],
        entry: &Entry,
    ) -> Result<()> {
        let make = || rustix::fs::mkdirat(parent, name, mode(entry));
        let mut opaque = false;
        let made = match make() {
            Ok(()) => true,
            Err(Errno::EXIST) => {
                let merges = is_directory(parent, name).map_err(doing("stat"))?;
                if !merges {
                    self.replacing(parent, name, make).map_err(doing("create directory"))?;
                    // What hid the directory of a lower layer still hides it.
                    opaque = self.whiteouts != Whiteouts::Delete;
                }
                !merges
            }
            Err(error) => return Err(Error::io("create directory", error)),
        };
        let found = open_child(parent, name).map_err(doing("open directory"))?;
        let chown = !made || self.owner.needs_chown(parent, entry);
        // mkdir heeds no set-id bits, and a parent's are passed on.
        let chmod = !made || chown || entry.mode & 0o6000 != 0 || self.owner.needs_chmod(entry, chown);
        self.finish(found.as_fd(), entry, chown, chmod)?;
        if opaque {
            self.make_opaque(&found)?;
        }
        if !made && found.set_gid() != (entry.mode & 0o2000 != 0) {
            self.places.forget();
        }
        self.ledger.directory(found.path().to_vec(), entry);
        self.places.remember(path, found.with_mode(entry.mode));
        Ok(())
    }

    pub(super) fn create_symlink(
        &mut self,
        directory: &Directory,
        name: &[u8],
        target: &[u8],
        entry: &Entry,
    ) -> Result<()> {
        if target.is_empty() || target.contains(&0) {
            return Err(Error::invalid(format_args!("symbolic link {} without a target", shown(&entry.path))));
        }
        let make = || rustix::fs::symlinkat(target, directory, name);
        self.replacing(directory, name, make).map_err(doing("create symbolic link"))?;
        self.finish_by_name(directory, name, entry, false)
    }

    pub(super) fn create_node(&mut self, directory: &Directory, name: &[u8], entry: &Entry) -> Result<()> {
        let (kind, device) = match entry.kind {
            Kind::CharDevice(major, minor) => (FileType::CharacterDevice, rustix::fs::makedev(major, minor)),
            Kind::BlockDevice(major, minor) => (FileType::BlockDevice, rustix::fs::makedev(major, minor)),
            _ => (FileType::Fifo, 0),
        };
        let make = || rustix::fs::mknodat(directory, name, kind, mode(entry), device);
        match self.replacing(directory, name, make) {
            Ok(()) => self.finish_by_name(directory, name, entry, true),
            Err(Errno::PERM) if self.owner.in_user_namespace() && kind != FileType::Fifo => {
                tracing::warn!(path = shown(&entry.path), "device left out: not possible in a user namespace");
                Ok(())
            }
            Err(error) => Err(Error::io("create device or pipe", error)),
        }
    }

    fn finish_by_name(&self, directory: &Directory, name: &[u8], entry: &Entry, has_mode: bool) -> Result<()> {
        let chown = self.owner.needs_chown(directory, entry);
        if chown {
            let (uid, gid) = owner(entry);
            rustix::fs::chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW).map_err(doing("set owner"))?;
        }
        // What was made just now is no link, so that none is followed here.
        if has_mode && self.owner.needs_chmod(entry, chown) {
            rustix::fs::chmodat(directory, name, mode(entry), AtFlags::empty()).map_err(doing("set mode"))?;
        }
        set_xattrs(entry, self.owner.in_user_namespace(), |attribute, value| {
            set_xattr_at(directory, name, attribute, value)
        })?;
        rustix::fs::utimensat(directory, name, &entry_times(entry), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(doing("set times"))
    }

    pub(super) fn create_hard_link(
        &mut self,
        directory: &Directory,
        name: &[u8],
        target: &[u8],
        entry: &Entry,
    ) -> Result<()> {
        let target = place::normalize(target)?;
        let missing = || {
            Error::invalid(format_args!("hard link {} to {}, which is not there", shown(&entry.path), shown(&target)))
        };
        let Some((parent, linked)) = place::split(&target) else { return Err(missing()) };
        let source = self.places.existing(parent)?.ok_or_else(missing)?;
        let make = || rustix::fs::linkat(&*source, linked, directory, name, AtFlags::empty());
        let made = match make() {
            Err(Errno::EXIST) if self.is_same(&source, linked, directory, name)? => return Ok(()),
            Err(Errno::EXIST) => self.replacing(directory, name, make),
            other => other,
        };
        made.map_err(|error| match error {
            Errno::NOENT => missing(),
            Errno::PERM => Error::invalid(format_args!("hard link {} to a directory", shown(&entry.path))),
            other => Error::io("create hard link", other),
        })
    }

    /// Whether two names are of one file, which must not be removed then.
    fn is_same(&self, source: &Directory, linked: &[u8], directory: &Directory, name: &[u8]) -> Result<bool> {
        let stat = |directory: &Directory, name: &[u8]| {
            rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| (stat.st_dev, stat.st_ino))
        };
        match (stat(source, linked), stat(directory, name)) {
            (Ok(one), Ok(other)) => Ok(one == other),
            // The link will say so itself.
            (Err(Errno::NOENT), _) => Ok(false),
            (Err(error), _) | (_, Err(error)) => Err(Error::io("stat", error)),
        }
    }

    /// Sets the times of directories, now that nothing is made in them any more. One that cannot have its time
    /// is no reason to fail.
    pub(super) fn set_directory_times(&mut self) {
        for (path, times) in self.ledger.take_directories() {
            let Some((parent, name)) = place::split(&path) else { continue };
            let set = match self.places.existing(parent) {
                Ok(Some(parent)) => {
                    rustix::fs::utimensat(&*parent, name, &timestamps(times), AtFlags::SYMLINK_NOFOLLOW)
                }
                _ => Err(Errno::NOENT),
            };
            if let Err(error) = set {
                tracing::debug!(path = shown(&path), %error, "time of the directory not set");
            }
        }
    }
}

/// Writes the next piece of data, at an offset if given. Its length; none at the end.
fn write_piece<R: BufRead>(file: &OwnedFd, archive: &mut Archive<R>, at: Option<(u64, u64)>) -> Result<Option<usize>> {
    let data = archive.data()?;
    if data.is_empty() {
        return Ok(None);
    }
    let written = match at {
        None => rustix::io::write(file, data),
        Some((offset, most)) => {
            let length = usize::try_from(most).unwrap_or(usize::MAX).min(data.len());
            rustix::io::pwrite(file, &data[..length], offset)
        }
    };
    let written = match written {
        Err(Errno::INTR) => 0,
        Ok(0) => return Err(Error::io("write file", Errno::NOSPC)),
        other => other.map_err(doing("write file"))?,
    };
    archive.consume(written);
    Ok(Some(written))
}

/// Writes the data where the map says; the rest stays holes.
fn write_sparse<R: BufRead>(file: &OwnedFd, entry: &Entry, archive: &mut Archive<R>) -> Result<()> {
    for segment in entry.sparse.iter().flatten() {
        let (mut offset, mut left) = (segment.offset, segment.length);
        while left > 0 {
            let written = write_piece(file, archive, Some((offset, left)))?;
            let written = written.ok_or_else(|| Error::invalid("sparse file with too few data"))? as u64;
            offset += written;
            left -= written;
        }
    }
    rustix::fs::ftruncate(file, entry.size).map_err(doing("set size"))
}
