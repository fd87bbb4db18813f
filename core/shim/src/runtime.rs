use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Command, Stdio as Redirect},
    sync::Arc,
    time::Duration,
};

use core_types::{Error, Result};
use rustix::{
    fs::MemfdFlags,
    process::{Pid, Signal, kill_process_group},
};
use serde::Deserialize;

use crate::{Reaper, create::blocking, release::release, spec::has_poststart_hooks, stdio::ChildStreams};

/// Where runtimes keep their state unless told otherwise; a folder for each namespace below it.
pub const DEFAULT_ROOT: &str = "/run/containerd/runc";
/// Making or starting a container may run hooks and wait for slow disks.
const LONG: Duration = Duration::from_secs(120);
/// Everything else is quick.
const SHORT: Duration = Duration::from_secs(20);
/// More than any answer or message of a runtime that is of use.
const MAX_OUTPUT: u64 = 4 << 20;

/// The end of an error when the runtime did not say what was wrong.
pub(crate) const NO_MESSAGE: &str = "without a message";

/// How a runtime is to be called.
#[derive(Clone, Debug, Default)]
pub struct RuntimeOptions {
    /// Program, by name or path; empty is `runc`.
    pub binary: String,
    /// Parent of its state folders; empty is [`DEFAULT_ROOT`].
    pub root: String,
    /// Whether it asks systemd for cgroups.
    pub systemd_cgroup: bool,
    /// Whether it makes the root file system without `pivot_root`.
    pub no_pivot: bool,
    /// Whether the container stays in the caller's session keyring.
    pub no_new_keyring: bool,
}

/// The command line of an OCI runtime (runc, crun, youki).
#[derive(Clone, Debug)]
pub struct OciRuntime {
    reaper: Arc<Reaper>,
    options: RuntimeOptions,
    root: PathBuf,
    log: PathBuf,
}

/// Where the streams of a call lead.
pub(crate) enum Streams {
    /// Into the error message; the text is given on standard input.
    Capture(Option<Vec<u8>>),
    /// To the container.
    Container(ChildStreams),
}

impl OciRuntime {
    /// A runtime that keeps the state of `namespace` and writes its log into `bundle`.
    pub fn new(reaper: Arc<Reaper>, options: RuntimeOptions, namespace: &str, bundle: &Path) -> Self {
        let root = if options.root.is_empty() { DEFAULT_ROOT } else { options.root.as_str() };
        let root = Path::new(root).join(namespace);
        Self { reaper, root, log: bundle.join("log.json"), options }
    }

    fn binary(&self) -> &str {
        if self.options.binary.is_empty() { "runc" } else { self.options.binary.as_str() }
    }

    /// Whether the runtime is runc by its name. Others, also those that wrap it, may do more than runc does.
    fn is_runc(&self) -> bool {
        Path::new(self.binary()).file_name().is_some_and(|name| name == "runc")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.binary());
        command.arg("--root").arg(&self.root).arg("--log").arg(&self.log).args(["--log-format", "json"]);
        if self.options.systemd_cgroup {
            command.arg("--systemd-cgroup");
        }
        // A container is no service of the daemon's, and must not announce itself as one.
        command.env_remove("NOTIFY_SOCKET").process_group(0);
        command
    }

    pub(crate) async fn create(
        &self,
        id: &str,
        bundle: &Path,
        pid_file: &Path,
        console: Option<&Path>,
        streams: Streams,
    ) -> Result<()> {
        let mut command = self.command();
        command.arg("create").arg("--bundle").arg(bundle).arg("--pid-file").arg(pid_file);
        if let Some(console) = console {
            command.arg("--console-socket").arg(console);
        }
        if self.options.no_pivot {
            command.arg("--no-pivot");
        }
        if self.options.no_new_keyring {
            command.arg("--no-new-keyring");
        }
        command.arg("--").arg(id);
        self.run(command, streams, LONG, "OCI runtime create failed").await
    }

    pub(crate) async fn exec(
        &self,
        id: &str,
        process: &Path,
        pid_file: &Path,
        console: Option<&Path>,
        streams: Streams,
    ) -> Result<()> {
        let mut command = self.command();
        command.arg("exec").arg("--process").arg(process).arg("--detach").arg("--pid-file").arg(pid_file);
        if let Some(console) = console {
            command.arg("--console-socket").arg(console);
        }
        command.arg("--").arg(id);
        self.run(command, streams, LONG, "OCI runtime exec failed").await
    }

    async fn verb(&self, words: &[&str], id: &str, limit: Duration, failed: &str) -> Result<()> {
        let mut command = self.command();
        command.args(words).arg("--").arg(id);
        self.run(command, Streams::Capture(None), limit, failed).await
    }

    /// Starts init, which is `pid`; without the runtime where that is known to come to the same.
    pub(crate) async fn start(&self, id: &str, bundle: &Path, pid: u32) -> Result<()> {
        if self.is_runc() {
            let (state, bundle) = (self.root.join(id), bundle.to_owned());
            if blocking(move || Ok(!has_poststart_hooks(&bundle) && release(&state, pid))).await? {
                return Ok(());
            }
        }
        self.verb(&["start"], id, LONG, "OCI runtime start failed").await
    }

    pub(crate) async fn pause(&self, id: &str) -> Result<()> {
        self.verb(&["pause"], id, SHORT, "OCI runtime pause failed").await
    }

    pub(crate) async fn resume(&self, id: &str) -> Result<()> {
        self.verb(&["resume"], id, SHORT, "OCI runtime resume failed").await
    }

    /// Removes the container; one that the runtime does not know is no error.
    ///
    /// # Errors
    /// Unknown with the runtime's own message, DeadlineExceeded.
    pub async fn delete(&self, id: &str, force: bool) -> Result<()> {
        let words: &[&str] = if force { &["delete", "--force"] } else { &["delete"] };
        match self.verb(words, id, SHORT, "failed to delete task").await {
            Err(error) if error.message().contains("does not exist") => Ok(()),
            other => other,
        }
    }

    /// Sends a signal to init, or to every process.
    pub(crate) async fn kill(&self, id: &str, signal: u32, all: bool) -> Result<()> {
        let mut command = self.command();
        command.arg("kill");
        if all {
            command.arg("--all");
        }
        command.arg("--").arg(id).arg(signal.to_string());
        let done = self.run(command, Streams::Capture(None), SHORT, "kill failed").await;
        let Err(error) = done else { return Ok(()) };
        let text = error.message().to_lowercase();
        let gone = ["process already finished", "container not running", "no such process", "not running"];
        if gone.iter().any(|words| text.contains(words)) {
            return Err(Error::not_found("process already finished"));
        }
        if text.contains("does not exist") {
            return Err(Error::not_found("no such container"));
        }
        Err(error)
    }

    /// Applies `LinuxResources` as JSON.
    pub(crate) async fn update(&self, id: &str, resources: Vec<u8>) -> Result<()> {
        let mut command = self.command();
        command.args(["update", "--resources", "-", "--"]).arg(id);
        self.run(command, Streams::Capture(Some(resources)), SHORT, "OCI runtime update failed").await
    }

    async fn run(&self, mut command: Command, streams: Streams, limit: Duration, failed: &str) -> Result<()> {
        let log_start = std::fs::metadata(&self.log).map_or(0, |log| log.len());
        let captured = redirect(&mut command, streams).map_err(|error| Error::io(failed, error))?;
        let spawned = self.reaper.spawn(&mut command);
        let (pid, exit) = spawned.map_err(|error| {
            let program = Path::new(command.get_program()).display();
            Error::unknown(format!("{failed}: cannot run {program}: {error}"))
        })?;
        // The parent's copies of the container's streams must not outlive the start of the runtime.
        drop(command);
        let Ok(exit) = tokio::time::timeout(limit, exit).await else {
            if let Some(group) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                // It may have ended just now; then there is nothing to kill.
                let _ = kill_process_group(group, Signal::KILL);
            }
            return Err(Error::deadline_exceeded(format!("{failed}: the runtime did not finish within {limit:?}")));
        };
        match exit.map(|exit| exit.status) {
            Ok(0) => Ok(()),
            status => {
                let status = status.unwrap_or(255);
                let message = last_error(&self.log, log_start)
                    .or_else(|| captured.and_then(text))
                    .unwrap_or_else(|| format!("exit status {status}, {NO_MESSAGE}"));
                Err(Error::unknown(format!("{failed}: {message}")))
            }
        }
    }
}

/// Connects the streams of a command; gives the file that its output goes to when it is captured.
fn redirect(command: &mut Command, streams: Streams) -> io::Result<Option<File>> {
    let or_null = |fd: Option<OwnedFd>| fd.map_or_else(Redirect::null, Redirect::from);
    match streams {
        Streams::Container(streams) => {
            command.stdin(or_null(streams.stdin));
            command.stdout(or_null(streams.stdout));
            command.stderr(or_null(streams.stderr));
            Ok(None)
        }
        Streams::Capture(input) => {
            command.stdin(match input {
                None => Redirect::null(),
                Some(input) => {
                    let mut file = memory_file()?;
                    file.write_all(&input)?;
                    file.seek(SeekFrom::Start(0))?;
                    Redirect::from(file)
                }
            });
            let output = memory_file()?;
            command.stdout(output.try_clone()?).stderr(output.try_clone()?);
            Ok(Some(output))
        }
    }
}

/// A file in memory takes any output without anybody reading at the same time.
fn memory_file() -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create("runtime", MemfdFlags::CLOEXEC)?))
}

fn text(mut file: File) -> Option<String> {
    file.seek(SeekFrom::Start(0)).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_OUTPUT).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[derive(Deserialize)]
struct LogLine {
    #[serde(default)]
    level: String,
    #[serde(default)]
    msg: String,
}

/// The last error that was logged from `start` on.
fn last_error(log: &Path, start: u64) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    // A runtime may have replaced the log rather than added to it.
    file.seek(SeekFrom::Start(if start > length { 0 } else { start })).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_OUTPUT).read_to_end(&mut bytes).ok()?;
    let mut last = None;
    for line in serde_json::Deserializer::from_slice(&bytes).into_iter::<LogLine>().map_while(|line| line.ok()) {
        if matches!(line.level.as_str(), "error" | "fatal") {
            last = Some(line.msg.trim().to_owned());
        }
    }
    last
}

use std::os::unix::process::CommandExt as _;

#[cfg(test)]
#[path = "runtime/tests.rs"]
mod tests;
