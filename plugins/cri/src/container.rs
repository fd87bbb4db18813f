//! Containers: their lifecycle, one step in each module.

/// Making.
pub(crate) mod create;
/// Noticing the end.
pub(crate) mod exit;
/// Reopening logs.
pub(crate) mod log;
/// Removing.
pub(crate) mod remove;
/// From a request to a specification.
pub(crate) mod spec;
/// Starting.
pub(crate) mod start;
/// Telling.
pub(crate) mod status;
/// Stopping.
pub(crate) mod stop;
/// Changing limits.
pub(crate) mod update;
/// Images as volumes, and volumes of images.
mod volumes;

use containerd_api_cri::v1::PodSandboxConfig;
use core_snapshots::{LABEL_GID_MAPPING, LABEL_UID_MAPPING};
use core_types::{Labels, Result};

/// Labels of the snapshots of a pod's containers: those of its annotations that snapshotters ask for, and the
/// owner when the pod has a user namespace.
///
/// # Errors
/// InvalidArgument for a user namespace that cannot be.
pub(crate) fn snapshot_labels(config: &PodSandboxConfig) -> Result<Labels> {
    let mut labels: Labels = config
        .annotations
        .iter()
        .filter(|(key, _)| key.starts_with("containerd.io/snapshot/"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if let Some(mappings) = crate::sandbox::user_namespace(config)? {
        let text = |range: &core_sys::IdRange| format!("{}:{}:{}", range.inside, range.outside, range.length);
        labels.insert(LABEL_UID_MAPPING.into(), mappings.uids.iter().map(text).collect::<Vec<_>>().join(","));
        labels.insert(LABEL_GID_MAPPING.into(), mappings.gids.iter().map(text).collect::<Vec<_>>().join(","));
    }
    Ok(labels)
}
