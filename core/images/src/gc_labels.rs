use std::collections::HashMap;

use core_content::{Info, Store};
use core_types::{Descriptor, Digest, Labels, Result, labels, media_types};

use crate::kinds;

/// Annotation on a child that is there because it refers to the parent, not the parent to it.
pub const REFERRER_SUBJECT: &str = "io.containerd.manifest.subject";

/// Labels for a document by which the collector finds its children, with containerd's keys:
/// `…gc.ref.content.config`, `….m.<n>`, `….l.<n>`, `….<n>`.
pub fn child_labels(children: &[Descriptor]) -> Vec<(String, Digest)> {
    let mut counts: HashMap<&str, u32> = HashMap::new();
    children
        .iter()
        .map(|child| {
            let suffix = suffix(child);
            let at = counts.entry(suffix).or_default();
            let number = *at;
            *at += 1;
            let base = labels::GC_REF_CONTENT;
            let key = match suffix {
                "referrer.sha256." => format!("{base}.{suffix}{}", &child.digest.hex()[..12]),
                "config" if number == 0 => format!("{base}.config"),
                _ => format!("{base}.{suffix}{number}"),
            };
            (key, child.digest.clone())
        })
        .collect()
}

fn suffix(child: &Descriptor) -> &'static str {
    let media_type = child.media_type.as_str();
    if child.annotations.contains_key(REFERRER_SUBJECT) {
        "referrer.sha256."
    } else if kinds::is_known_config(media_type) {
        "config"
    } else if media_types::is_manifest(media_type) {
        "m."
    } else if kinds::is_layer(media_type) {
        "l."
    } else {
        ""
    }
}

/// Puts [`child_labels`] on the stored document `parent`.
///
/// # Errors
/// NotFound when the document is not in the store.
pub async fn label_children(store: &dyn Store, parent: &Digest, children: &[Descriptor]) -> Result<()> {
    if children.is_empty() {
        return Ok(());
    }
    let mut info = store.info(parent).await?;
    let wanted = child_labels(children);
    if wanted.iter().all(|(key, digest)| info.labels.get(key).is_some_and(|have| have == digest.as_str())) {
        return Ok(());
    }
    let fields: Vec<String> = wanted.iter().map(|(key, _)| format!("labels.{key}")).collect();
    let labels: Labels = wanted.into_iter().map(|(key, digest)| (key, digest.to_string())).collect();
    info = Info { labels, ..info };
    store.update(info, &fields).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_containerds() {
        let child = |media_type: &str, name: &str| Descriptor::new(media_type, Digest::of(name.as_bytes()), 1);
        let children = [
            child(media_types::OCI_CONFIG, "c"),
            child(media_types::OCI_LAYER_GZIP, "l0"),
            child(media_types::DOCKER_LAYER_GZIP, "l1"),
            child(media_types::OCI_MANIFEST, "m"),
            child("application/x", "x"),
        ];
        let keys: Vec<String> = child_labels(&children).into_iter().map(|(key, _)| key).collect();
        let base = "containerd.io/gc.ref.content.";
        let expected = ["config", "l.0", "l.1", "m.0", "0"].map(|end| format!("{base}{end}"));
        assert_eq!(keys, expected);
    }
}
