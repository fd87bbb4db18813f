//! Running the binary of a shim: `start`, `delete`, `-info`.

use std::{
    collections::HashSet,
    ffi::OsString,
    fs::File,
    io::{Read, Seek, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use core_types::{Error, Namespace, Result, ResultExt};

use crate::{
    Any, ExitStatus,
    bootstrap::{self, Endpoint, Params},
    wire,
};

/// The most that is read of what a binary prints.
const MAX_OUTPUT: u64 = 1 << 20;

/// What shims are told about the daemon.
#[derive(Clone, Debug)]
pub(crate) struct Daemon {
    /// gRPC socket.
    pub(crate) grpc: String,
    /// ttrpc socket.
    pub(crate) ttrpc: String,
    /// Executable, for shims that publish events by running it.
    pub(crate) executable: PathBuf,
    /// Version.
    pub(crate) version: String,
    /// Where shims make their sockets.
    pub(crate) socket_dir: PathBuf,
    /// Whether shims log more.
    pub(crate) debug: bool,
    /// More environment, `NAME=value`.
    pub(crate) env: Vec<String>,
}

/// One binary as it is on disk; another file at its path is another binary.
type Fingerprint = (PathBuf, u64, u64, i64, i64);

/// Runs shim binaries and remembers which of them read options instead of bootstrap parameters.
#[derive(Debug)]
pub(crate) struct Runner {
    daemon: Daemon,
    old: Mutex<HashSet<Fingerprint>>,
}

/// One task, as its shim's binary is told of it.
#[derive(Clone, Debug)]
pub(crate) struct Target<'a> {
    /// The binary.
    pub(crate) binary: &'a Path,
    /// Namespace of the task.
    pub(crate) namespace: &'a Namespace,
    /// Id of the task.
    pub(crate) id: &'a str,
    /// Path of its bundle.
    pub(crate) bundle: &'a Path,
}

impl Runner {
    pub(crate) fn new(daemon: Daemon) -> Arc<Self> {
        Arc::new(Self { daemon, old: Mutex::default() })
    }

    /// Starts a shim; answers how to reach it.
    ///
    /// Shims since 2.3 read bootstrap parameters from standard input, older ones the runtime options, and fail
    /// on anything else. The newer form is tried first; a binary that complains about it is asked in the older one, and
    /// remembered.
    ///
    /// # Errors
    /// What the binary said, DeadlineExceeded.
    pub(crate) async fn start(&self, target: &Target<'_>, options: Option<&Any>, limit: Duration) -> Result<Endpoint> {
        let params = Params {
            id: target.id,
            namespace: target.namespace.as_str(),
            debug: self.daemon.debug,
            version: &self.daemon.version,
            ttrpc: &self.daemon.ttrpc,
            grpc: &self.daemon.grpc,
            executable: &self.daemon.executable.to_string_lossy(),
            socket_dir: &self.daemon.socket_dir.to_string_lossy(),
            options,
        };
        let old_input = options.map(bootstrap::any).unwrap_or_default();
        let fingerprint = fingerprint(target.binary)?;
        if self.lock().contains(&fingerprint) {
            return Endpoint::parse(&self.run(target, "start", &old_input, limit).await?);
        }
        let refused = match self.run(target, "start", &params.message(), limit).await {
            Ok(answer) => return Endpoint::parse(&answer),
            Err(error) if !looks_old(&error) => return Err(error),
            Err(error) => error,
        };
        tracing::debug!(shim = %target.binary.display(), error = %refused, "no answer to bootstrap parameters, trying options");
        match self.run(target, "start", &old_input, limit).await {
            Ok(answer) => {
                self.lock().insert(fingerprint);
                Endpoint::parse(&answer)
            }
            // Both failed: when for the same reason it is said once.
            Err(error) if error.message() == refused.message() => Err(error),
            Err(error) => Err(error.context(format_args!("{refused}; in the older form"))),
        }
    }

    /// Cleans up after a dead shim; answers how the task ended, as far as the binary knows.
    ///
    /// # Errors
    /// What the binary said, DeadlineExceeded.
    pub(crate) async fn delete(&self, target: &Target<'_>, limit: Duration) -> Result<ExitStatus> {
        let answer = self.run(target, "delete", &[], limit).await?;
        let mut exit = ExitStatus::default();
        for (field, value) in wire::fields(&answer).doing("answer of the shim's delete")? {
            match field {
                1 => exit.pid = value.number() as u32,
                2 => exit.status = value.number() as u32,
                3 => exit.exited_at = wire::time(value.bytes())?,
                _ => {}
            }
        }
        Ok(exit)
    }

    /// What a shim says of itself: an encoded `containerd.types.RuntimeInfo`.
    ///
    /// # Errors
    /// What the binary said, DeadlineExceeded.
    pub(crate) async fn info(&self, binary: &Path, options: Option<&Any>, limit: Duration) -> Result<Vec<u8>> {
        let input = options.map(bootstrap::any).unwrap_or_default();
        let mut command = tokio::process::Command::new(binary);
        command.arg("-info");
        run(command, binary, "-info", &input, limit).await
    }

    async fn run(&self, target: &Target<'_>, action: &str, input: &[u8], limit: Duration) -> Result<Vec<u8>> {
        let mut command = tokio::process::Command::new(target.binary);
        command.current_dir(target.bundle).args(self.arguments(target, action));
        command
            .env("GOMAXPROCS", "2")
            .env("MAX_SHIM_VERSION", "2")
            .env("TTRPC_ADDRESS", &self.daemon.ttrpc)
            .env("GRPC_ADDRESS", &self.daemon.grpc)
            .env("NAMESPACE", target.namespace.as_str());
        command.envs(self.daemon.env.iter().filter_map(|pair| pair.split_once('=')));
        run(command, target.binary, action, input, limit).await
    }

    fn arguments(&self, target: &Target<'_>, action: &str) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec![
            "-namespace".into(),
            target.namespace.as_str().into(),
            "-address".into(),
            self.daemon.grpc.as_str().into(),
            "-publish-binary".into(),
            self.daemon.executable.clone().into(),
            "-id".into(),
            target.id.into(),
        ];
        if action == "delete" {
            arguments.extend(["-bundle".into(), target.bundle.into()]);
        }
        if self.daemon.debug {
            arguments.push("-debug".into());
        }
        arguments.push(action.into());
        arguments
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<Fingerprint>> {
        self.old.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Whether a failed start is that of a shim that took bootstrap parameters for runtime options: it ended and complained
/// about what it could not read. Any other start that fails is not tried again, since it may have left something.
fn looks_old(error: &Error) -> bool {
    const COMPLAINTS: [&str; 9] = [
        "type with url",
        "type url",
        "no such type",
        "unmarshal",
        "proto:",
        "protobuf",
        "wire type",
        "wiretype",
        "failed to parse",
    ];
    let said = error.message().to_lowercase();
    error.kind() == core_types::ErrorKind::Unknown && COMPLAINTS.iter().any(|complaint| said.contains(complaint))
}

/// Input and output go through anonymous files: no pipe that a grandchild keeps open can hold the daemon up.
async fn run(
    mut command: tokio::process::Command,
    binary: &Path,
    action: &str,
    input: &[u8],
    limit: Duration,
) -> Result<Vec<u8>> {
    let what = format!("{} {action}", binary.display());
    let (mut output, mut errors) = (anonymous()?, anonymous()?);
    let mut stdin = anonymous()?;
    stdin.write_all(input).and_then(|()| stdin.rewind()).doing(&what)?;
    command
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(output.try_clone().doing(&what)?))
        .stderr(Stdio::from(errors.try_clone().doing(&what)?))
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn().doing(format_args!("run {what}"))?;
    let status = match tokio::time::timeout(limit, child.wait()).await {
        Ok(status) => status.doing(format_args!("run {what}"))?,
        Err(_) => {
            kill_group(&child);
            let _ = child.start_kill();
            let said = read_all(&mut errors).unwrap_or_default();
            return Err(Error::deadline_exceeded(format!("{what} did not end within {limit:?}{}", shown(&said))));
        }
    };
    let answer = read_all(&mut output).doing(format_args!("read the answer of {what}"))?;
    let said = read_all(&mut errors).unwrap_or_default();
    if !status.success() {
        let mut all = answer;
        all.extend_from_slice(&said);
        return Err(Error::unknown(format!("{what} failed: {status}{}", shown(&all))));
    }
    if !said.is_empty() {
        tracing::debug!(shim = what, "{}", String::from_utf8_lossy(&said).trim());
    }
    Ok(answer)
}

fn kill_group(child: &tokio::process::Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
}

fn shown(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!(": {}", text.chars().take(2000).collect::<String>()) }
}

fn anonymous() -> Result<File> {
    rustix::fs::memfd_create("shim-io", rustix::fs::MemfdFlags::CLOEXEC)
        .map(File::from)
        .map_err(std::io::Error::from)
        .doing("create an anonymous file")
}

fn read_all(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut data = Vec::new();
    file.rewind()?;
    file.take(MAX_OUTPUT).read_to_end(&mut data)?;
    Ok(data)
}

fn fingerprint(binary: &Path) -> Result<Fingerprint> {
    let meta = binary.metadata().doing(format_args!("shim {}", binary.display()))?;
    Ok((binary.to_path_buf(), meta.dev(), meta.ino(), meta.mtime(), meta.mtime_nsec()))
}

#[cfg(test)]
mod tests;
