use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use tokio::io::unix::AsyncFd;

/// Lets the event loop watch a descriptor.
///
/// tokio deprecates this constructor for types that may close or change the descriptor behind its back; the
/// types of this crate own theirs for as long as they live.
#[allow(deprecated)]
pub(crate) fn watched<T: AsFd + AsRawFd>(fd: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::new(fd)
}
