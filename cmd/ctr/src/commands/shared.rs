use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use containerd_sdk::{
    DEFAULT_RUNTIME, Registry, StaticCredentials,
    api::{any, runc::v1::Options as RuncOptions, runtimeoptions::v1::Options as RuntimeOptions},
};
use prost_types::Any;

/// Names of the messages with a runtime's options.
const RUNC_OPTIONS: &str = "containerd.runc.v1.Options";
const RUNTIME_OPTIONS: &str = "runtimeoptions.v1.Options";

/// Which snapshotter.
#[derive(Debug, Args)]
pub(crate) struct SnapshotterFlag {
    /// Snapshotter name. Empty value stands for the default value
    #[arg(long, env = "CONTAINERD_SNAPSHOTTER", default_value = "", hide_default_value = true)]
    pub(crate) snapshotter: String,
}

/// Which runtime, and how.
#[derive(Debug, Args)]
pub(crate) struct RuntimeFlags {
    /// Runtime name or absolute path to runtime binary
    #[arg(long, default_value = DEFAULT_RUNTIME)]
    pub(crate) runtime: String,
    /// Optional runtime config path
    #[arg(long)]
    runtime_config_path: Option<String>,
    /// Specify runc-compatible binary
    #[arg(long)]
    runc_binary: Option<String>,
    /// Specify runc-compatible root
    #[arg(long)]
    runc_root: Option<String>,
    /// Start runc with systemd cgroup manager
    #[arg(long)]
    runc_systemd_cgroup: bool,
}

impl RuntimeFlags {
    /// The options as the daemon takes them.
    pub(crate) fn options(&self, cgroup: Option<&str>) -> Result<Option<Any>> {
        if self.runtime != DEFAULT_RUNTIME {
            if self.runc_binary.is_some() || self.runc_systemd_cgroup {
                bail!(
                    "specifying runc-binary and runc-systemd-cgroup is only supported for {DEFAULT_RUNTIME:?} runtime"
                );
            }
            let options = |path: &String| RuntimeOptions { config_path: path.clone(), ..RuntimeOptions::default() };
            return Ok(self.runtime_config_path.as_ref().map(|path| any::pack(RUNTIME_OPTIONS, &options(path))));
        }
        if self.runc_systemd_cgroup && cgroup.is_none_or(str::is_empty) {
            bail!("option --runc-systemd-cgroup requires --cgroup to be set, e.g. \"machine.slice:foo:deadbeef\"");
        }
        let options = RuncOptions {
            binary_name: self.runc_binary.clone().unwrap_or_default(),
            root: self.runc_root.clone().unwrap_or_default(),
            systemd_cgroup: self.runc_systemd_cgroup,
            ..RuncOptions::default()
        };
        Ok(Some(any::pack(RUNC_OPTIONS, &options)))
    }
}

/// How to reach a registry.
#[derive(Debug, Args)]
pub(crate) struct RegistryFlags {
    /// Skip SSL certificate validation
    #[arg(short = 'k', long)]
    skip_verify: bool,
    /// Allow connections using plain HTTP
    #[arg(long)]
    plain_http: bool,
    /// `User[:password]` Registry user and password
    #[arg(short, long)]
    user: Option<String>,
    /// Refresh token for authorization server
    #[arg(long)]
    refresh: Option<String>,
    /// Custom hosts configuration directory
    #[arg(long)]
    hosts_dir: Option<PathBuf>,
    /// Path to TLS root CA
    #[arg(long)]
    tlscacert: Option<PathBuf>,
    /// Path to TLS client certificate
    #[arg(long)]
    tlscert: Option<PathBuf>,
    /// Path to TLS client key
    #[arg(long)]
    tlskey: Option<PathBuf>,
    /// Dump all HTTP request/responses when interacting with container registry
    #[arg(long)]
    http_dump: bool,
    /// Enable HTTP tracing for registry interactions
    #[arg(long)]
    http_trace: bool,
}

impl RegistryFlags {
    /// The registry of an image, reached as the flags say.
    pub(crate) fn registry(&self, reference: &str) -> Result<Registry> {
        let tls = [("skip-verify", self.skip_verify), ("tlscacert", self.tlscacert.is_some())];
        let keys = [("tlscert", self.tlscert.is_some()), ("tlskey", self.tlskey.is_some())];
        if let Some((flag, _)) = tls.into_iter().chain(keys).find(|(_, set)| *set) {
            bail!("--{flag} is not available: the daemon pulls, so say it in a hosts.toml and give --hosts-dir");
        }
        let mut registry = Registry::new(reference);
        if self.plain_http {
            registry.default_scheme = "http".to_owned();
        }
        if let Some(dir) = &self.hosts_dir {
            registry.host_dir = dir.to_string_lossy().into_owned();
        }
        registry.http_debug = self.http_dump;
        registry.http_trace = self.http_trace;
        registry.credentials = self.credentials(reference)?;
        Ok(registry)
    }

    fn credentials(&self, reference: &str) -> Result<Option<std::sync::Arc<dyn containerd_sdk::Credentials>>> {
        let (user, secret) = match (&self.user, &self.refresh) {
            (None, None) => return Ok(None),
            (None, Some(token)) => (String::new(), token.clone()),
            (Some(user), _) => match user.split_once(':') {
                Some((user, password)) => (user.to_owned(), password.to_owned()),
                None => (user.clone(), ask_password()?),
            },
        };
        Ok(Some(std::sync::Arc::new(StaticCredentials::for_reference(reference, &user, &secret))))
    }
}

/// Reads a password from the terminal without showing it.
fn ask_password() -> Result<String> {
    let mut terminal = containerd_sdk::Terminal::current()?;
    eprint!("Password: ");
    terminal.set_raw()?;
    let mut input = terminal.file()?;
    let mut password = Vec::new();
    let mut byte = [0];
    while std::io::Read::read(&mut input, &mut byte)? == 1 {
        match byte[0] {
            b'\r' | b'\n' => break,
            3 => bail!("interrupted"),
            8 | 127 => {
                password.pop();
            }
            other => password.push(other),
        }
    }
    eprint!("\r\n");
    Ok(String::from_utf8(password)?)
}

/// Flags that the existing `ctr` has for pulling on its own side, which is not offered.
pub(crate) fn refuse_local(local: bool) -> Result<()> {
    if local {
        bail!("--local is not available: the daemon does this itself; leave the flag out");
    }
    Ok(())
}
