use std::collections::{BTreeMap, BTreeSet};

use core_types::{Error, Labels, Result};
use serde::Deserialize;

use crate::{Spec, env};

/// Most bytes of an image configuration that are read.
const MAX_CONFIG: usize = 8 << 20;
/// Most arguments or variables that an image may give.
const MAX_ITEMS: usize = 64 * 1024;
/// Most volumes that an image may declare.
const MAX_VOLUMES: usize = 1024;

/// An image configuration (OCI image specification, `config.md`), read from bytes that are not trusted.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ImageConfig {
    /// Operating system.
    #[serde(default)]
    pub os: String,
    /// Processor.
    #[serde(default)]
    pub architecture: String,
    /// Variant of the processor.
    #[serde(default)]
    pub variant: String,
    /// How to run it.
    #[serde(default)]
    pub config: RunConfig,
}

/// How an image wants to be run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct RunConfig {
    /// User, as `name|uid[:group|gid]`.
    #[serde(default, deserialize_with = "null_default")]
    pub user: String,
    /// Environment.
    #[serde(default, deserialize_with = "null_default")]
    pub env: Vec<String>,
    /// First part of the command.
    #[serde(default, deserialize_with = "null_default")]
    pub entrypoint: Vec<String>,
    /// Rest of the command, which arguments replace.
    #[serde(default, deserialize_with = "null_default")]
    pub cmd: Vec<String>,
    /// Working directory.
    #[serde(default, deserialize_with = "null_default")]
    pub working_dir: String,
    /// Signal that stops it.
    #[serde(default, deserialize_with = "null_default")]
    pub stop_signal: String,
    /// Directories that hold data of their own, see [`ImageConfig::volumes`].
    #[serde(default, deserialize_with = "null_default")]
    volumes: BTreeMap<String, serde_json::Value>,
    /// Labels, see [`ImageConfig::labels`].
    #[serde(default, deserialize_with = "null_default")]
    labels: Labels,
}

/// Go writes empty lists and maps as `null`.
fn null_default<'de, D, T>(deserializer: D) -> std::result::Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

impl ImageConfig {
    /// Reads a configuration.
    ///
    /// # Errors
    /// InvalidArgument for bytes that are too many, no JSON or hold texts with a zero byte.
    pub fn from_slice(json: &[u8]) -> Result<Self> {
        if json.len() > MAX_CONFIG {
            return Err(Error::invalid_argument(format!("image configuration is larger than {MAX_CONFIG} bytes")));
        }
        let image: Self = serde_json::from_slice(json)
            .map_err(|error| Error::invalid_argument(format!("image configuration: {error}")))?;
        let config = &image.config;
        let lists = [&config.env, &config.entrypoint, &config.cmd];
        if lists.iter().any(|list| list.len() > MAX_ITEMS) {
            return Err(Error::invalid_argument(format!("image configuration has a list of over {MAX_ITEMS} items")));
        }
        if config.volumes.len() > MAX_VOLUMES {
            return Err(Error::invalid_argument(format!("image configuration has over {MAX_VOLUMES} volumes")));
        }
        let texts = lists.into_iter().flatten().chain([&config.user, &config.working_dir, &config.stop_signal]);
        let texts = texts.chain(config.volumes.keys());
        if texts.into_iter().any(|text| text.contains('\0')) {
            return Err(Error::invalid_argument("image configuration has a text with a zero byte"));
        }
        Ok(image)
    }

    /// Labels that may go to a container. Names that the runtime itself acts on (`containerd.io/…`,
    /// `io.cri-containerd…`) and labels over the size limit are left out, since an image must not steer
    /// the host (CVE-2026-53488).
    pub fn labels(&self) -> Labels {
        let own = |key: &str| key.starts_with("containerd.io/") || key.starts_with("io.cri-containerd");
        let kept = |key: &str, value: &str| !own(key) && core_types::labels::validate(key, value).is_ok();
        self.config.labels.iter().filter(|(key, value)| kept(key, value)).map(|(k, v)| (k.clone(), v.clone())).collect()
    }
}

impl ImageConfig {
    /// Directories that the image declares as volumes: absolute, without `.` and `..`, sorted, each once. The root
    /// directory is none.
    pub fn volumes(&self) -> Vec<String> {
        let clean: BTreeSet<String> = self.config.volumes.keys().map(|path| clean_absolute(path)).collect();
        clean.into_iter().filter(|path| path != "/").collect()
    }
}

/// The absolute form of a path, with `.`, `..` and doubled slashes taken out by its text alone.
pub fn clean_absolute(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

impl Spec {
    /// Takes environment, command and working directory from an image; the variables that the specification
    /// has already win, and `args` stand in for the image's `Cmd`. The user needs the root file
    /// system, see [`Spec::set_user`].
    pub fn apply_image(&mut self, image: &ImageConfig, args: &[String]) {
        let config = &image.config;
        let path = [env::DEFAULT_PATH.to_owned()];
        let defaults: &[String] = if config.env.is_empty() { &path } else { &config.env };
        let variables = env::merge(defaults, &self.texts("/process/env"));
        self.set_env(variables);
        let command = if args.is_empty() { &config.cmd } else { args };
        self.set_args(config.entrypoint.iter().chain(command));
        self.set_cwd(if config.working_dir.is_empty() { "/" } else { &config.working_dir });
    }
}

#[cfg(test)]
mod tests {
    use core_types::Namespace;

    use super::*;

    #[test]
    fn the_command_is_entrypoint_and_cmd_or_arguments() {
        let image = ImageConfig::from_slice(
            br#"{"os":"linux","config":{"Entrypoint":["/e"],"Cmd":["a","b"],"Env":["A=1"],"WorkingDir":"/w","Labels":null}}"#,
        )
        .unwrap();
        let mut spec = Spec::linux(&Namespace::new("default").unwrap(), "c");
        spec.set_env(["A=2".to_owned(), "B=3".to_owned()]);
        spec.apply_image(&image, &[]);
        assert_eq!(spec.texts("/process/args"), ["/e", "a", "b"]);
        assert_eq!(spec.texts("/process/env"), ["A=2", "B=3"]);
        assert_eq!(spec.text("/process/cwd"), "/w");
        spec.apply_image(&image, &["c".to_owned()]);
        assert_eq!(spec.texts("/process/args"), ["/e", "c"]);
    }

    #[test]
    fn an_empty_image_gets_a_path_and_the_root_directory() {
        let mut spec = Spec::linux(&Namespace::new("default").unwrap(), "c");
        spec.apply_image(&ImageConfig::from_slice(b"{}").unwrap(), &[]);
        assert_eq!(spec.texts("/process/env"), [env::DEFAULT_PATH]);
        assert_eq!(spec.text("/process/cwd"), "/");
    }

    #[test]
    fn labels_that_steer_the_runtime_are_dropped() {
        let json = format!(
            r#"{{"config":{{"Labels":{{"containerd.io/restart.loguri":"binary:///bin/sh","io.cri-containerd.x":"1","ok":"yes","big":"{}"}}}}}}"#,
            "x".repeat(5000)
        );
        let labels = ImageConfig::from_slice(json.as_bytes()).unwrap().labels();
        assert_eq!(labels.into_keys().collect::<Vec<_>>(), ["ok"]);
    }

    #[test]
    fn volumes_are_absolute_and_stay_inside() {
        let json = br#"{"config":{"Volumes":{"data":{},"/data/":{},"/a/../../b":{},"/":{},"..":null}}}"#;
        assert_eq!(ImageConfig::from_slice(json).unwrap().volumes(), ["/b", "/data"]);
    }

    #[test]
    fn zero_bytes_are_refused() {
        assert!(ImageConfig::from_slice(br#"{"config":{"Env":["A=\u0000"]}}"#).is_err());
    }
}
