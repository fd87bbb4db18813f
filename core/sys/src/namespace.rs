use std::{fs, io};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

/// Gives the calling thread a mount namespace of its own in which nothing propagates to or from the old one.
///
/// Threads made from this one afterwards share it; others do not. The thread also gets a root and working
/// directory of its own, apart from its siblings.
///
/// # Errors
/// `PermissionDenied` without CAP_SYS_ADMIN, and what `unshare(2)` and `mount(2)` say.
pub fn private_mount_namespace() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_FS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    Ok(())
}

/// Whether this process runs in another user namespace than the initial one: its id map is not the identity
/// over all ids.
pub fn in_user_namespace() -> bool {
    let Ok(map) = fs::read_to_string("/proc/self/uid_map") else {
        return false;
    };
    let mut fields = map.split_whitespace();
    !(fields.next() == Some("0") && fields.next() == Some("0") && fields.next() == Some("4294967295"))
}
