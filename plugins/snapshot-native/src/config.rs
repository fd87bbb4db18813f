use serde::{Deserialize, Serialize};

/// The section of the configuration file, with containerd's keys and defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Another directory than the plugin's own.
    pub root_path: String,
}
