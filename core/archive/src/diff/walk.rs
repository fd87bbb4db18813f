use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use super::DEPTH_LIMIT;
use crate::{
    Error, Result, Xattrs,
    apply::{is_overlay_attribute, xattrs_at},
    error::shown,
};

/// A difference, by its path below the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Only the lower tree has it.
    Deleted(Vec<u8>),
    /// The upper tree has it otherwise, or it is the directory of something that differs.
    Written(Vec<u8>),
}

impl Change {
    fn path(&self) -> &[u8] {
        match self {
            Self::Deleted(path) | Self::Written(path) => path,
        }
    }
}

/// All differences, every directory before what is in it, names in the order of their bytes.
pub(super) fn changes(lower: Option<&OwnedFd>, upper: &OwnedFd) -> Result<Vec<Change>> {
    let mut walk = Walk::default();
    walk.directory(lower, upper)?;
    walk.add_siblings();
    Ok(walk.changes)
}

#[derive(Default)]
struct Walk {
    changes: Vec<Change>,
    /// Names of the directories down to the current one, and whether each is among the changes.
    stack: Vec<(Vec<u8>, bool)>,
    /// Unchanged files that have more than one name.
    linked: HashMap<(u64, u64), Vec<Vec<u8>>>,
    /// Changed files that have more than one name.
    changed_links: HashSet<(u64, u64)>,
}

struct Node {
    name: Vec<u8>,
    stat: Stat,
}

impl Node {
    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    fn identity(&self) -> (u64, u64) {
        (self.stat.st_dev, self.stat.st_ino)
    }

    fn has_links(&self) -> bool {
        self.stat.st_nlink > 1 && self.kind() != FileType::Directory
    }
}

impl Walk {
    fn path(&self, name: &[u8]) -> Vec<u8> {
        let mut path = Vec::new();
        for (part, _) in &self.stack {
            path.extend_from_slice(part);
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }

    /// Adds a change, after the directories above it.
    fn add(&mut self, name: &[u8], make: impl FnOnce(Vec<u8>) -> Change) {
        let mut path = Vec::new();
        for (part, known) in &mut self.stack {
            path.extend_from_slice(part);
            if !std::mem::replace(known, true) {
                self.changes.push(Change::Written(path.clone()));
            }
            path.push(b'/');
        }
        path.extend_from_slice(name);
        self.changes.push(make(path));
    }

    fn directory(&mut self, lower: Option<&OwnedFd>, upper: &OwnedFd) -> Result<()> {
        if self.stack.len() > DEPTH_LIMIT {
            return Err(Error::Unsupported(format!("directories more than {DEPTH_LIMIT} deep are not archived")));
        }
        let below = lower.map(nodes).transpose()?.unwrap_or_default();
        let above = nodes(upper)?;
        let (mut below, mut above) = (below.iter().peekable(), above.iter().peekable());
        loop {
            let order = match (below.peek(), above.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.name.cmp(&new.name),
            };
            let old = if order.is_le() { below.next() } else { None };
            let new = if order.is_ge() { above.next() } else { None };
            match (old, new) {
                (Some(old), None) => self.add(&old.name, Change::Deleted),
                (old, Some(new)) => self.node(lower.zip(old), upper, new)?,
                (None, None) => return Ok(()),
            }
        }
    }

    fn node(&mut self, old: Option<(&OwnedFd, &Node)>, upper: &OwnedFd, new: &Node) -> Result<()> {
        if new.kind() == FileType::Socket {
            if old.is_some() {
                self.add(&new.name, Change::Deleted);
            }
            return Ok(());
        }
        let name = new.name.as_slice();
        let same = match old {
            Some((lower, old)) => is_same(lower, old, upper, new)
                .map_err(|error| Error::io(format_args!("compare {}", shown(&self.path(name))), error))?,
            None => false,
        };
        if new.has_links() {
            if same {
                let path = self.path(name);
                self.linked.entry(new.identity()).or_default().push(path);
            } else {
                self.changed_links.insert(new.identity());
            }
        }
        if !same {
            self.add(name, Change::Written);
        }
        if new.kind() != FileType::Directory {
            return Ok(());
        }
        let old = old.filter(|(_, old)| old.kind() == FileType::Directory);
        if old.is_some_and(|(_, old)| old.identity() == new.identity()) {
            return Ok(());
        }
        let open = |parent: &OwnedFd| {
            open_directory(parent, name)
                .map_err(|error| Error::io(format_args!("open {}", shown(&self.path(name))), error))
        };
        let (lower, upper) = (old.map(|(lower, _)| open(lower)).transpose()?, open(upper)?);
        self.stack.push((new.name.clone(), !same));
        let result = self.directory(lower.as_ref(), &upper);
        self.stack.pop();
        result
    }

    /// An unchanged file that got a new name is written too, or the new name would be a copy.
    fn add_siblings(&mut self) {
        let mut added = false;
        for (identity, paths) in std::mem::take(&mut self.linked) {
            if !self.changed_links.contains(&identity) {
                continue;
            }
            for path in paths {
                added = true;
                for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
                    self.changes.push(Change::Written(path[..at].to_vec()));
                }
                self.changes.push(Change::Written(path));
            }
        }
        if added {
            let parts =
                |change: &Change| change.path().split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect::<Vec<_>>();
            self.changes.sort_by_cached_key(parts);
            self.changes.dedup();
        }
    }
}

pub(super) fn open_directory(parent: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// What is in a directory, by name.
fn nodes(directory: &OwnedFd) -> Result<Vec<Node>> {
    let read = || -> Result<Vec<Node>, Errno> {
        let mut nodes = Vec::new();
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => nodes.push(Node { name: name.to_vec(), stat }),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(nodes)
    };
    read().map_err(|error| Error::io("read directory", error))
}

fn is_same(lower: &OwnedFd, old: &Node, upper: &OwnedFd, new: &Node) -> Result<bool, Errno> {
    let (one, other) = (&old.stat, &new.stat);
    if old.identity() == new.identity() {
        return Ok(true);
    }
    if one.st_mode != other.st_mode
        || one.st_uid != other.st_uid
        || one.st_gid != other.st_gid
        || one.st_rdev != other.st_rdev
    {
        return Ok(false);
    }
    let kind = new.kind();
    if kind != FileType::Directory {
        if one.st_size != other.st_size || one.st_mtime != other.st_mtime || one.st_mtime_nsec != other.st_mtime_nsec {
            return Ok(false);
        }
        // One inode seen through two overlays.
        let seen = |stat: &Stat| (stat.st_ino, stat.st_ctime, stat.st_ctime_nsec);
        if seen(one) == seen(other) {
            return Ok(true);
        }
    }
    if xattrs(lower, &old.name)? != xattrs(upper, &new.name)? {
        return Ok(false);
    }
    match kind {
        FileType::Symlink => {
            let read = |directory, name: &[u8]| rustix::fs::readlinkat(directory, name, Vec::new());
            Ok(read(lower, &old.name)? == read(upper, &new.name)?)
        }
        // Archives with whole seconds only make files of one time and other content likely.
        FileType::RegularFile if one.st_mtime_nsec == 0 => same_content(lower, upper, &new.name),
        _ => Ok(true),
    }
}

fn same_content(lower: &OwnedFd, upper: &OwnedFd, name: &[u8]) -> Result<bool, Errno> {
    let (one, other) = (open_file(lower, name)?, open_file(upper, name)?);
    let (mut left, mut right) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let read = fill(&one, &mut left)?;
        if fill(&other, &mut right)? != read || left[..read] != right[..read] {
            return Ok(false);
        }
        if read == 0 {
            return Ok(true);
        }
    }
}

/// Opens a regular file; never blocks on, or acts upon, what is something else by now.
pub(super) fn open_file(directory: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// Reads until the buffer is full or the file at its end.
pub(super) fn fill(file: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::read(file, &mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The attributes that belong into a layer.
pub(super) fn xattrs(directory: &OwnedFd, name: &[u8]) -> Result<Xattrs, Errno> {
    let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    let mut found = xattrs_at(&path)?;
    found.retain(|(name, _)| {
        let wanted = [&b"user."[..], b"security.capability", b"system.posix_acl_"];
        wanted.iter().any(|prefix| name.starts_with(prefix)) && !is_overlay_attribute(name)
    });
    Ok(found)
}
