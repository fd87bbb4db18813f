use std::{
    ffi::OsString,
    fs::File,
    os::{
        fd::OwnedFd,
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::{Component, Path, PathBuf},
};

use core_mount::Mount;
use core_types::{Error, Result};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
};

/// Largest file that is read from a root file system.
const MAX_FILE: u64 = 10 << 20;
/// How many symbolic links one path may pass.
const MAX_LINKS: usize = 40;

/// A container's root file system, looked at without mounting it.
///
/// It is one directory or the layers of an overlay, topmost first. Paths are walked component by component
/// on directory descriptors, with symbolic links resolved inside the root, whiteouts and opaque directories
/// honoured.
#[derive(Debug)]
pub struct Rootfs {
    layers: Vec<OwnedFd>,
}

/// A directory of the merged tree: the directories it is made of, topmost first.
type Merged = Vec<OwnedFd>;

enum Entry {
    Missing,
    Directory(Merged),
    Link(PathBuf),
    /// Its directory and kind.
    Other(OwnedFd, FileType, u64),
}

impl Rootfs {
    /// A root file system in one directory.
    ///
    /// # Errors
    /// What opening it says.
    pub fn open(directory: &Path) -> Result<Self> {
        Ok(Self { layers: vec![open_dir(directory)?] })
    }

    /// The root file system that a snapshot's mounts would make; `None` when they are not all directories
    /// of this host (then it must be mounted).
    ///
    /// # Errors
    /// What opening the directories says.
    pub fn from_mounts(mounts: &[Mount]) -> Result<Option<Self>> {
        let [mount] = mounts else { return Ok(None) };
        if !mount.target.is_empty() {
            return Ok(None);
        }
        match mount.kind.as_str() {
            "bind" => Self::open(Path::new(&mount.source)).map(Some),
            "overlay" => {
                let directories = overlay_directories(&mount.options);
                if directories.is_empty() {
                    return Ok(None);
                }
                let layers = directories.iter().map(|dir| open_dir(dir)).collect::<Result<_>>()?;
                Ok(Some(Self { layers }))
            }
            _ => Ok(None),
        }
    }

    /// Opens a regular file by its path from the root; `None` when it is not there.
    ///
    /// # Errors
    /// InvalidArgument for another kind of file or one over 10 MiB.
    pub fn open_file(&self, path: &str) -> Result<Option<File>> {
        let failed = |error: Errno| Error::io(format!("open /{path} of the container"), error.into());
        let Some((directory, name, kind, size)) = self.walk(Path::new(path)).map_err(failed)? else {
            return Ok(None);
        };
        if kind != FileType::RegularFile {
            return Err(Error::invalid_argument(format!("/{path} of the container is not a regular file")));
        }
        if size > MAX_FILE {
            return Err(Error::invalid_argument(format!("/{path} of the container is larger than {MAX_FILE} bytes")));
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, name, flags, Mode::empty()).map_err(failed)?;
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::invalid_argument(format!("/{path} of the container changed while it was opened")));
        }
        Ok(Some(File::from(file)))
    }

    /// Finds the directory that holds the last component of `path`, after all links.
    fn walk(&self, path: &Path) -> std::result::Result<Option<(OwnedFd, OsString, FileType, u64)>, Errno> {
        let mut todo: Vec<OsString> = components(path);
        let mut parents: Vec<Merged> = vec![self.top()?];
        let mut links = 0;
        while let Some(name) = todo.pop() {
            if name == ".." {
                if parents.len() > 1 {
                    parents.pop();
                }
                continue;
            }
            let Some(current) = parents.last() else { return Ok(None) };
            match look_up(current, &name)? {
                Entry::Missing => return Ok(None),
                Entry::Directory(directory) => parents.push(directory),
                Entry::Link(target) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP);
                    }
                    if target.is_absolute() {
                        parents.truncate(1);
                    }
                    todo.extend(components(&target));
                }
                Entry::Other(directory, kind, size) if todo.is_empty() => {
                    return Ok(Some((directory, name, kind, size)));
                }
                Entry::Other(..) => return Ok(None),
            }
        }
        Ok(None)
    }

    fn top(&self) -> std::result::Result<Merged, Errno> {
        self.layers.iter().map(|layer| rustix::io::fcntl_dupfd_cloexec(layer, 0)).collect()
    }
}

/// The parts of a path, last first; `..` stays, since it must be resolved against the tree.
fn components(path: &Path) -> Vec<OsString> {
    let part = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    };
    path.components().filter_map(part).rev().collect()
}

fn open_dir(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
        .map_err(|error| Error::io(format!("open root file system {}", path.display()), error.into()))
}

fn look_up(directory: &Merged, name: &OsString) -> std::result::Result<Entry, Errno> {
    let mut merged = Merged::new();
    for layer in directory {
        let stat = match rustix::fs::statat(layer, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT | Errno::NOTDIR) => continue,
            Err(error) => return Err(error),
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(layer, name, flags, Mode::empty())?;
            let opaque = is_opaque(&opened);
            merged.push(opened);
            if opaque {
                break;
            }
            continue;
        }
        let whiteout = kind == FileType::CharacterDevice && stat.st_rdev == 0;
        if whiteout || !merged.is_empty() {
            break;
        }
        if kind == FileType::Symlink {
            let target = rustix::fs::readlinkat(layer, name, Vec::new())?;
            return Ok(Entry::Link(PathBuf::from(OsString::from_vec(target.into_bytes()))));
        }
        let layer = rustix::io::fcntl_dupfd_cloexec(layer, 0)?;
        return Ok(Entry::Other(layer, kind, u64::try_from(stat.st_size).unwrap_or(u64::MAX)));
    }
    Ok(if merged.is_empty() { Entry::Missing } else { Entry::Directory(merged) })
}

/// Whether an overlay directory hides those below it.
fn is_opaque(directory: &OwnedFd) -> bool {
    use std::os::fd::AsRawFd as _;
    // A path descriptor has no xattr call of its own; its entry in /proc leads to the same directory.
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    ["trusted.overlay.opaque", "user.overlay.opaque"].iter().any(|name| {
        let mut value = [0_u8; 8];
        matches!(rustix::fs::getxattr(&path, *name, &mut value), Ok(1) if value[0] == b'y')
    })
}

/// The directories of an overlay, topmost first.
fn overlay_directories(options: &[String]) -> Vec<PathBuf> {
    let mut upper = Vec::new();
    let mut lower = Vec::new();
    for option in options {
        if let Some(path) = option.strip_prefix("upperdir=") {
            upper.push(PathBuf::from(path));
        } else if let Some(paths) = option.strip_prefix("lowerdir=") {
            lower.extend(split_escaped(paths));
        } else if let Some(path) = option.strip_prefix("lowerdir+=") {
            lower.push(PathBuf::from(path));
        }
    }
    if lower.is_empty() {
        return lower;
    }
    upper.extend(lower);
    upper
}

/// Splits at colons that have no backslash in front.
fn split_escaped(text: &str) -> Vec<PathBuf> {
    let mut paths = vec![Vec::new()];
    let mut bytes = std::ffi::OsStr::new(text).as_bytes().iter();
    while let Some(byte) = bytes.next() {
        match (byte, paths.last_mut()) {
            (b'\\', Some(path)) => path.extend(bytes.next()),
            (b':', _) => paths.push(Vec::new()),
            (byte, Some(path)) => path.push(*byte),
            (_, None) => {}
        }
    }
    paths.into_iter().filter(|path| !path.is_empty()).map(|path| PathBuf::from(OsString::from_vec(path))).collect()
}

#[cfg(test)]
mod tests;
