use core_types::{Digest, Error, Platform, Result};
use serde::Deserialize;

/// What the engine reads of an image configuration. Everything in it comes from the image's author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageConfig {
    /// What it runs on.
    pub platform: Platform,
    /// `layers`; another kind of root file system is not for unpacking.
    pub rootfs_type: String,
    /// Digests of the uncompressed layers, the lowest first.
    pub diff_ids: Vec<Digest>,
}

#[derive(Deserialize)]
struct Raw {
    #[serde(flatten)]
    platform: Platform,
    #[serde(default)]
    rootfs: Rootfs,
}

#[derive(Default, Deserialize)]
struct Rootfs {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    diff_ids: Option<Vec<Digest>>,
}

impl ImageConfig {
    /// Reads a configuration.
    ///
    /// # Errors
    /// InvalidArgument when it is no JSON object or a digest is malformed.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let raw: Raw = serde_json::from_slice(bytes)
            .map_err(|error| Error::invalid_argument(format!("invalid image configuration: {error}")))?;
        Ok(Self {
            platform: raw.platform,
            rootfs_type: raw.rootfs.kind,
            diff_ids: raw.rootfs.diff_ids.unwrap_or_default(),
        })
    }
}

/// The chain id of each layer (OCI image specification, `config.md`, "Layer ChainID"): the name of the
/// snapshot that holds the layer and all below it.
pub fn chain_ids(diff_ids: &[Digest]) -> Vec<Digest> {
    let mut chain: Vec<Digest> = Vec::with_capacity(diff_ids.len());
    for diff_id in diff_ids {
        let next = match chain.last() {
            None => diff_id.clone(),
            Some(below) => Digest::of(format!("{below} {diff_id}").as_bytes()),
        };
        chain.push(next);
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_ids_follow_the_specification() {
        let (a, b, c) = (Digest::of(b"a"), Digest::of(b"b"), Digest::of(b"c"));
        let chain = chain_ids(&[a.clone(), b.clone(), c.clone()]);
        assert_eq!(chain[0], a);
        assert_eq!(chain[1], Digest::of(format!("{a} {b}").as_bytes()));
        assert_eq!(chain[2], Digest::of(format!("{} {c}", chain[1]).as_bytes()));
        assert!(chain_ids(&[]).is_empty());
    }

    #[test]
    fn a_configuration_gives_platform_and_diff_ids() {
        let text = format!(
            r#"{{"architecture":"arm64","os":"linux","variant":"v8","config":{{"Env":null}},
                "rootfs":{{"type":"layers","diff_ids":["{}"]}}}}"#,
            Digest::of(b"a")
        );
        let config = ImageConfig::parse(text.as_bytes()).unwrap();
        assert_eq!((config.platform.architecture.as_str(), config.platform.variant.as_str()), ("arm64", "v8"));
        assert_eq!(config.diff_ids, [Digest::of(b"a")]);
        assert!(ImageConfig::parse(b"{}").unwrap().diff_ids.is_empty());
        assert!(ImageConfig::parse(b"[]").is_err());
    }
}
