#![allow(unsafe_code)]

use std::{
    io,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    process::Command,
};

/// Makes the child of `command` the leader of a session of its own, without a terminal.
pub fn new_session(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec the hook calls setsid only, which is async-signal-safe; it allocates nothing.
    unsafe {
        command.pre_exec(|| {
            if libc::setsid() < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        })
    }
}

/// Gives the child of `command` a descriptor under a number of its own, other than those of the standard streams. The
/// command holds the descriptor until it is dropped.
pub fn give_fd(command: &mut Command, fd: OwnedFd, number: RawFd) -> &mut Command {
    // SAFETY: between fork and exec the hook calls dup2 and fcntl only, which are async-signal-safe; it allocates
    // nothing. The descriptor is open, for the hook owns it.
    unsafe {
        command.pre_exec(move || {
            let own = fd.as_raw_fd();
            // A descriptor duplicated onto itself would stay close-on-exec.
            let done = if own == number { libc::fcntl(own, libc::F_SETFD, 0) } else { libc::dup2(own, number) };
            if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_child_leads_its_session() {
        let mut command = Command::new("sh");
        command.args(["-c", "cut -d' ' -f1,6 /proc/$$/stat"]);
        let output = new_session(&mut command).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (pid, session) = text.trim().split_once(' ').unwrap();
        assert_eq!(pid, session);
    }

    #[test]
    fn the_child_has_the_descriptor_under_its_number() {
        use std::io::{Read, Write};
        for number in [3, 9] {
            let (mut own, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            let mut command = Command::new("sh");
            command.args(["-c", &format!("read word <&{number}; echo got $word >&{number}")]);
            let mut child = give_fd(&mut command, theirs.into(), number).spawn().unwrap();
            drop(command);
            own.write_all(b"it\n").unwrap();
            let mut text = String::new();
            own.read_to_string(&mut text).unwrap();
            assert_eq!(text, "got it\n");
            child.wait().unwrap();
        }
    }
}
