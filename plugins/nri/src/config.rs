use std::{path::PathBuf, time::Duration};

use core_types::duration;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Section `io.containerd.nri.v1.nri`; names, meaning and defaults are containerd's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// No NRI at all.
    pub disable: bool,
    /// The socket that plugins connect to.
    pub socket_path: PathBuf,
    /// The directory of plugins that are started with the runtime, `NN-name` each.
    pub plugin_path: PathBuf,
    /// The directory of their configurations, `NN-name.conf` or `name.conf`.
    pub plugin_config_path: PathBuf,
    /// How long a plugin may take to register.
    #[serde(serialize_with = "write", deserialize_with = "read")]
    pub plugin_registration_timeout: Duration,
    /// How long a plugin may take to answer a request.
    #[serde(serialize_with = "write", deserialize_with = "read")]
    pub plugin_request_timeout: Duration,
    /// No socket: only plugins of the directory.
    pub disable_connections: bool,
    /// What the built-in validator refuses.
    pub default_validator: ValidatorConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            disable: false,
            socket_path: "/var/run/nri/nri.sock".into(),
            plugin_path: "/opt/nri/plugins".into(),
            plugin_config_path: "/etc/nri/conf.d".into(),
            plugin_registration_timeout: Duration::from_secs(5),
            plugin_request_timeout: Duration::from_secs(2),
            disable_connections: false,
            default_validator: ValidatorConfig::default(),
        }
    }
}

/// Section `default_validator`: adjustments that are refused whichever plugin makes them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ValidatorConfig {
    /// Whether it looks at adjustments at all.
    pub enable: bool,
    /// Refuse OCI hooks.
    pub reject_oci_hook_adjustment: bool,
    /// Refuse another seccomp policy where the runtime's default applies.
    pub reject_runtime_default_seccomp_adjustment: bool,
    /// Refuse another seccomp policy where none applies.
    pub reject_unconfined_seccomp_adjustment: bool,
    /// Refuse another seccomp policy where one of the node's applies.
    pub reject_custom_seccomp_adjustment: bool,
    /// Refuse changes of namespaces.
    pub reject_namespace_adjustment: bool,
    /// Refuse changes of sysctls.
    pub reject_sysctl_adjustment: bool,
    /// Names of plugins without which no container is made.
    pub required_plugins: Vec<String>,
    /// The annotation by which a pod does without them; empty for none.
    pub tolerate_missing_plugins_annotation: String,
}

fn write<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&duration::format(*value))
}

fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    duration::parse(&text)
        .filter(|value| !value.is_zero())
        .ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no time to wait, write 500ms, 5s or 2m")))
}
