use serde::{Deserialize, Serialize};

/// Whether a namespace gets content that another one has without sending it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SharingPolicy {
    /// Naming its digest is enough.
    #[default]
    Shared,
    /// All of it has to be sent first.
    Isolated,
}

impl SharingPolicy {
    /// As it is written in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Isolated => "isolated",
        }
    }
}

/// Section `io.containerd.metadata.v1.bolt`; the names are containerd's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Whether namespaces share content.
    pub content_sharing_policy: SharingPolicy,
    /// containerd's switch to do without sync. Not followed: concurrent writers share a sync, and a database that a
    /// power cut destroys is no bargain.
    pub no_sync: bool,
}
