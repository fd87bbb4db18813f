use std::{
    collections::HashMap,
    fmt,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use core_types::{Error, Result, ResultExt};
use reqwest::{Certificate, Client, Identity, redirect::Policy};

use crate::hosts::HostConfig;

/// The longest time for a connection to be made, unless a host says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an unused connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// What a client depends on; hosts with the same settings share one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Key {
    tls: bool,
    ca: Vec<PathBuf>,
    client: Vec<(PathBuf, Option<PathBuf>)>,
    skip_verify: bool,
    dial_timeout: Option<Duration>,
}

/// HTTP clients by TLS settings, made when first used.
#[derive(Default)]
pub(crate) struct Clients {
    known: Mutex<HashMap<Key, Client>>,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clients")
    }
}

impl Clients {
    /// The client for a host, with or without TLS.
    pub(crate) fn for_host(&self, host: &HostConfig, tls: bool) -> Result<Client> {
        let key = if tls {
            Key {
                tls,
                ca: host.ca.clone(),
                client: host.client.clone(),
                skip_verify: host.skip_verify == Some(true),
                dial_timeout: host.dial_timeout,
            }
        } else {
            Key { dial_timeout: host.dial_timeout, ..Key::default() }
        };
        self.get(key)
    }

    /// The client for hosts outside the configuration, such as the targets of redirects: no client certificate.
    pub(crate) fn plain(&self) -> Result<Client> {
        self.get(Key { tls: true, ..Key::default() })
    }

    fn get(&self, key: Key) -> Result<Client> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = known.get(&key) {
            return Ok(client.clone());
        }
        let client = build(&key)?;
        known.insert(key, client.clone());
        Ok(client)
    }
}

fn build(key: &Key) -> Result<Client> {
    let mut builder = Client::builder()
        .user_agent(concat!("containerd/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .referer(false)
        .connect_timeout(key.dial_timeout.unwrap_or(CONNECT_TIMEOUT))
        .pool_idle_timeout(IDLE_TIMEOUT)
        .retry(reqwest::retry::never());
    if !key.tls {
        // A plain connection needs no roots, so that a machine without any can use it.
        builder = builder.tls_certs_only(std::iter::empty());
    }
    let mut roots = Vec::new();
    for file in &key.ca {
        let pem = std::fs::read(file).doing(format!("read CA certificate {}", file.display()))?;
        let certificates =
            Certificate::from_pem_bundle(&pem).map_err(|error| bad_file("CA certificate", file.display(), error))?;
        roots.extend(certificates);
    }
    if !roots.is_empty() {
        builder = builder.tls_certs_merge(roots);
    }
    if let Some((certificate, private)) = key.client.first() {
        let mut pem = std::fs::read(certificate).doing(format!("read {}", certificate.display()))?;
        if let Some(private) = private {
            pem.push(b'\n');
            pem.extend(std::fs::read(private).doing(format!("read {}", private.display()))?);
        }
        let identity =
            Identity::from_pem(&pem).map_err(|error| bad_file("client certificate", certificate.display(), error))?;
        builder = builder.identity(identity);
    }
    if key.skip_verify {
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    builder.build().map_err(|error| Error::internal(format!("set up the HTTP client: {}", chain(&error))))
}

fn bad_file(what: &str, file: std::path::Display<'_>, error: reqwest::Error) -> Error {
    Error::invalid_argument(format!("cannot load {what} {file}: {}", chain(&error)))
}

/// The text of an error with its causes and without its URL, which can hold tokens.
pub(crate) fn chain(error: &reqwest::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let text = cause.to_string();
        if parts.last().is_none_or(|last| *last != text) {
            parts.push(text);
        }
        source = cause.source();
    }
    if !parts.is_empty() {
        return parts.join(": ");
    }
    let kind = if error.is_timeout() {
        "timeout"
    } else if error.is_connect() {
        "cannot connect"
    } else if error.is_builder() {
        "malformed request"
    } else {
        "request failed"
    };
    kind.to_owned()
}

/// Whether the peer answered a TLS greeting with something else.
pub(crate) fn speaks_no_tls(error: &reqwest::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if is_no_tls(cause) {
            return true;
        }
        source = cause.source();
    }
    false
}

/// I/O errors hide what they wrap from `source`, also when they wrap each other.
fn is_no_tls(cause: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
        return matches!(tls, rustls::Error::InvalidMessage(_));
    }
    let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    inner.is_some_and(|inner| is_no_tls(inner))
}
