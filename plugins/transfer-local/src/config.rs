use std::path::PathBuf;

use core_transfer::Settings;
use core_unpack::Limits;
use serde::{Deserialize, Serialize};

/// The section `[plugins."io.containerd.transfer.v1.local"]`, with containerd's keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Downloads at a time, over all pulls.
    pub max_concurrent_downloads: usize,
    /// Known for the sake of configuration files; layers are downloaded in one stream each.
    pub concurrent_layer_fetch_buffer: u64,
    /// Uploads at a time.
    pub max_concurrent_uploaded_layers: usize,
    /// Unpack only for platforms of the variant that `unpack_config` names, not for all of its operating system.
    pub check_platform_supported: bool,
    /// What to unpack for; the default snapshotter on this platform when there is none.
    pub unpack_config: Vec<UnpackSection>,
    /// Directories with the per-registry configuration, separated by colons.
    pub config_path: String,
    /// Layers extracted at a time, over all pulls; 1 extracts the layers of an image one after the other.
    pub max_concurrent_unpacks: usize,
}

impl Default for Config {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            max_concurrent_downloads: limits.downloads,
            concurrent_layer_fetch_buffer: 0,
            max_concurrent_uploaded_layers: 3,
            check_platform_supported: false,
            unpack_config: Vec::new(),
            config_path: String::new(),
            max_concurrent_unpacks: limits.unpacks,
        }
    }
}

/// One `[[unpack_config]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnpackSection {
    /// For images of this platform.
    pub platform: String,
    /// Into this snapshotter.
    pub snapshotter: String,
    /// With this differ; the default one when empty.
    pub differ: String,
    /// Leave it out when snapshotter or differ is not there.
    pub optional: bool,
    /// Flush the layers of an image to disk before they are committed. Off, as `image_pull_with_sync_fs` is in
    /// containerd: the flush writes whatever else the file system has to write too, so that its cost has no bound
    /// that the image sets. On, no power cut leaves a layer with empty files.
    pub sync_fs: bool,
}

impl Config {
    /// The settings of the transferer.
    pub fn settings(&self) -> Settings {
        Settings {
            limits: Limits { downloads: self.max_concurrent_downloads, unpacks: self.max_concurrent_unpacks },
            uploads: self.max_concurrent_uploaded_layers,
            config_path: (!self.config_path.is_empty()).then(|| PathBuf::from(&self.config_path)),
        }
    }
}
