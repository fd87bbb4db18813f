use serde::{Deserialize, Serialize};

/// The section of the configuration file, with containerd's keys and defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Another directory than the plugin's own.
    pub root_path: String,
    /// Shows in a label where the files of a snapshot are.
    pub upperdir_label: bool,
    /// Removes files before a removal is answered, not in the background.
    pub sync_remove: bool,
    /// Allows clients to change the owners of all files where id-mapped mounts cannot be used.
    pub slow_chown: bool,
    /// Further options for overlay mounts (not for bind mounts), such as `volatile`.
    pub mount_options: Vec<String>,
}
