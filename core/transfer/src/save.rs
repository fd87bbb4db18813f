use std::time::SystemTime;

use core_images::{Image, Store};
use core_types::{Descriptor, Error, Labels, Result, labels};

use crate::{ImageReference, ImageStore};

/// Annotation with the full name of an image.
pub(crate) const IMAGE_NAME: &str = "io.containerd.image.name";
/// Annotation with an image's tag (OCI image specification).
pub(crate) const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// How often a name that comes and goes is tried.
const MAX_TRIES: usize = 8;

/// Gives `target` the names that `store` asks for. `annotated` when it comes out of an archive's index, so that its
/// names are in its annotations; otherwise the store's own name counts.
///
/// # Errors
/// NotFound when there is no name for it.
pub(crate) async fn save(
    images: &dyn Store,
    store: &ImageStore,
    target: &Descriptor,
    annotated: bool,
) -> Result<Vec<Image>> {
    let names = if annotated { annotated_names(store, target) } else { own_names(store, target) };
    if names.is_empty() {
        return Err(Error::not_found(format!("no image name found for {}", target.digest)));
    }
    let mut saved = Vec::with_capacity(names.len());
    for (name, labels) in names {
        let now = SystemTime::now();
        let image = Image { name, labels, target: target.clone(), created_at: now, updated_at: now };
        saved.push(create_or_update(images, image).await?);
    }
    Ok(saved)
}

async fn create_or_update(images: &dyn Store, image: Image) -> Result<Image> {
    for _ in 0..MAX_TRIES {
        match images.create(image.clone()).await {
            Err(error) if error.is_already_exists() => {}
            other => return other,
        }
        match images.update(image.clone(), &[]).await {
            // Removed meanwhile.
            Err(error) if error.is_not_found() => {}
            other => return other,
        }
    }
    Err(Error::aborted(format!("image {:?} is created and removed all the time", image.name)))
}

fn own_names(store: &ImageStore, target: &Descriptor) -> Vec<(String, Labels)> {
    let mut names = Vec::new();
    if !store.name.is_empty() {
        names.push((store.name.clone(), store.labels.clone()));
    }
    for extra in store.extra_references.iter().filter(|extra| !extra.is_prefix || extra.add_digest) {
        let name = if extra.add_digest { with_digest(extra, target) } else { extra.name.clone() };
        names.push((name, extra_labels(store)));
    }
    names
}

fn annotated_names(store: &ImageStore, target: &Descriptor) -> Vec<(String, Labels)> {
    let mut names = Vec::new();
    for prefix in store.extra_references.iter().filter(|extra| extra.is_prefix) {
        let named = annotated_name(target, prefix);
        let wants_digest = prefix.add_digest && !(named.is_some() && prefix.skip_named_digest);
        names.extend(named.map(|name| (name, extra_labels(store))));
        if wants_digest {
            names.push((with_digest(prefix, target), extra_labels(store)));
        }
    }
    names
}

fn with_digest(reference: &ImageReference, target: &Descriptor) -> String {
    format!("{}@{}", reference.name, target.digest)
}

/// Further names live and die with the first one.
fn extra_labels(store: &ImageStore) -> Labels {
    let mut all = store.labels.clone();
    if !store.name.is_empty() {
        all.insert("containerd.io/gc.bref.image".to_owned(), store.name.clone());
        all.insert(labels::GC_EXPIRE.to_owned(), "1970-01-01T00:00:00Z".to_owned());
    }
    all
}

/// The name in the annotations, as far as the prefix allows it.
fn annotated_name(target: &Descriptor, prefix: &ImageReference) -> Option<String> {
    let translate = |name: &str| -> Option<String> {
        if prefix.name.is_empty() {
            return None;
        }
        if name.contains(['/', ':', '@']) {
            let allowed = prefix.allow_overwrite || has_prefix(name, &prefix.name);
            return allowed.then(|| name.to_owned());
        }
        Some(format!("{}:{name}", prefix.name))
    };
    if let Some(full) = target.annotations.get(IMAGE_NAME).filter(|name| !name.is_empty()) {
        // A full name is taken as it is or not at all.
        return translate(full).filter(|name| name == full);
    }
    target.annotations.get(REF_NAME).filter(|name| !name.is_empty()).and_then(|name| translate(name))
}

fn has_prefix(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ':', '@']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core_types::{Digest, media_types};

    fn target(annotations: &[(&str, &str)]) -> Descriptor {
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Descriptor { annotations, ..Descriptor::new(media_types::OCI_MANIFEST, Digest::of(b"m"), 1) }
    }

    fn names(store: &ImageStore, target: &Descriptor, annotated: bool) -> Vec<String> {
        let found = if annotated { annotated_names(store, target) } else { own_names(store, target) };
        found.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn prefixes_make_names_of_tags_and_check_full_names() {
        let prefix = |overwrite| ImageStore {
            extra_references: vec![ImageReference {
                name: "r.example/app".into(),
                is_prefix: true,
                allow_overwrite: overwrite,
                ..ImageReference::default()
            }],
            ..ImageStore::default()
        };
        let tag = target(&[(REF_NAME, "v1")]);
        assert_eq!(names(&prefix(false), &tag, true), ["r.example/app:v1"]);
        let full = target(&[(IMAGE_NAME, "docker.io/library/x:1"), (REF_NAME, "1")]);
        assert!(names(&prefix(false), &full, true).is_empty());
        assert_eq!(names(&prefix(true), &full, true), ["docker.io/library/x:1"]);
        let near = target(&[(IMAGE_NAME, "r.example/apple:1")]);
        assert!(names(&prefix(false), &near, true).is_empty());
        assert!(names(&prefix(true), &tag, false).is_empty());
    }

    #[test]
    fn digests_are_added_where_asked_for() {
        let store = |skip| ImageStore {
            name: "top".into(),
            extra_references: vec![ImageReference {
                name: "p".into(),
                is_prefix: true,
                add_digest: true,
                skip_named_digest: skip,
                ..ImageReference::default()
            }],
            ..ImageStore::default()
        };
        let by_digest = format!("p@{}", Digest::of(b"m"));
        let tag = target(&[(REF_NAME, "v1")]);
        assert_eq!(names(&store(true), &tag, true), ["p:v1"]);
        assert_eq!(names(&store(false), &tag, true), ["p:v1", by_digest.as_str()]);
        assert_eq!(names(&store(true), &target(&[]), true), [by_digest.as_str()]);
        assert_eq!(names(&store(true), &target(&[]), false), ["top", by_digest.as_str()]);
    }
}
