use std::{
    ffi::OsString,
    os::fd::OwnedFd,
    path::PathBuf,
    process::{Command, Stdio as Redirect},
    time::Duration,
};

use command_fds::{CommandFdExt, FdMapping};
use core_types::{Error, Result};
use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal, kill_process},
};
use tokio::{net::unix::pipe, sync::oneshot};

use crate::{
    reaper::{Exit, Reaper},
    stdio::Owner,
};

/// How long a log program may take until it is ready.
const READY: Duration = Duration::from_secs(30);
/// How long it may take to finish by itself once its input has ended, before it is asked to.
const FINISH: Duration = Duration::from_secs(2);
/// How long it may take once it was asked to.
const TERMINATE: Duration = Duration::from_secs(10);

/// A program named by `binary://path?key=value…`: keys and values are its arguments.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
    /// Whether it must say that it is ready; programs of the first version may just close the descriptor.
    must_report: bool,
}

impl Program {
    pub(crate) fn parse(rest: &str, must_report: bool) -> Result<Self> {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = PathBuf::from(decode(path));
        if !path.is_absolute() {
            return Err(Error::invalid_argument(format!("log program {} needs an absolute path", path.display())));
        }
        let mut arguments = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            arguments.push(decode(&key.replace('+', " ")).into());
            arguments.push(decode(&value.replace('+', " ")).into());
        }
        Ok(Self { path, arguments, must_report })
    }
}

/// Undoes percent encoding; what is no such encoding stays as it is.
pub(crate) fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).filter(|digits| *first == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let encoded = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match encoded {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A running log program.
#[derive(Debug)]
pub(crate) struct Logger {
    pid: u32,
    exit: oneshot::Receiver<Exit>,
}

impl Logger {
    /// Starts a program and waits until it is ready; gives the ends to write output and errors to.
    pub(crate) async fn start(program: Program, owner: Owner<'_>, reaper: &Reaper) -> Result<(Self, [OwnedFd; 2])> {
        let path = program.path.display().to_string();
        let doing = |error: std::io::Error| Error::io(format_args!("start log program {path}"), error);
        let new_pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| doing(error.into()));
        let ((out_read, out), (err_read, err), (ready, ready_write)) = (new_pipe()?, new_pipe()?, new_pipe()?);
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).env_clear();
        command.env("CONTAINER_ID", owner.id).env("CONTAINER_NAMESPACE", owner.namespace);
        command.stdin(Redirect::null()).stdout(Redirect::null()).stderr(Redirect::null());
        let mapping = |parent_fd, child_fd| FdMapping { parent_fd, child_fd };
        command
            .fd_mappings(vec![mapping(out_read, 3), mapping(err_read, 4), mapping(ready_write, 5)])
            .map_err(|error| Error::internal(format!("start log program {path}: {error}")))?;
        let (pid, exit) = reaper.spawn(&mut command).map_err(doing)?;
        // Also closes the ends that only the program shall have.
        drop(command);
        let logger = Self { pid, exit };
        let ready = pipe::Receiver::from_owned_fd(ready).map_err(doing)?;
        let reported = match tokio::time::timeout(READY, is_ready(&ready)).await {
            Ok(reported) => reported,
            Err(_) => {
                logger.signal(Signal::KILL);
                return Err(Error::deadline_exceeded(format!("log program {path} was not ready within {READY:?}")));
            }
        };
        if program.must_report && !reported {
            logger.signal(Signal::KILL);
            return Err(Error::unknown(format!("log program {path} ended without being ready")));
        }
        Ok((logger, [out, err]))
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            // One that has ended needs no signal.
            let _ = kill_process(pid, signal);
        }
    }

    /// Sees to it that the program ends, in the background: it may still have output to store.
    pub(crate) fn finish(mut self) {
        tokio::spawn(async move {
            for (limit, signal) in [(FINISH, Signal::TERM), (TERMINATE, Signal::KILL)] {
                if tokio::time::timeout(limit, &mut self.exit).await.is_ok() {
                    return;
                }
                self.signal(signal);
            }
        });
    }
}

/// Whether something was written before the other end was closed.
async fn is_ready(pipe: &pipe::Receiver) -> bool {
    while pipe.readable().await.is_ok() {
        match pipe.try_read(&mut [0]) {
            Ok(count) => return count > 0,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_from_the_query() {
        let program = Program::parse("/bin/log%20it?a=b%2Fc&flag&x=1+2", false).unwrap();
        assert_eq!(program.path, PathBuf::from("/bin/log it"));
        assert_eq!(program.arguments, ["a", "b/c", "flag", "", "x", "1 2"]);
        assert!(Program::parse("log", false).is_err());
        assert_eq!(decode("100%"), "100%");
    }
}
