//! Labels: names with values that users and the daemon put on objects.

use std::collections::BTreeMap;

use crate::{Error, Result};

/// Labels of an object, sorted by key.
pub type Labels = BTreeMap<String, String>;

/// The most bytes that key and value of a label have together.
pub const MAX_SIZE: usize = 4096;

/// Digest of the uncompressed layer.
pub const UNCOMPRESSED: &str = "containerd.io/uncompressed";
/// Prefix of the labels that say which repositories a blob came from.
pub const DISTRIBUTION_SOURCE: &str = "containerd.io/distribution.source";
/// Keeps an object, and what it refers to, from collection.
pub const GC_ROOT: &str = "containerd.io/gc.root";
/// Time (RFC 3339) after which an object no longer is a root.
pub const GC_EXPIRE: &str = "containerd.io/gc.expire";
/// Prefix of references to content.
pub const GC_REF_CONTENT: &str = "containerd.io/gc.ref.content";
/// Prefix of references to snapshots; the snapshotter's name follows after a dot.
pub const GC_REF_SNAPSHOT: &str = "containerd.io/gc.ref.snapshot.";
/// Prefix of references to images.
pub const GC_REF_IMAGE: &str = "containerd.io/gc.ref.image";
/// On a lease: only what it names is held, not what that refers to.
pub const GC_FLAT: &str = "containerd.io/gc.flat";
/// The caller's name for a committed snapshot (its chain id), understood by remote snapshotters.
pub const SNAPSHOT_REF: &str = "containerd.io/snapshot.ref";

/// Checks one label.
///
/// # Errors
/// InvalidArgument that names the key when key and value exceed [`MAX_SIZE`].
pub fn validate(key: &str, value: &str) -> Result<()> {
    let total = key.len() + value.len();
    if total > MAX_SIZE {
        let shown: String = key.chars().take(64).collect();
        return Err(Error::invalid_argument(format!(
            "label key and value length ({total} bytes) greater than maximum size ({MAX_SIZE} bytes), key: {shown}"
        )));
    }
    Ok(())
}

/// Checks all labels of an object.
///
/// # Errors
/// As [`validate`].
pub fn validate_all(labels: &Labels) -> Result<()> {
    labels.iter().try_for_each(|(key, value)| validate(key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_counts_key_and_value() {
        validate("k", &"v".repeat(MAX_SIZE - 1)).unwrap();
        let error = validate("key", &"v".repeat(MAX_SIZE)).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument);
        assert!(error.message().contains("key: key"));
    }
}
