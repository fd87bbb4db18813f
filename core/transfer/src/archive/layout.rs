use core_remotes::Reference;
use core_types::{Descriptor, Platform};
use serde::{Deserialize, Serialize};

/// The file that says that a tar is an OCI layout.
pub(crate) const OCI_LAYOUT: &str = "oci-layout";
/// The version of it that is understood.
pub(crate) const OCI_LAYOUT_VERSION: &str = "1.0.0";
/// The index of an OCI layout.
pub(crate) const INDEX: &str = "index.json";
/// The list of images of `docker save`.
pub(crate) const DOCKER_MANIFESTS: &str = "manifest.json";

/// `oci-layout`
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Layout {
    pub(crate) image_layout_version: String,
}

/// An entry of `manifest.json`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DockerImage {
    pub(crate) config: String,
    #[serde(default)]
    pub(crate) repo_tags: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) layers: Option<Vec<String>>,
}

/// Whether a child of an index is an attestation or the like, not something to run.
pub(crate) fn is_attestation(descriptor: &Descriptor) -> bool {
    let unknown = |platform: &Platform| platform.os == "unknown" || platform.architecture == "unknown";
    descriptor.annotations.contains_key("vnd.docker.reference.type")
        || descriptor.platform.as_ref().is_some_and(unknown)
        || descriptor.artifact_type.is_some()
}

/// What OCI wants as the name of an image: its tag; the whole name where there is none.
pub(crate) fn oci_name(name: &str) -> String {
    let tagged =
        Reference::parse(name).ok().and_then(|reference| reference.tag().map(|_| reference.object().to_owned()));
    tagged.unwrap_or_else(|| name.to_owned())
}

/// The name as Docker's users write it: `docker.io/library/busybox:latest` is `busybox:latest`.
pub(crate) fn familiar(name: &str) -> Option<String> {
    let full = core_remotes::normalize(name).ok()?.to_string();
    let short = full.strip_prefix("docker.io/").unwrap_or(&full);
    Some(short.strip_prefix("library/").unwrap_or(short).to_owned())
}

/// A name of the archive without `./` and doubled slashes, for looking up.
pub(crate) fn clean(name: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_their_forms() {
        assert_eq!(familiar("docker.io/library/busybox:latest").as_deref(), Some("busybox:latest"));
        assert_eq!(familiar("docker.io/user/app:1").as_deref(), Some("user/app:1"));
        assert_eq!(familiar("r.example:5000/a:1").as_deref(), Some("r.example:5000/a:1"));
        assert_eq!(oci_name("docker.io/library/busybox:1.36"), "1.36");
        assert_eq!(oci_name("just a name"), "just a name");
        assert_eq!(clean("./a//b/../c/"), "a/c");
        assert_eq!(clean("../../x"), "x");
    }

    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_of_an_archive_leads_nowhere_else(name in "[./a]{0,12}|\\PC{0,30}") {
            let cleaned = clean(&name);
            prop_assert!(cleaned.is_empty() || cleaned.split('/').all(|part| !matches!(part, "" | "." | "..")));
            prop_assert_eq!(clean(&cleaned), cleaned);
        }

        #[test]
        fn a_list_of_images_of_any_shape_is_understood_or_refused(
            config in "\\PC{0,20}",
            tags in proptest::option::of(proptest::collection::vec("\\PC{0,20}", 0..4)),
            layers in proptest::option::of(proptest::collection::vec("\\PC{0,20}", 0..4)),
            cut in 0usize..400,
        ) {
            let list = serde_json::json!([{ "Config": config, "RepoTags": tags, "Layers": layers, "Other": 1 }]);
            let mut text = list.to_string();
            let read: Vec<DockerImage> = serde_json::from_str(&text).unwrap();
            prop_assert_eq!((&read[0].config, &read[0].repo_tags, &read[0].layers), (&config, &tags, &layers));
            // Names are whatever somebody wrote.
            for tag in read[0].repo_tags.iter().flatten() {
                let _ = (familiar(tag), oci_name(tag));
            }
            while !text.is_char_boundary(cut.min(text.len())) {
                text.pop();
            }
            text.truncate(cut);
            prop_assert_eq!(serde_json::from_str::<Vec<DockerImage>>(&text).is_ok(), text.len() == list.to_string().len());
        }
    }
}
