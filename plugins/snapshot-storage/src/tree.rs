use std::{
    collections::{HashSet, VecDeque},
    ffi::CStr,
    fs, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use core_snapshots::Usage;
use core_types::{Error, Result};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use tokio::runtime::Handle;
use tracing::warn;

/// Bytes of a block in `stat`.
const BLOCK: i64 = 512;

fn is_dot(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

/// Opens a directory below `parent`; neither through a symbolic link nor into another mount.
fn open_dir(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(rustix::fs::openat2(parent, name, flags, Mode::empty(), resolve)?)
}

fn open_root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Removes a tree, and refuses to go into whatever is mounted in it.
///
/// # Errors
/// What the disk says; a mount point in the tree is an error, with all that is not below it removed or not.
pub fn remove_tree(path: &Path) -> Result<()> {
    let remove = || -> io::Result<()> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
            Ok(metadata) if !metadata.is_dir() => return fs::remove_file(path),
            Ok(_) => {}
        }
        empty(open_root(path)?.as_fd())?;
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    };
    remove().map_err(|error| match error.raw_os_error() {
        Some(code) if code == rustix::io::Errno::XDEV.raw_os_error() => Error::failed_precondition(format!(
            "remove {}: something is mounted in it, unmount that first",
            path.display()
        )),
        _ => Error::io(format_args!("remove {}", path.display()), error),
    })
}

fn empty(directory: BorrowedFd<'_>) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if is_dot(name) {
            continue;
        }
        let is_dir = match entry.file_type() {
            FileType::Directory => true,
            FileType::Unknown => {
                let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode) == FileType::Directory
            }
            _ => false,
        };
        let removed = if is_dir {
            open_dir(directory, name).and_then(|inner| {
                empty(inner.as_fd())?;
                Ok(rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)?)
            })
        } else {
            rustix::fs::unlinkat(directory, name, AtFlags::empty()).map_err(io::Error::from)
        };
        match removed {
            // Another removal of the same tree was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

/// Disk that a tree takes: each inode once, however many names it has.
///
/// # Errors
/// What the disk says. A file that goes away meanwhile is none.
pub fn disk_usage(path: &Path) -> Result<Usage> {
    let mut usage = Usage::default();
    let mut seen = HashSet::new();
    let measure = || -> io::Result<()> {
        let root = open_root(path)?;
        add(&mut usage, &rustix::fs::fstat(&root)?);
        measure(root.as_fd(), &mut usage, &mut seen)
    };
    let mut measure = measure;
    measure().map_err(|error| Error::io(format_args!("disk usage of {}", path.display()), error))?;
    Ok(usage)
}

fn add(usage: &mut Usage, stat: &Stat) {
    usage.inodes += 1;
    usage.size += stat.st_blocks * BLOCK;
}

fn measure(directory: BorrowedFd<'_>, usage: &mut Usage, seen: &mut HashSet<(u64, u64)>) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if is_dot(name) {
            continue;
        }
        let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(rustix::io::Errno::NOENT) => continue,
            stat => stat?,
        };
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_dir || stat.st_nlink == 1 || seen.insert((stat.st_dev, stat.st_ino)) {
            add(usage, &stat);
        }
        if is_dir {
            match open_dir(directory, name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::XDEV.raw_os_error()) => {}
                inner => measure(inner?.as_fd(), usage, seen)?,
            }
        }
    }
    Ok(())
}

/// Removes trees in the background, one after the other. Dropping it ends that after the tree at hand.
#[derive(Default)]
pub struct Trash(Arc<Bin>);

#[derive(Default)]
struct Bin {
    queue: Mutex<(VecDeque<PathBuf>, bool)>,
    stop: AtomicBool,
}

impl Trash {
    /// Takes a tree that nobody else uses any more. What cannot be removed is logged and left for a clean-up.
    pub fn put(&self, path: PathBuf) {
        {
            let mut queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.0.push_back(path);
            if std::mem::replace(&mut queue.1, true) {
                return;
            }
        }
        let bin = Arc::clone(&self.0);
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || bin.drain())),
            Err(_) => bin.drain(),
        }
    }
}

impl Bin {
    fn take(&self) -> Option<PathBuf> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let path = queue.0.pop_front().filter(|_| !self.stop.load(Ordering::Relaxed));
        queue.1 = path.is_some();
        path
    }

    fn drain(&self) {
        while let Some(path) = self.take() {
            if let Err(error) = remove_tree(&path) {
                warn!(%error, "cannot remove a snapshot's directory");
            }
        }
    }
}

impl Drop for Trash {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}
