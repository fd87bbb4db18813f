use std::{
    ffi::CString,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use core_types::{Error, Result};
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, StatVfsMountFlags},
    io::Errno,
    mount::MountFlags,
};

use crate::{
    Mount,
    options::{self, Options},
    overlay,
    unmount::unmount_mounts,
};

/// Performs the mounts in their order, each at its own target below `target`. When one fails, those before it
/// are undone.
///
/// # Errors
/// InvalidArgument and Unimplemented for options that cannot be, otherwise what the kernel says; the text
/// names the mount.
pub fn mount_all(mounts: &[Mount], target: &Path) -> Result<()> {
    for (done, mount) in mounts.iter().enumerate() {
        if let Err(error) = mount_one(mount, target) {
            if let Err(undo) = unmount_mounts(&mounts[..done], target) {
                tracing::warn!(target = %target.display(), error = %undo, "mounts before a failed one stay");
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Performs one mount below `target`; its own target is resolved inside that directory, whatever symbolic
/// links say.
///
/// # Errors
/// As [`mount_all`].
pub fn mount_one(mount: &Mount, target: &Path) -> Result<()> {
    let what = || format!("mount {} {:?} on {}", mount.kind, mount.source, target.display());
    let place = resolve(target, &mount.target).map_err(|error| Error::from(error).context(what()))?;
    perform(mount, place.path()).map_err(|error| error.context(what()))
}

/// Where to mount: a path, or an open directory by its `/proc` name.
pub(crate) struct Place {
    path: PathBuf,
    /// Keeps the number in `path` valid.
    _opened: Option<OwnedFd>,
}

impl Place {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Resolves `inner` with `root` as the root directory.
pub(crate) fn resolve(root: &Path, inner: &str) -> std::io::Result<Place> {
    let inner = inner.trim_start_matches('/');
    if inner.is_empty() {
        return Ok(Place { path: root.to_owned(), _opened: None });
    }
    let root = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let opened = rustix::fs::openat2(&root, inner, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    Ok(Place { path: format!("/proc/self/fd/{}", opened.as_raw_fd()).into(), _opened: Some(opened) })
}

/// The path on the host of what is at `inner` when `root` is taken for the root directory: neither `..` nor links lead
/// out of it.
///
/// # Errors
/// NotFound and what else `openat2(2)` says.
pub fn path_in_root(root: &Path, inner: &str) -> std::io::Result<PathBuf> {
    match resolve(root, inner)? {
        Place { path, _opened: None } => Ok(path),
        Place { path, _opened: Some(_) } => std::fs::read_link(path),
    }
}

fn perform(mount: &Mount, target: &Path) -> Result<()> {
    let options = options::parse(&mount.options)?;
    if options.flags.contains(MountFlags::BIND) || mount.kind == "bind" || mount.kind == "rbind" {
        bind(mount, options.recursive || mount.kind == "rbind", &options, target)?;
    } else if options.remount {
        let data = c_string(&options.data_string())?;
        rustix::mount::mount_remount(target, options.flags, data.as_c_str()).map_err(io)?;
    } else if mount.kind == "overlay" {
        overlay::mount_overlay(&mount.source, &options, target)?;
    } else {
        let data = c_string(&options.data_string())?;
        rustix::mount::mount(mount.source.as_str(), target, mount.kind.as_str(), options.flags, data.as_c_str())
            .map_err(io)?;
    }
    if let Some(propagation) = options.propagation {
        rustix::mount::mount_change(target, propagation)
            .map_err(|error| Error::io("change propagation", error.into()))?;
    }
    Ok(())
}

fn bind(mount: &Mount, recursive: bool, options: &Options, target: &Path) -> Result<()> {
    if mount.source.is_empty() {
        return Err(Error::invalid_argument("a bind mount needs a source"));
    }
    let flags = options.flags - MountFlags::BIND;
    if !options.remount {
        let source = mount.source.as_str();
        if recursive {
            rustix::mount::mount_bind_recursive(source, target)
        } else {
            rustix::mount::mount_bind(source, target)
        }
        .map_err(io)?;
    }
    // The flags of a bind mount are heeded only when it is mounted a second time.
    if flags.is_empty() && !options.remount {
        return Ok(());
    }
    let again = remount_bind(target, flags);
    if again.is_err() && !options.remount {
        // Undo, rather than leave a mount with more rights than were asked for.
        let _ = rustix::mount::unmount(target, rustix::mount::UnmountFlags::DETACH);
    }
    again
}

fn remount_bind(target: &Path, flags: MountFlags) -> Result<()> {
    match rustix::mount::mount_remount(target, flags | MountFlags::BIND, c"") {
        // In a user namespace the flags of the source are locked: they must be asked for too.
        Err(Errno::PERM) => {
            let kept = locked_flags(target)?;
            rustix::mount::mount_remount(target, flags | kept | MountFlags::BIND, c"")
        }
        other => other,
    }
    .map_err(|error| Error::io("set the flags of the bind mount", error.into()))
}

fn locked_flags(target: &Path) -> Result<MountFlags> {
    let has = rustix::fs::statvfs(target).map_err(io)?.f_flag;
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, has.contains(StatVfsMountFlags::RDONLY));
    flags.set(MountFlags::NOSUID, has.contains(StatVfsMountFlags::NOSUID));
    flags.set(MountFlags::NODEV, has.contains(StatVfsMountFlags::NODEV));
    flags.set(MountFlags::NOEXEC, has.contains(StatVfsMountFlags::NOEXEC));
    flags.set(MountFlags::NOATIME, has.contains(StatVfsMountFlags::NOATIME));
    flags.set(MountFlags::NODIRATIME, has.contains(StatVfsMountFlags::NODIRATIME));
    flags.set(MountFlags::RELATIME, has.contains(StatVfsMountFlags::RELATIME));
    Ok(flags)
}

pub(crate) fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::invalid_argument("a mount option holds a NUL byte"))
}

pub(crate) fn io(error: Errno) -> Error {
    Error::from(std::io::Error::from(error))
}

/// Opens a path without following it further, for calls that take descriptors.
pub(crate) fn open_path(path: &Path) -> Result<OwnedFd> {
    rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| Error::io(format_args!("open {}", path.display()), error.into()))
}

#[cfg(test)]
mod tests;
