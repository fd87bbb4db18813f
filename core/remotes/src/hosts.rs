//! Which hosts serve a registry's name: `hosts.toml` and the defaults (containerd `docs/hosts.md`).

use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use core_types::{Error, Result, ResultExt};
use serde::Deserialize;
use toml::{Table, Value};

/// The longest `hosts.toml`, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// What a host may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Content by digest.
    pub pull: bool,
    /// Which digest a tag stands for.
    pub resolve: bool,
    /// Taking content.
    pub push: bool,
    /// Listing what refers to a manifest.
    pub referrers: bool,
}

impl Capabilities {
    /// Everything.
    pub const ALL: Self = Self { pull: true, resolve: true, push: true, referrers: true };
    const NONE: Self = Self { pull: false, resolve: false, push: false, referrers: false };
}

/// One host and how to talk to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// `https` or `http`.
    pub scheme: String,
    /// Host with port.
    pub host: String,
    /// Where the API begins, `/v2`.
    pub path: String,
    /// What it may be asked for.
    pub capabilities: Capabilities,
    /// Files with certificates that sign the host's.
    pub ca: Vec<PathBuf>,
    /// Client certificates with their keys; the key is in the same file when none is named.
    pub client: Vec<(PathBuf, Option<PathBuf>)>,
    /// Whether not to check the host's certificate; not set means check.
    pub skip_verify: Option<bool>,
    /// Headers for each request to this host.
    pub headers: Vec<(String, String)>,
    /// The longest time for a connection to be made.
    pub dial_timeout: Option<Duration>,
    /// Try TLS first, and plain HTTP when the host does not speak it.
    pub falls_back_to_http: bool,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            scheme: String::new(),
            host: String::new(),
            path: String::new(),
            capabilities: Capabilities::ALL,
            ca: Vec::new(),
            client: Vec::new(),
            skip_verify: None,
            headers: Vec::new(),
            dial_timeout: None,
            falls_back_to_http: false,
        }
    }
}

impl HostConfig {
    fn has_tls_settings(&self) -> bool {
        !self.ca.is_empty() || !self.client.is_empty() || self.skip_verify.is_some()
    }

    /// Whether this host stands in for `registry`, so that requests must name it (`?ns=`).
    pub fn is_proxy_for(&self, registry: &str) -> bool {
        registry != self.host && !(registry == "docker.io" && self.host == "registry-1.docker.io")
    }
}

/// The hosts for the registry `name` (`docker.io`, `localhost:5000`), in the order to try them. `config_path` lists
/// directories, separated by colons, that have one directory for each registry.
///
/// # Errors
/// What the disk says. A malformed `hosts.toml` is logged and counts as absent, as in containerd.
pub fn hosts_for(name: &str, config_path: Option<&Path>, default_scheme: Option<&str>) -> Result<Vec<HostConfig>> {
    let mut hosts = match config_path.map(|path| host_directory(path, name)).transpose()?.flatten() {
        Some(directory) => load_directory(&directory)?,
        None => vec![HostConfig::default()],
    };
    if let Some(last) = hosts.last_mut().filter(|last| last.host.is_empty()) {
        fill_default(last, name, default_scheme);
    }
    for host in &mut hosts {
        if host.scheme == "http" && host.has_tls_settings() && port(&host.host) != Some("80") {
            host.scheme = "https".to_owned();
            host.falls_back_to_http = true;
        }
    }
    Ok(hosts)
}

/// The registry's own host, for when no file names one.
fn fill_default(host: &mut HostConfig, name: &str, default_scheme: Option<&str>) {
    let default_scheme = default_scheme.filter(|scheme| !scheme.is_empty());
    if name == "docker.io" {
        host.scheme = "https".to_owned();
        host.host = "registry-1.docker.io".to_owned();
    } else {
        host.host = name.to_owned();
        host.scheme = match default_scheme {
            Some(scheme) => scheme.to_owned(),
            None if is_loopback(name) => {
                if port(name) != Some("80") {
                    host.skip_verify = Some(true);
                }
                (if matches!(port(name), None | Some("443")) { "https" } else { "http" }).to_owned()
            }
            None => "https".to_owned(),
        };
    }
    host.path = "/v2".to_owned();
    host.capabilities = Capabilities::ALL;
}

/// Whether a host with or without port is this machine's loopback.
pub fn is_loopback(host: &str) -> bool {
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None if host.matches(':').count() > 1 => host,
        None => host.split(':').next().unwrap_or(host),
    };
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn port(host: &str) -> Option<&str> {
    let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
    after.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.is_empty())
}

/// The directory of a registry: `host_port_`, `host:port`, `_default`, in the first place that has one.
fn host_directory(config_path: &Path, name: &str) -> Result<Option<PathBuf>> {
    if name.contains('/') || matches!(name, "." | "..") {
        return Err(Error::invalid_argument(format!("invalid registry name {name:?}")));
    }
    let mut forms = Vec::new();
    if let Some((host, port)) = name.rsplit_once(':').filter(|(host, _)| !host.is_empty()) {
        forms.push(format!("{host}_{port}_"));
    }
    forms.extend([name.to_owned(), "_default".to_owned()]);
    for root in std::env::split_paths(config_path).filter(|root| !root.as_os_str().is_empty()) {
        for form in &forms {
            let directory = root.join(form);
            match std::fs::metadata(&directory) {
                Ok(_) => return Ok(Some(directory)),
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
                Err(error) => return Err(Error::io(format!("look for {}", directory.display()), error)),
            }
        }
    }
    Ok(None)
}

fn load_directory(directory: &Path) -> Result<Vec<HostConfig>> {
    let file = directory.join("hosts.toml");
    let text = match std::fs::metadata(&file) {
        Ok(data) if data.len() > MAX_FILE => {
            return Err(Error::invalid_argument(format!("{} is longer than {MAX_FILE} bytes", file.display())));
        }
        Ok(_) => std::fs::read_to_string(&file).doing(format!("read {}", file.display()))?,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => String::new(),
        Err(error) => return Err(Error::io(format!("read {}", file.display()), error)),
    };
    if text.is_empty() {
        return load_certificates(directory);
    }
    parse(&text, directory).or_else(|error| {
        tracing::error!(file = %file.display(), %error, "hosts.toml is malformed and not used");
        load_certificates(directory)
    })
}

/// Certificate files as Docker lays them out: `*.crt` sign the host, `*.cert` with `*.key` are the client's.
fn load_certificates(directory: &Path) -> Result<Vec<HostConfig>> {
    let mut host = HostConfig::default();
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![host]),
        Err(error) => return Err(Error::io(format!("list {}", directory.display()), error)),
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.sort();
    for path in paths {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("crt") => host.ca.push(path),
            Some("cert") => {
                let key = path.with_extension("key");
                let key = key.exists().then_some(key);
                host.client.push((path, key));
            }
            _ => {}
        }
    }
    Ok(vec![host])
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawHost {
    capabilities: Vec<String>,
    ca: Option<Value>,
    client: Option<Value>,
    skip_verify: Option<bool>,
    header: Table,
    override_path: bool,
    dial_timeout: Option<String>,
}

/// Reads `hosts.toml`: the hosts in the order of the file, then `server`, or the registry itself without one.
fn parse(text: &str, directory: &Path) -> Result<Vec<HostConfig>> {
    let refuse = |error: toml::de::Error| Error::invalid_argument(error.to_string());
    let mut file: Table = text.parse().map_err(refuse)?;
    let server = match file.remove("server") {
        None => String::new(),
        Some(Value::String(server)) => server,
        Some(_) => return Err(Error::invalid_argument("\"server\" must be a string")),
    };
    let mut hosts = Vec::new();
    match file.remove("host") {
        None => {}
        Some(Value::Table(table)) => {
            for (name, value) in table {
                let raw: RawHost = value.try_into().map_err(refuse)?;
                hosts.push(convert(&name, directory, raw).doing(format!("host {name:?}"))?);
            }
        }
        Some(_) => return Err(Error::invalid_argument("\"host\" must be a table")),
    }
    let root: RawHost = Value::Table(file).try_into().map_err(refuse)?;
    hosts.push(convert(&server, directory, root)?);
    Ok(hosts)
}

fn convert(server: &str, directory: &Path, raw: RawHost) -> Result<HostConfig> {
    let mut host = HostConfig { skip_verify: raw.skip_verify, ..HostConfig::default() };
    if !server.is_empty() {
        let text = if server.starts_with("http") { server.to_owned() } else { format!("https://{server}") };
        let url = url::Url::parse(&text)
            .map_err(|error| Error::invalid_argument(format!("cannot read server {server:?}: {error}")))?;
        let name = url.host_str().ok_or_else(|| Error::invalid_argument(format!("no host in {server:?}")))?;
        host.scheme = url.scheme().to_owned();
        host.host = url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
        let path = url.path().trim_end_matches('/');
        host.path = if raw.override_path || path.ends_with("/v2") { path.to_owned() } else { format!("{path}/v2") };
    }
    if !raw.capabilities.is_empty() {
        host.capabilities = Capabilities::NONE;
        for capability in &raw.capabilities {
            match capability.to_ascii_lowercase().as_str() {
                "pull" => host.capabilities.pull = true,
                "resolve" => host.capabilities.resolve = true,
                "push" => host.capabilities.push = true,
                "referrers" => host.capabilities.referrers = true,
                other => return Err(Error::invalid_argument(format!("unknown capability {other:?}"))),
            }
        }
    }
    let path = |text: &str| directory.join(text);
    host.ca = match raw.ca {
        None => Vec::new(),
        Some(value) => strings(value, "ca")?.iter().map(|text| path(text)).collect(),
    };
    host.client = match raw.client {
        None => Vec::new(),
        Some(Value::Array(items)) => {
            items.into_iter().map(|item| client_pair(item, directory)).collect::<Result<_>>()?
        }
        Some(single) => vec![client_pair(single, directory)?],
    };
    for (name, value) in raw.header {
        host.headers.extend(strings(value, &name)?.into_iter().map(|value| (name.clone(), value)));
    }
    host.dial_timeout = raw
        .dial_timeout
        .map(|text| humantime::parse_duration(&text))
        .transpose()
        .map_err(|error| Error::invalid_argument(format!("invalid dial_timeout: {error}")))?;
    Ok(host)
}

fn client_pair(item: Value, directory: &Path) -> Result<(PathBuf, Option<PathBuf>)> {
    let parts = strings(item, "client")?;
    match parts.as_slice() {
        [single] => Ok((directory.join(single), None)),
        [certificate, key] => Ok((directory.join(certificate), Some(directory.join(key)))),
        _ => Err(Error::invalid_argument("a pair of \"client\" is a certificate and a key")),
    }
}

fn strings(value: Value, name: &str) -> Result<Vec<String>> {
    let refuse = || Error::invalid_argument(format!("{name:?} must be a string or a list of strings"));
    match value {
        Value::String(text) => Ok(vec![text]),
        Value::Array(items) => {
            items.into_iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(refuse)).collect()
        }
        _ => Err(refuse()),
    }
}

#[cfg(test)]
mod tests;
