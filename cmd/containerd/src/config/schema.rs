//! What can stand in the configuration file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toml::Table;

/// The newest version of the file.
pub(crate) const VERSION: i64 = 4;
/// Where the file is looked for.
pub(crate) const DEFAULT_PATH: &str = "/etc/containerd/config.toml";
/// Where the gRPC socket is.
pub(crate) const DEFAULT_ADDRESS: &str = "/run/containerd/containerd.sock";
const DEFAULT_ROOT: &str = "/var/lib/containerd";
const DEFAULT_STATE: &str = "/run/containerd";
const DEFAULT_IMPORTS: &str = "/etc/containerd/conf.d/*.toml";

/// Section of the gRPC listener.
pub(crate) const GRPC: &str = "io.containerd.server.v1.grpc";
/// Section of the gRPC listener on TCP.
pub(crate) const GRPC_TCP: &str = "io.containerd.server.v1.grpc-tcp";
/// Section of the ttrpc listener.
pub(crate) const TTRPC: &str = "io.containerd.server.v1.ttrpc";
/// Section of the debug listener.
pub(crate) const DEBUG: &str = "io.containerd.server.v1.debug";
/// Section of the metrics listener.
pub(crate) const METRICS: &str = "io.containerd.server.v1.metrics";
/// Section of the gRPC metrics.
pub(crate) const GRPC_METRICS: &str = "io.containerd.metrics.v1.grpc-prometheus";

/// The file, of any version. After loading it is of version 4: the old sections are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    /// Version of the file; 0 for none, which means 1.
    pub(crate) version: i64,
    /// What survives a reboot.
    pub(crate) root: String,
    /// What does not.
    pub(crate) state: String,
    /// Temporary files.
    pub(crate) temp: String,
    /// Plugins not to start.
    pub(crate) disabled_plugins: Vec<String>,
    /// Plugins that have to start.
    pub(crate) required_plugins: Vec<String>,
    /// OOM score adjustment of the daemon; 0 leaves it.
    pub(crate) oom_score: i64,
    /// More files, laid over this one.
    pub(crate) imports: Vec<String>,
    /// Logging.
    pub(crate) debug: Debug,
    /// The daemon's cgroup.
    pub(crate) cgroup: Cgroup,
    /// Plugins behind a socket.
    pub(crate) proxy_plugins: BTreeMap<String, ProxyPlugin>,
    /// Durations by name.
    pub(crate) timeouts: BTreeMap<String, String>,
    /// Programs that turn one media type into another.
    pub(crate) stream_processors: BTreeMap<String, StreamProcessor>,
    /// Before version 4: the gRPC listeners.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) grpc: Grpc,
    /// Before version 4: the ttrpc listener.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) ttrpc: Ttrpc,
    /// Before version 4: metrics.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) metrics: Metrics,
    /// Sections of plugins.
    pub(crate) plugins: Table,
}

/// Logging.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Debug {
    /// `trace`, `debug`, `info`, `warn`, `error`, `fatal`, `panic`.
    pub(crate) level: String,
    /// `text` or `json`.
    pub(crate) format: String,
    /// Whether trace ids are logged; there are none.
    pub(crate) log_trace_id: bool,
    /// Before version 4: the debug listener.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) address: String,
    /// Its owner.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) uid: i64,
    /// Its group.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) gid: i64,
}

/// The gRPC listeners before version 4.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Grpc {
    pub(crate) address: String,
    pub(crate) tcp_address: String,
    pub(crate) tcp_tls_ca: String,
    pub(crate) tcp_tls_cert: String,
    pub(crate) tcp_tls_key: String,
    pub(crate) tcp_tls_common_name: String,
    pub(crate) uid: i64,
    pub(crate) gid: i64,
    pub(crate) max_recv_message_size: i64,
    pub(crate) max_send_message_size: i64,
}

/// The ttrpc listener before version 4.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Ttrpc {
    pub(crate) address: String,
    pub(crate) uid: i64,
    pub(crate) gid: i64,
}

/// Metrics before version 4.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Metrics {
    pub(crate) address: String,
    pub(crate) grpc_histogram: bool,
}

/// The daemon's cgroup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Cgroup {
    pub(crate) path: String,
}

/// A plugin behind a socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProxyPlugin {
    pub(crate) r#type: String,
    pub(crate) address: String,
    pub(crate) platform: String,
    pub(crate) exports: BTreeMap<String, String>,
    pub(crate) capabilities: Vec<String>,
}

/// A program that turns one media type into another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StreamProcessor {
    pub(crate) accepts: Vec<String>,
    pub(crate) returns: String,
    pub(crate) path: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Config {
    /// What counts without a file.
    pub(crate) fn defaults() -> Self {
        Self {
            version: VERSION,
            root: DEFAULT_ROOT.into(),
            state: DEFAULT_STATE.into(),
            imports: vec![DEFAULT_IMPORTS.into()],
            ..Self::default()
        }
    }

    /// The section of a plugin, made when it is not there.
    pub(crate) fn section(&mut self, uri: &str) -> Option<&mut Table> {
        self.plugins.entry(uri).or_insert_with(|| Table::new().into()).as_table_mut()
    }

    /// A text in the section of a plugin.
    pub(crate) fn text<'a>(&'a self, uri: &str, key: &str) -> Option<&'a str> {
        self.plugins.get(uri)?.get(key)?.as_str()
    }
}
