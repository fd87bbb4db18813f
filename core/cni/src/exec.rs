use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    time::{sleep, timeout},
};

use crate::error::{Cause, Error, PluginFailure, Result};

/// Most bytes that are read of a plugin's answer, and that are kept of its complaints.
const OUTPUT: usize = 1 << 20;
/// How much of what a plugin wrote an error quotes.
const QUOTE: usize = 4096;
/// How long what a plugin left running may hold its output open after the plugin ended.
const DRAIN: Duration = Duration::from_secs(1);
/// How long a killed plugin may take to be gone.
const REAP: Duration = Duration::from_secs(10);
/// A binary that is just being replaced cannot be started: how often and how far apart it is tried.
const BUSY: (u32, Duration) = (20, Duration::from_millis(50));

/// Runs plugins.
#[derive(Debug)]
pub(crate) struct Runner {
    dirs: Vec<PathBuf>,
    search_path: OsString,
    deadline: Duration,
}

/// One call of a plugin: its environment.
#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) network: &'a str,
    pub(crate) plugin: &'a str,
    pub(crate) command: &'static str,
    pub(crate) id: &'a str,
    pub(crate) netns: &'a Path,
    pub(crate) ifname: &'a str,
    pub(crate) args: &'a str,
}

impl Call<'_> {
    fn failed(&self, cause: Cause) -> Error {
        PluginFailure { network: self.network.to_owned(), plugin: self.plugin.to_owned(), command: self.command, cause }
            .into()
    }

    /// An answer that is not as it must be.
    pub(crate) fn garbage(&self, reason: impl ToString, output: &[u8]) -> Error {
        self.failed(Cause::Garbage { reason: reason.to_string(), output: quote(output) })
    }
}

/// The error of a plugin as the specification has it.
#[derive(Deserialize)]
struct Reported {
    code: u64,
    #[serde(default)]
    msg: String,
    #[serde(default)]
    details: String,
}

impl Runner {
    /// Looks for plugins in these directories, in order, and gives each call this long.
    pub(crate) fn new(dirs: Vec<PathBuf>, deadline: Duration) -> Result<Self> {
        let search_path = std::env::join_paths(&dirs)
            .map_err(|_| Error::Invalid(format!("a directory of network plugins has a ':' in its name: {dirs:?}")))?;
        Ok(Self { dirs, search_path, deadline })
    }

    /// The directories that are searched.
    pub(crate) fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// Where the plugin's binary is.
    pub(crate) fn find(&self, plugin: &str) -> Result<PathBuf> {
        self.dirs
            .iter()
            .map(|dir| dir.join(plugin))
            .find(|path| path.is_file())
            .ok_or_else(|| Error::PluginMissing { plugin: plugin.to_owned(), dirs: self.dirs.clone() })
    }

    /// Runs the plugin and returns what it answered. Whatever happens, the plugin does not outlive the call.
    pub(crate) async fn run(&self, call: &Call<'_>, input: &[u8]) -> Result<Vec<u8>> {
        let path = self.find(call.plugin)?;
        let mut running = Running(self.spawn(&path, call).await.map_err(|error| call.failed(Cause::Run(error)))?);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let ended = timeout(self.deadline, running.talk(input, &mut out, &mut err)).await;
        let status = match ended {
            Ok(Ok(status)) if out.len() <= OUTPUT => status,
            Ok(Ok(_)) => return Err(call.failed(Cause::TooMuch { limit: OUTPUT })),
            Ok(Err(error)) => {
                running.end().await;
                return Err(call.failed(if out.len() > OUTPUT {
                    Cause::TooMuch { limit: OUTPUT }
                } else {
                    Cause::Run(error)
                }));
            }
            Err(_) => {
                running.end().await;
                return Err(call.failed(Cause::TimedOut { after: self.deadline }));
            }
        };
        if !err.is_empty() {
            tracing::debug!(plugin = call.plugin, command = call.command, id = call.id, stderr = %quote(&err));
        }
        if status.success() { Ok(out) } else { Err(call.failed(cause(status, &out, &err))) }
    }

    async fn spawn(&self, path: &Path, call: &Call<'_>) -> io::Result<Child> {
        let mut command = Command::new(path);
        command
            .env("CNI_COMMAND", call.command)
            .env("CNI_CONTAINERID", call.id)
            .env("CNI_NETNS", call.netns)
            .env("CNI_IFNAME", call.ifname)
            .env("CNI_ARGS", call.args)
            .env("CNI_PATH", &self.search_path)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let (mut tries, pause) = BUSY;
        loop {
            match command.spawn() {
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && tries > 0 => {
                    tries -= 1;
                    sleep(pause).await;
                }
                other => return other,
            }
        }
    }
}

/// A plugin that runs; dropped, it is killed with all of its process group.
struct Running(Child);

impl Running {
    /// Gives the plugin its input, takes its output, and waits for its end.
    async fn talk(&mut self, input: &[u8], out: &mut Vec<u8>, err: &mut Vec<u8>) -> io::Result<ExitStatus> {
        let (stdin, stdout, stderr) = (self.0.stdin.take(), self.0.stdout.take(), self.0.stderr.take());
        let write = async {
            if let Some(mut stdin) = stdin {
                // A plugin need not read what it is given.
                let _ = stdin.write_all(input).await;
            }
            Ok(())
        };
        let talk = async { futures::try_join!(write, collect(stdout, out), keep_beginning(stderr, err)).map(drop) };
        tokio::pin!(talk);
        tokio::select! {
            biased;
            talked = &mut talk => {
                talked?;
                self.0.wait().await
            }
            status = self.0.wait() => {
                // What it left running may hold the pipes; what was written until now is there at once.
                if let Ok(talked) = timeout(DRAIN, talk).await {
                    talked?;
                }
                status
            }
        }
    }

    fn kill(&self) {
        // The id is there as long as the process was not waited for, so it cannot be another's.
        let pid = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    async fn end(&mut self) {
        self.kill();
        if timeout(REAP, self.0.wait()).await.is_err() {
            tracing::warn!(pid = self.0.id(), "a killed network plugin does not end");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads all, and fails as soon as it is more than [`OUTPUT`].
async fn collect(from: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) -> io::Result<()> {
    let Some(from) = from else { return Ok(()) };
    from.take(OUTPUT as u64 + 1).read_to_end(into).await?;
    if into.len() > OUTPUT { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(()) }
}

/// Reads all, and keeps no more than [`OUTPUT`].
async fn keep_beginning(from: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) -> io::Result<()> {
    let Some(mut from) = from else { return Ok(()) };
    let mut part = vec![0; 8 << 10];
    loop {
        let count = from.read(&mut part).await?;
        if count == 0 {
            return Ok(());
        }
        let room = count.min(OUTPUT - into.len());
        into.extend_from_slice(part.get(..room).unwrap_or_default());
    }
}

fn cause(status: ExitStatus, out: &[u8], err: &[u8]) -> Cause {
    if let Some(signal) = status.signal() {
        return Cause::Signal { signal, output: quote(if out.is_empty() { err } else { out }) };
    }
    match serde_json::from_slice::<Reported>(out) {
        Ok(Reported { code, msg, details }) => {
            Cause::Reported { code, msg: quote(msg.as_bytes()), details: quote(details.as_bytes()) }
        }
        Err(_) => {
            let mut output = quote(out);
            if !output.is_empty() && !err.is_empty() {
                output.push_str(" / ");
            }
            output.push_str(&quote(err));
            Cause::Exit { status: status.code().unwrap_or(-1), output }
        }
    }
}

/// The beginning of an output as one line of text.
fn quote(output: &[u8]) -> String {
    let beginning = output.get(..QUOTE).unwrap_or(output);
    let text = String::from_utf8_lossy(beginning);
    let mut line: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if beginning.len() < output.len() {
        line.push('…');
    }
    line
}
