use core_types::{Descriptor, Error, Result, media_types};
use serde::Deserialize;

/// The longest manifest or index, in bytes (containerd's `MaxManifestSize`).
pub const MAX_DOCUMENT: u64 = 8 * 1024 * 1024;
/// The most children of one manifest or index.
pub const MAX_CHILDREN: usize = 16 * 1024;

/// A manifest or an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// An OCI index or Docker manifest list.
    Index {
        /// Its manifests.
        manifests: Vec<Descriptor>,
    },
    /// An image manifest, or that of another artifact.
    Manifest {
        /// The configuration.
        config: Box<Descriptor>,
        /// The layers, the lowest first.
        layers: Vec<Descriptor>,
    },
}

impl Document {
    /// All children in containerd's order: manifests, or configuration and then layers.
    pub fn children(self) -> Vec<Descriptor> {
        match self {
            Self::Index { manifests } => manifests,
            Self::Manifest { config, layers } => std::iter::once(*config).chain(layers).collect(),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    manifests: Option<Vec<Descriptor>>,
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Option<Vec<Descriptor>>,
    #[serde(default)]
    fs_layers: Option<serde::de::IgnoredAny>,
}

/// Reads `bytes`, which `descriptor` describes, as manifest or index.
///
/// # Errors
/// InvalidArgument for anything that is not exactly the kind that the descriptor says.
pub fn read_document(descriptor: &Descriptor, bytes: &[u8]) -> Result<Document> {
    let refuse = |why: String| Error::invalid_argument(format!("invalid manifest {}: {why}", descriptor.digest));
    if bytes.len() as u64 > MAX_DOCUMENT {
        return Err(refuse(format!("longer than {MAX_DOCUMENT} bytes")));
    }
    let raw: Raw = serde_json::from_slice(bytes).map_err(|error| refuse(error.to_string()))?;
    if raw.fs_layers.is_some() {
        return Err(refuse("schema 1 manifests are no longer supported; rebuild the image".to_owned()));
    }
    if raw.manifests.is_some() && (raw.config.is_some() || raw.layers.is_some()) {
        return Err(refuse("it could be read as index and as manifest".to_owned()));
    }
    let is_index = media_types::is_index(&descriptor.media_type);
    if let Some(inner) = raw.media_type.as_deref().filter(|inner| !inner.is_empty())
        && media_types::is_index(inner) != is_index
    {
        return Err(refuse(format!("it says of itself to be {inner:?}, not {:?}", descriptor.media_type)));
    }
    let count = raw.manifests.as_ref().map_or(0, Vec::len).max(raw.layers.as_ref().map_or(0, Vec::len));
    if count > MAX_CHILDREN {
        return Err(refuse(format!("{count} children, {MAX_CHILDREN} are allowed")));
    }
    if is_index {
        if raw.config.is_some() || raw.layers.is_some() {
            return Err(refuse("a manifest where an index was expected".to_owned()));
        }
        return Ok(Document::Index { manifests: raw.manifests.unwrap_or_default() });
    }
    if raw.manifests.is_some() {
        return Err(refuse("an index where a manifest was expected".to_owned()));
    }
    let config = raw.config.ok_or_else(|| refuse("it has no configuration".to_owned()))?;
    Ok(Document::Manifest { config: Box::new(config), layers: raw.layers.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core_types::{Digest, ErrorKind};

    fn read(media_type: &str, text: &str) -> Result<Document> {
        read_document(&Descriptor::new(media_type, Digest::of(text.as_bytes()), text.len() as u64), text.as_bytes())
    }

    fn child() -> String {
        format!(r#"{{"mediaType":"x","digest":"{}","size":1}}"#, Digest::of(b"x"))
    }

    #[test]
    fn a_document_with_two_meanings_is_refused() {
        let both = format!(r#"{{"manifests":[],"config":{},"layers":[]}}"#, child());
        for media_type in [media_types::OCI_INDEX, media_types::OCI_MANIFEST] {
            assert_eq!(read(media_type, &both).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        let index = r#"{"manifests":[]}"#;
        assert!(read(media_types::OCI_MANIFEST, index).is_err());
        let lying = format!(r#"{{"mediaType":"{}","manifests":[]}}"#, media_types::OCI_MANIFEST);
        assert!(read(media_types::OCI_INDEX, &lying).is_err());
        assert!(read(media_types::DOCKER_MANIFEST, r#"{"schemaVersion":1,"fsLayers":[]}"#).is_err());
    }

    #[test]
    fn null_lists_are_empty_lists() {
        let manifest = format!(r#"{{"config":{},"layers":null}}"#, child());
        assert_eq!(read(media_types::OCI_MANIFEST, &manifest).unwrap().children().len(), 1);
        assert!(read(media_types::OCI_INDEX, r#"{"manifests":null}"#).unwrap().children().is_empty());
    }

    #[test]
    fn negative_sizes_and_path_like_digests_are_refused() {
        let negative = format!(r#"{{"manifests":[{{"mediaType":"x","digest":"{}","size":-1}}]}}"#, Digest::of(b"x"));
        let path = r#"{"manifests":[{"mediaType":"x","digest":"sha256:../../etc","size":1}]}"#;
        for text in [negative.as_str(), path] {
            assert!(read(media_types::OCI_INDEX, text).is_err());
        }
    }
}
