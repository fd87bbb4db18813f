use std::{collections::BTreeMap, time::Duration};

use core_types::{Error, Platform, Result, duration};
use serde::{Deserialize, Serialize};

/// Where registries are configured when nothing else is said.
const DEFAULT_CONFIG_PATH: &str = "/etc/containerd/certs.d:/etc/docker/certs.d";
/// Key of the pause image among the pinned ones.
pub(crate) const SANDBOX: &str = "sandbox";
/// Downloads at a time that containerd's default stands for: the daemon's own limit counts then.
const DEFAULT_DOWNLOADS: i64 = 3;

/// The section `[plugins."io.containerd.cri.v1.images"]`, with containerd's keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// The snapshotter of handlers that name none.
    pub snapshotter: String,
    /// Keep the image's names from snapshotters. They are never told here.
    pub disable_snapshot_annotations: bool,
    /// Let garbage collection have layers once they are unpacked.
    pub discard_unpacked_layers: bool,
    /// Images that kubelet is to leave alone, full references by purpose; `sandbox` is the pause image.
    pub pinned_images: BTreeMap<String, String>,
    /// Platform and snapshotter by runtime handler.
    pub runtime_platforms: BTreeMap<String, HandlerPlatform>,
    /// Registries.
    pub registry: RegistrySection,
    /// Known for the sake of configuration files; encrypted images are not supported.
    pub image_decryption: ImageDecryption,
    /// Downloads at a time; at the default, the daemon's own limit (section `io.containerd.transfer.v1.local`) counts.
    /// 0 for no limit.
    pub max_concurrent_downloads: i64,
    /// Known for the sake of configuration files; layers are downloaded in one stream each.
    pub concurrent_layer_fetch_buffer: i64,
    /// How long a download may bring nothing before its pull is given up (Go duration); 0 for no limit.
    pub image_pull_progress_timeout: String,
    /// Flush layers to disk before they are committed.
    pub image_pull_with_sync_fs: bool,
    /// Seconds between two samples of the snapshots' usage.
    pub stats_collect_period: u64,
    /// Known for the sake of configuration files; there is one engine for all pulls.
    pub use_local_image_pull: bool,
}

/// One `[runtime_platforms.<handler>]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandlerPlatform {
    /// Platform of its images; the machine's when empty.
    pub platform: String,
    /// Its snapshotter; the default one when empty.
    pub snapshotter: String,
}

/// `[registry]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegistrySection {
    /// Directories with the per-registry configuration, separated by colons.
    pub config_path: String,
    /// Outdated; refused beside `config_path`, and without effect.
    pub mirrors: BTreeMap<String, Mirror>,
    /// Outdated; credentials by host.
    pub configs: BTreeMap<String, RegistryConfig>,
    /// Outdated; credentials by URL or host.
    pub auths: BTreeMap<String, RegistryAuth>,
    /// Headers for every request to a registry.
    pub headers: BTreeMap<String, Vec<String>>,
}

/// One `[registry.mirrors.<host>]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mirror {
    /// URLs of the mirrors.
    pub endpoint: Vec<String>,
}

/// One `[registry.configs.<host>]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegistryConfig {
    /// Credentials.
    pub auth: Option<RegistryAuth>,
}

/// Credentials in the configuration.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegistryAuth {
    /// User.
    pub username: String,
    /// Password.
    pub password: String,
    /// User, colon and password in base64.
    pub auth: String,
    /// A token to be exchanged.
    pub identitytoken: String,
}

impl std::fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistryAuth").field("username", &self.username).finish_non_exhaustive()
    }
}

/// `[image_decryption]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageDecryption {
    /// Who holds the keys.
    pub key_model: String,
}

impl Default for ImageDecryption {
    fn default() -> Self {
        Self { key_model: "node".to_owned() }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            snapshotter: "overlayfs".to_owned(),
            disable_snapshot_annotations: true,
            discard_unpacked_layers: false,
            pinned_images: BTreeMap::from([(SANDBOX.to_owned(), "registry.k8s.io/pause:3.10.2".to_owned())]),
            runtime_platforms: BTreeMap::new(),
            registry: RegistrySection::default(),
            image_decryption: ImageDecryption::default(),
            max_concurrent_downloads: DEFAULT_DOWNLOADS,
            concurrent_layer_fetch_buffer: 0,
            image_pull_progress_timeout: "5m0s".to_owned(),
            image_pull_with_sync_fs: false,
            stats_collect_period: 10,
            use_local_image_pull: false,
        }
    }
}

impl Config {
    /// Checks it, warns of what is outdated or without effect, and fills in what depends on other keys.
    ///
    /// # Errors
    /// InvalidArgument that names the key.
    pub(crate) fn complete(mut self) -> Result<Self> {
        self.progress_timeout()?;
        for (handler, section) in &self.runtime_platforms {
            section.platform().map_err(|error| error.context(format!("runtime_platforms.{handler}.platform")))?;
        }
        let registry = &mut self.registry;
        if !registry.mirrors.is_empty() {
            if !registry.config_path.is_empty() {
                return Err(Error::invalid_argument(
                    "registry.mirrors cannot be set when registry.config_path is; write hosts.toml files instead",
                ));
            }
            tracing::warn!("registry.mirrors has no effect; write hosts.toml files below registry.config_path instead");
        }
        if !registry.configs.is_empty() {
            tracing::warn!("registry.configs is outdated; use image pull secrets instead");
        }
        for (endpoint, auth) in std::mem::take(&mut registry.auths) {
            tracing::warn!(endpoint, "registry.auths is outdated; use image pull secrets instead");
            let host = crate::auth::host_of(&endpoint).to_owned();
            registry.configs.entry(host).or_default().auth = Some(auth);
        }
        if registry.config_path.is_empty() {
            registry.config_path = DEFAULT_CONFIG_PATH.to_owned();
        }
        if !self.disable_snapshot_annotations {
            tracing::warn!(
                "disable_snapshot_annotations = false has no effect: no annotations are given to snapshotters"
            );
        }
        Ok(self)
    }

    /// How long a pull may stand still; none for ever.
    ///
    /// # Errors
    /// InvalidArgument for what is no duration.
    pub(crate) fn progress_timeout(&self) -> Result<Option<Duration>> {
        let text = self.image_pull_progress_timeout.as_str();
        if text.is_empty() {
            return Ok(None);
        }
        let parsed = duration::parse(text)
            .ok_or_else(|| Error::invalid_argument(format!("image_pull_progress_timeout {text:?} is no duration")))?;
        Ok(Some(parsed).filter(|timeout| !timeout.is_zero()))
    }

    /// Permits for downloads, where the daemon's own limit is not to count.
    pub(crate) fn downloads(&self) -> Option<usize> {
        match self.max_concurrent_downloads {
            DEFAULT_DOWNLOADS => None,
            limit => Some(match usize::try_from(limit) {
                Ok(limit) if limit > 0 => limit.min(tokio::sync::Semaphore::MAX_PERMITS),
                _ => tokio::sync::Semaphore::MAX_PERMITS,
            }),
        }
    }
}

impl HandlerPlatform {
    /// The platform; none for the machine's.
    pub(crate) fn platform(&self) -> Result<Option<Platform>> {
        if self.platform.is_empty() { Ok(None) } else { Platform::parse(&self.platform).map(Some) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_the_published_ones() {
        let text = r#"
            snapshotter = "native"
            discard_unpacked_layers = true
            max_concurrent_downloads = 7
            image_pull_progress_timeout = "1m30s"
            stats_collect_period = 5
            [pinned_images]
            sandbox = "registry.example/pause:1"
            [runtime_platforms.kata]
            platform = "linux/arm64"
            snapshotter = "devmapper"
            [registry.auths."https://registry.example/v1/"]
            username = "u"
            password = "p"
            [registry.headers]
            X-Meta = ["a", "b"]
            [image_decryption]
            key_model = "node"
        "#;
        let config: Config = toml::from_str(text).unwrap();
        let config = config.complete().unwrap();
        assert_eq!(config.downloads(), Some(7));
        assert_eq!(config.progress_timeout().unwrap(), Some(Duration::from_secs(90)));
        assert_eq!(config.registry.config_path, DEFAULT_CONFIG_PATH);
        let auth = config.registry.configs["registry.example"].auth.as_ref().unwrap();
        assert_eq!((auth.username.as_str(), auth.password.as_str()), ("u", "p"));
        assert!(!format!("{config:?}").contains("\"p\""));
        assert_eq!(config.runtime_platforms["kata"].snapshotter, "devmapper");
    }

    #[test]
    fn defaults_are_containerds() {
        let config = Config::default();
        assert_eq!(config.pinned_images["sandbox"], "registry.k8s.io/pause:3.10.2");
        assert_eq!(config.image_pull_progress_timeout, "5m0s");
        assert_eq!((config.downloads(), config.stats_collect_period), (None, 10));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let with = |text: &str| toml::from_str::<Config>(text).unwrap().complete().unwrap_err().to_string();
        assert!(with("image_pull_progress_timeout = \"soon\"").contains("image_pull_progress_timeout"));
        assert!(with("[runtime_platforms.x]\nplatform = \"a/b/c/d\"").contains("runtime_platforms.x"));
        assert!(with("[registry]\nconfig_path = \"/x\"\n[registry.mirrors.\"a\"]").contains("mirrors"));
        let unlimited =
            Config { max_concurrent_downloads: 0, image_pull_progress_timeout: "0".into(), ..Config::default() };
        assert_eq!(unlimited.downloads(), Some(tokio::sync::Semaphore::MAX_PERMITS));
        assert_eq!(unlimited.progress_timeout().unwrap(), None);
    }
}
