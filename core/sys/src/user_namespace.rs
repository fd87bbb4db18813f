#![allow(unsafe_code)]

use std::{
    fs,
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::process::CommandExt},
    process::Command,
};

/// Some ids of a user namespace and what they are outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// First id in the namespace.
    pub inside: u32,
    /// The same id outside of it.
    pub outside: u32,
    /// How many there are.
    pub length: u32,
}

/// The ids of a user namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserMappings {
    /// User ids.
    pub uids: Vec<IdRange>,
    /// Group ids.
    pub gids: Vec<IdRange>,
}

/// Makes a user namespace with these ids, and a network namespace that it owns, and calls `pin` with the pid of a process
/// that is in both for as long as `pin` runs. Blocking.
///
/// # Errors
/// What the kernel says to the namespaces or the ids, and what `pin` says.
pub fn with_owned_network_namespace<T>(
    mappings: &UserMappings,
    pin: impl FnOnce(u32) -> io::Result<T>,
) -> io::Result<T> {
    let (mut pids, child_pids) = io::pipe()?;
    let (child_gate, gate) = io::pipe()?;
    let (told, waits, gate_fd) = (child_pids.as_raw_fd(), child_gate.as_raw_fd(), gate.as_raw_fd());
    // Never run: the child ends between fork and exec.
    let mut command = Command::new("/");
    // SAFETY: between fork and exec the hook makes system calls only (close, unshare, getpid, write, read), which are
    // async-signal-safe, on descriptors that this function keeps open meanwhile; it allocates nothing.
    unsafe {
        command.pre_exec(move || {
            // Else its own copy would keep the gate from closing.
            libc::close(gate_fd);
            if libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) < 0 {
                return Err(io::Error::last_os_error());
            }
            let pid = libc::getpid().to_ne_bytes();
            if libc::write(told, pid.as_ptr().cast(), pid.len()) < 0 {
                return Err(io::Error::last_os_error());
            }
            let mut byte = 0_u8;
            libc::read(waits, (&raw mut byte).cast(), 1);
            Err(io::Error::from_raw_os_error(libc::ECANCELED))
        });
    }
    std::thread::scope(|scope| {
        let child = scope.spawn(move || {
            let spawned = command.spawn();
            // The reader of pids learns that nothing more comes.
            drop(child_pids);
            match spawned {
                Err(error) => error,
                Ok(mut child) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    io::Error::other("a process ran that should not")
                }
            }
        });
        let mut pid = [0; 4];
        let pinned = match pids.read_exact(&mut pid) {
            Ok(()) => map(u32::from_ne_bytes(pid), mappings).and_then(|()| pin(u32::from_ne_bytes(pid))),
            Err(error) => Err(error),
        };
        drop(gate);
        match (pinned, child.join()) {
            (Ok(value), _) => Ok(value),
            // The child did not come so far as to tell its pid: its error says why.
            (Err(error), Ok(cause)) if error.kind() == io::ErrorKind::UnexpectedEof => Err(cause),
            (Err(error), _) => Err(error),
        }
    })
}

fn map(pid: u32, mappings: &UserMappings) -> io::Result<()> {
    for (file, ranges) in [("uid_map", &mappings.uids), ("gid_map", &mappings.gids)] {
        let text: String =
            ranges.iter().map(|range| format!("{} {} {}\n", range.inside, range.outside, range.length)).collect();
        fs::OpenOptions::new().write(true).open(format!("/proc/{pid}/{file}"))?.write_all(text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespaces_are_new_and_have_the_ids() {
        let range = IdRange { inside: 0, outside: 100_000, length: 65_536 };
        let mappings = UserMappings { uids: vec![range], gids: vec![range] };
        let link = |pid: &str, kind: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}"));
        let made = with_owned_network_namespace(&mappings, |pid| {
            let pid = pid.to_string();
            assert_ne!(link(&pid, "net")?, link("self", "net")?);
            assert_ne!(link(&pid, "user")?, link("self", "user")?);
            fs::read_to_string(format!("/proc/{pid}/uid_map"))
        });
        match made {
            Ok(map) => assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", "100000", "65536"]),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => eprintln!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn ids_that_cannot_be_are_an_error_and_nothing_is_left() {
        let range = IdRange { inside: 0, outside: 0, length: 0 };
        let mappings = UserMappings { uids: vec![range], gids: vec![range] };
        assert!(with_owned_network_namespace(&mappings, |_| Ok(())).is_err());
    }
}
