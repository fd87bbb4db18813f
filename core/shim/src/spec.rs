use std::{fs, path::Path};

use serde::Deserialize;

#[derive(Default, Deserialize)]
struct Spec {
    linux: Option<Linux>,
}

#[derive(Default, Deserialize)]
struct Linux {
    #[serde(default)]
    namespaces: Vec<Namespace>,
}

#[derive(Deserialize)]
struct Namespace {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    path: String,
}

/// Whether processes of the container can outlive its init: so it is unless it has a PID namespace of its
/// own, and so it is assumed when the specification cannot be read.
pub(crate) fn outlived_by_others(bundle: &Path) -> bool {
    let spec: Option<Spec> =
        fs::read(bundle.join("config.json")).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let namespaces = spec.and_then(|spec| spec.linux).unwrap_or_default().namespaces;
    !namespaces.iter().any(|namespace| namespace.kind == "pid" && namespace.path.is_empty())
}
