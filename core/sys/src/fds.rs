#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
    path::Path,
};

/// Takes a descriptor that this process was started with, by its number, and marks it close-on-exec.
///
/// Everything that Rust opens is close-on-exec, an inherited descriptor is not; so one that is close-on-exec
/// already, or was taken before, is refused, and no owner is ever robbed.
///
/// # Errors
/// `InvalidInput` for the standard streams and for descriptors that are not inherited, `EBADF` for closed ones.
pub fn take_inherited_fd(number: RawFd) -> io::Result<OwnedFd> {
    if number <= libc::STDERR_FILENO {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the standard streams cannot be taken"));
    }
    // SAFETY: F_GETFD reads flags of a number and touches no memory.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("descriptor {number} is not inherited")));
    }
    // SAFETY: as above; sets one flag.
    if unsafe { libc::fcntl(number, libc::F_SETFD, flags | libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open (F_GETFD succeeded) and no Rust value owns it: it was inherited, since
    // it lacked close-on-exec, and taking it sets that flag, so it is taken once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Marks every descriptor from `first` on close-on-exec, so that a program executed later inherits none of them.
///
/// # Errors
/// What `close_range(2)` says (`ENOSYS` before Linux 5.9, `EINVAL` before 5.11).
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: with CLOSE_RANGE_CLOEXEC the call sets flags only; it closes nothing and touches no memory.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Marks every descriptor of the file at `path` close-on-exec; for libraries that open files without it.
///
/// # Errors
/// What reading `/proc/self/fd` and `fcntl(2)` say.
pub fn close_on_exec_of_file(path: &Path) -> io::Result<()> {
    let path = path.canonicalize()?;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok());
        let (Some(number), Ok(target)) = (number, std::fs::read_link(entry.path())) else { continue };
        if target != path {
            continue;
        }
        // SAFETY: F_GETFD and F_SETFD touch the descriptor's flags only; one that was closed meanwhile is an error.
        let done = unsafe {
            let flags = libc::fcntl(number, libc::F_GETFD);
            if flags < 0 { -1 } else { libc::fcntl(number, libc::F_SETFD, flags | libc::FD_CLOEXEC) }
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, IntoRawFd};

    use super::*;

    #[test]
    fn an_inherited_descriptor_is_taken_once() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(take_inherited_fd(file.as_raw_fd()).is_err(), "owned elsewhere");
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
        let number = file.into_raw_fd();
        let taken = take_inherited_fd(number).unwrap();
        assert!(take_inherited_fd(number).is_err());
        drop(taken);
        assert!(take_inherited_fd(1).is_err());
    }

    #[test]
    fn descriptors_of_one_file_become_close_on_exec() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let again = std::fs::File::open(file.path()).unwrap();
        let other = std::fs::File::open("/dev/null").unwrap();
        for open in [&again, &other] {
            rustix::io::fcntl_setfd(open, rustix::io::FdFlags::empty()).unwrap();
        }
        close_on_exec_of_file(file.path()).unwrap();
        assert!(rustix::io::fcntl_getfd(&again).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert!(!rustix::io::fcntl_getfd(&other).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn descriptors_become_close_on_exec() {
        let file = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
        close_on_exec_from(3).unwrap();
        assert!(rustix::io::fcntl_getfd(&file).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }
}
