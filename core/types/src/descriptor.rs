use serde::{Deserialize, Serialize};

use crate::{Digest, Labels, Platform};

/// Points to content: what it is, how long, which digest (OCI image specification, `descriptor.md`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What the content is.
    #[serde(default)]
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
    /// Other places to fetch it from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    /// Free metadata.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub annotations: Labels,
    /// Which platform an image is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// What kind of artifact a manifest is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
}

impl Descriptor {
    /// A descriptor with the three required fields.
    pub fn new(media_type: impl Into<String>, digest: Digest, size: u64) -> Self {
        Self {
            media_type: media_type.into(),
            digest,
            size,
            urls: Vec::new(),
            annotations: Labels::new(),
            platform: None,
            artifact_type: None,
        }
    }
}

/// Media types of OCI and Docker, and what kind each is.
pub mod media_types {
    /// OCI image index.
    pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
    /// OCI image manifest.
    pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    /// OCI image configuration.
    pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
    /// OCI layer, uncompressed.
    pub const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
    /// OCI layer, gzip.
    pub const OCI_LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
    /// OCI layer, zstd.
    pub const OCI_LAYER_ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
    /// Docker manifest list.
    pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
    /// Docker image manifest, schema 2.
    pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
    /// Docker image configuration.
    pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
    /// Docker layer, uncompressed.
    pub const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";
    /// Docker layer, gzip.
    pub const DOCKER_LAYER_GZIP: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";

    /// Whether this is an index or manifest list.
    pub fn is_index(media_type: &str) -> bool {
        matches!(media_type, OCI_INDEX | DOCKER_LIST)
    }

    /// Whether this is an image manifest.
    pub fn is_manifest(media_type: &str) -> bool {
        matches!(media_type, OCI_MANIFEST | DOCKER_MANIFEST)
    }

    /// Whether this is an image configuration.
    pub fn is_config(media_type: &str) -> bool {
        matches!(media_type, OCI_CONFIG | DOCKER_CONFIG)
    }

    /// Whether this is a file system layer, of whatever compression.
    pub fn is_layer(media_type: &str) -> bool {
        media_type.starts_with("application/vnd.oci.image.layer.")
            || media_type.starts_with("application/vnd.docker.image.rootfs.")
    }
}
