use std::{fs, path::Path};

use serde::{Deserialize, de::IgnoredAny};

#[derive(Default, Deserialize)]
struct Spec {
    linux: Option<Linux>,
    hooks: Option<Hooks>,
}

#[derive(Default, Deserialize)]
struct Hooks {
    #[serde(default)]
    poststart: Option<Vec<IgnoredAny>>,
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
    let namespaces = read(bundle).and_then(|spec| spec.linux).unwrap_or_default().namespaces;
    !namespaces.iter().any(|namespace| namespace.kind == "pid" && namespace.path.is_empty())
}

/// Whether something is to run when the container has started; so it is assumed when the specification cannot be
/// read.
pub(crate) fn has_poststart_hooks(bundle: &Path) -> bool {
    let Some(spec) = read(bundle) else { return true };
    spec.hooks.and_then(|hooks| hooks.poststart).is_some_and(|hooks| !hooks.is_empty())
}

fn read(bundle: &Path) -> Option<Spec> {
    fs::read(bundle.join("config.json")).ok().and_then(|text| serde_json::from_slice(&text).ok())
}
