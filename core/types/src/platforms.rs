//! Platforms and which of several fits best.

use serde::{Deserialize, Serialize};

/// Operating system and processor that an image is for (OCI image index, `platform`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Platform {
    /// Processor, in Go's words (`amd64`, `arm64`).
    #[serde(default)]
    pub architecture: String,
    /// Operating system (`linux`).
    #[serde(default)]
    pub os: String,
    /// Version of the operating system.
    #[serde(default, rename = "os.version", skip_serializing_if = "String::is_empty")]
    pub os_version: String,
    /// Features of the operating system.
    #[serde(default, rename = "os.features", skip_serializing_if = "Vec::is_empty")]
    pub os_features: Vec<String>,
    /// Variant of the processor (`v8`).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
}
