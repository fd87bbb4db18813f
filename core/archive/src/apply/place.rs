use std::{
    collections::{HashMap, VecDeque},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    rc::Rc,
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
};

use super::metadata;
use crate::{Error, Result, error::shown};

/// Bytes of a name in an archive, the kernel's limit for a path.
const NAME_LIMIT: usize = 4096;
/// Directories below each other.
const DEPTH_LIMIT: usize = 1024;
/// Symbolic links in the resolution of one name, the kernel's limit.
const LINKS_LIMIT: u32 = 40;
/// Directories kept open.
const CACHE: usize = 64;

/// How a directory is opened: never through a symbolic link.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory below the root.
#[derive(Debug)]
pub(super) struct Directory {
    fd: OwnedFd,
    /// Its path below the root without symbolic links; empty for the root.
    path: Vec<u8>,
    /// New files in it get its group, and new directories this bit.
    set_gid: bool,
}

impl Directory {
    pub(super) fn new(fd: OwnedFd, path: Vec<u8>, mode: u32) -> Self {
        Self { fd, path, set_gid: mode & 0o2000 != 0 }
    }

    /// The same after a change of its mode.
    pub(super) fn with_mode(mut self, mode: u32) -> Self {
        self.set_gid = mode & 0o2000 != 0;
        self
    }

    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    pub(super) fn set_gid(&self) -> bool {
        self.set_gid
    }

    /// The path of something in it.
    pub(super) fn join(&self, name: &[u8]) -> Vec<u8> {
        if self.path.is_empty() { name.to_vec() } else { [&self.path, &b"/"[..], name].concat() }
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Splits a name into components, without `.` and empty ones, and with `..` undone.
///
/// Refuses names that lead out of the root, which no honest layer has.
pub(super) fn normalize(name: &[u8]) -> Result<Vec<u8>> {
    if name.len() > NAME_LIMIT {
        return Err(Error::invalid(format_args!("name {} is longer than {NAME_LIMIT} bytes", shown(name))));
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts
                    .pop()
                    .ok_or_else(|| Error::invalid(format_args!("name {} leads out of the layer", shown(name))))?;
            }
            part if part.contains(&0) => return Err(Error::invalid("name with a NUL byte")),
            part => parts.push(part),
        }
    }
    Ok(parts.join(&b'/'))
}

/// A normalized path as parent and last component; none for the root.
pub(super) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.is_empty() {
        return None;
    }
    Some(path.iter().rposition(|byte| *byte == b'/').map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..])))
}

/// Finds and makes directories by name. Symbolic links on the way are followed with the target as root.
pub(super) struct Places {
    root: Rc<Directory>,
    /// Lower layers, topmost first.
    parents: Vec<OwnedFd>,
    /// By normalized name in the archive.
    cache: HashMap<Vec<u8>, Rc<Directory>>,
}

impl Places {
    pub(super) fn open(root: &Path, parents: &[PathBuf]) -> Result<Self> {
        let open = |path: &Path| {
            rustix::fs::open(path, DIRECTORY - OFlags::NOFOLLOW, Mode::empty())
                .map_err(|error| Error::io(format_args!("open {}", path.display()), error))
        };
        let fd = open(root)?;
        let mode = rustix::fs::fstat(&fd).map_err(|error| Error::io("stat the root", error))?.st_mode;
        let parents = parents.iter().map(|path| open(path)).collect::<Result<_>>()?;
        Ok(Self { root: Rc::new(Directory::new(fd, Vec::new(), mode)), parents, cache: HashMap::new() })
    }

    pub(super) fn root(&self) -> &Directory {
        &self.root
    }

    /// Forgets all directories but the root: for when one of them, or a link, was replaced.
    pub(super) fn forget(&mut self) {
        self.cache.clear();
    }

    /// Knows a directory by its name in the archive.
    pub(super) fn remember(&mut self, name: &[u8], directory: Directory) {
        self.keep(name, Rc::new(directory));
    }

    /// The directory of that normalized name; what is missing is made.
    pub(super) fn directory(&mut self, name: &[u8]) -> Result<Rc<Directory>> {
        if name.is_empty() {
            return Ok(Rc::clone(&self.root));
        }
        if let Some(known) = self.cache.get(name) {
            return Ok(Rc::clone(known));
        }
        let found = self.walk(name, true)?;
        let found = found.ok_or_else(|| Error::invalid(format_args!("directory {} is missing", shown(name))))?;
        self.keep(name, Rc::clone(&found));
        Ok(found)
    }

    /// The directory of that normalized name; none when it is missing.
    pub(super) fn existing(&mut self, name: &[u8]) -> Result<Option<Rc<Directory>>> {
        if name.is_empty() {
            return Ok(Some(Rc::clone(&self.root)));
        }
        if let Some(known) = self.cache.get(name) {
            return Ok(Some(Rc::clone(known)));
        }
        let found = self.walk(name, false)?;
        if let Some(found) = &found {
            self.keep(name, Rc::clone(found));
        }
        Ok(found)
    }

    fn keep(&mut self, name: &[u8], directory: Rc<Directory>) {
        if self.cache.len() >= CACHE {
            self.cache.clear();
        }
        self.cache.insert(name.to_vec(), directory);
    }

    /// Goes from the nearest known directory on, component by component.
    fn walk(&self, name: &[u8], create: bool) -> Result<Option<Rc<Directory>>> {
        let (mut current, rest) = self.nearest(name);
        let mut todo: VecDeque<Vec<u8>> = rest.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect();
        let mut links = 0;
        while let Some(part) = todo.pop_front() {
            match &part[..] {
                b"" | b"." => continue,
                b".." => {
                    let parent = split(current.path()).map_or(&b""[..], |(parent, _)| parent).to_vec();
                    current = self.reopen(&parent)?;
                    continue;
                }
                _ => {}
            }
            match open_child(&current, &part) {
                Ok(child) => current = Rc::new(child),
                Err(Errno::NOENT) if create => current = Rc::new(self.make(&current, &part)?),
                Err(Errno::NOENT) => return Ok(None),
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    let target = read_link(&current, &part, name)?;
                    links += 1;
                    if links > LINKS_LIMIT {
                        return Err(Error::io("resolve its directory", Errno::LOOP));
                    }
                    if target.starts_with(b"/") {
                        current = Rc::clone(&self.root);
                    }
                    for part in target.split(|byte| *byte == b'/').rev() {
                        todo.push_front(part.to_vec());
                    }
                }
                Err(error) => return Err(Error::io("open its directory", error)),
            }
            if current.path().iter().filter(|byte| **byte == b'/').count() >= DEPTH_LIMIT {
                return Err(Error::invalid(format_args!("directories more than {DEPTH_LIMIT} deep")));
            }
        }
        Ok(Some(current))
    }

    /// The longest part of `name` that is known, and what remains.
    fn nearest<'name>(&self, name: &'name [u8]) -> (Rc<Directory>, &'name [u8]) {
        let mut end = name.len();
        while let Some((parent, _)) = split(&name[..end]) {
            end = parent.len();
            if let Some(known) = self.cache.get(parent) {
                return (Rc::clone(known), &name[end + 1..]);
            }
        }
        (Rc::clone(&self.root), name)
    }

    /// Opens a directory by its path without links.
    fn reopen(&self, path: &[u8]) -> Result<Rc<Directory>> {
        let mut current = Rc::clone(&self.root);
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let child = open_child(&current, part).map_err(|error| Error::io("open its directory", error))?;
            current = Rc::new(child);
        }
        Ok(current)
    }

    /// Makes a directory that the archive did not describe, like that of the lower layers if there is one.
    fn make(&self, parent: &Directory, name: &[u8]) -> Result<Directory> {
        let doing = |error: Errno| Error::io("make its directory", error);
        rustix::fs::mkdirat(parent, name, Mode::from(0o755)).map_err(doing)?;
        let child = open_child(parent, name).map_err(doing)?;
        let path = parent.join(name);
        for lower in &self.parents {
            if metadata::copy_directory(lower.as_fd(), &path, &child)? {
                // Its mode may have changed.
                return open_child(parent, name).map_err(doing);
            }
        }
        Ok(child)
    }
}

/// Opens a directory in a directory, and neither follows a link nor leaves it.
pub(super) fn open_child(parent: &Directory, name: &[u8]) -> Result<Directory, Errno> {
    let fd = rustix::fs::openat(parent, name, DIRECTORY, Mode::empty())?;
    let mode = rustix::fs::fstat(&fd)?.st_mode;
    Ok(Directory::new(fd, parent.join(name), mode))
}

fn read_link(directory: &Directory, part: &[u8], name: &[u8]) -> Result<Vec<u8>> {
    let stat = rustix::fs::statat(directory, part, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|error| Error::io("resolve its directory", error))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
        return Err(Error::invalid(format_args!("{} in {} is not a directory", shown(part), shown(name))));
    }
    let target = rustix::fs::readlinkat(directory, part, Vec::new());
    Ok(target.map_err(|error| Error::io("resolve its directory", error))?.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_normalized_and_cannot_leave() {
        assert_eq!(normalize(b"./a//b/../c/.").unwrap(), b"a/c");
        assert_eq!(normalize(b"/etc/passwd").unwrap(), b"etc/passwd");
        assert_eq!(normalize(b"./").unwrap(), b"");
        for bad in [&b".."[..], b"a/../../b", b"/..", b"a\0b", &[b'x'; 5000]] {
            assert!(normalize(bad).is_err());
        }
    }
}
