#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
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
    fn descriptors_become_close_on_exec() {
        let file = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
        close_on_exec_from(3).unwrap();
        assert!(rustix::io::fcntl_getfd(&file).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }
}
