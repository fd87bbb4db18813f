#![allow(unsafe_code)]

use std::{io, os::unix::process::CommandExt, process::Command};

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
}
