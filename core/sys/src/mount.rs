#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

/// Where mount and unmount events of a mount go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Both ways.
    Shared,
    /// Into the mount, not out of it.
    Slave,
    /// Nowhere.
    Private,
    /// Nowhere, and the mount cannot be bind mounted.
    Unbindable,
}

/// What [`mount_setattr`] changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MountAttributes<'fd> {
    /// `MOUNT_ATTR_*` bits to set.
    pub set: u64,
    /// `MOUNT_ATTR_*` bits to clear.
    pub clear: u64,
    /// The propagation to change to.
    pub propagation: Option<Propagation>,
    /// A user namespace whose id mapping the mount takes on (`MOUNT_ATTR_IDMAP` is set with it).
    pub id_map: Option<BorrowedFd<'fd>>,
}

/// Changes a mount given by a descriptor of its root, with `recursive` also all mounts below it.
///
/// # Errors
/// What `mount_setattr(2)` says (`ENOSYS` before Linux 5.12).
pub fn mount_setattr(root: impl AsFd, recursive: bool, attributes: MountAttributes<'_>) -> io::Result<()> {
    let mut raw = libc::mount_attr {
        attr_set: attributes.set,
        attr_clr: attributes.clear,
        propagation: attributes.propagation.map_or(0, |propagation| match propagation {
            Propagation::Shared => libc::MS_SHARED,
            Propagation::Slave => libc::MS_SLAVE,
            Propagation::Private => libc::MS_PRIVATE,
            Propagation::Unbindable => libc::MS_UNBINDABLE,
        }),
        userns_fd: 0,
    };
    if let Some(namespace) = attributes.id_map {
        raw.attr_set |= libc::MOUNT_ATTR_IDMAP;
        raw.userns_fd = namespace.as_raw_fd() as u64;
    }
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a NUL-terminated literal, `raw` lives through the call and its size is given; the
    // descriptors are borrowed, so open.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            root.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const raw,
            size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
