//! Pods: their lifecycle, one step in each module.

/// Files that its containers share.
mod files;
/// Attaching to networks.
pub(crate) mod network;
/// The controller that holds a pod by a pause container.
pub(crate) mod pause;
/// Limits of a whole pod.
pub(crate) mod resources;
/// Starting.
pub(crate) mod run;
/// Telling.
pub(crate) mod status;
/// Stopping and removing.
pub(crate) mod stop;
/// What requests may ask for.
pub(crate) mod validate;
/// Noticing the end.
pub(crate) mod watch;

use containerd_api_cri::v1::{NamespaceMode, PodSandboxConfig};
use core_sys::{IdRange, UserMappings};
use core_types::{Error, Result};

/// The user namespace that a pod asks for; None for the host's.
///
/// # Errors
/// InvalidArgument for mappings that cannot be.
pub(crate) fn user_namespace(config: &PodSandboxConfig) -> Result<Option<UserMappings>> {
    let Some(options) = crate::store::namespaces(config).userns_options else {
        return Ok(None);
    };
    if options.mode == NamespaceMode::Node as i32 {
        return Ok(None);
    }
    if options.mode != NamespaceMode::Pod as i32 {
        return Err(Error::invalid_argument("namespace_options.userns_options.mode must be POD or NODE"));
    }
    let ranges = |name: &str, mappings: &[containerd_api_cri::v1::IdMapping]| match mappings {
        [one] if one.length > 0 => {
            Ok(vec![IdRange { inside: one.container_id, outside: one.host_id, length: one.length }])
        }
        _ => Err(Error::invalid_argument(format!("userns_options.{name} must have exactly one mapping, not empty"))),
    };
    Ok(Some(UserMappings { uids: ranges("uids", &options.uids)?, gids: ranges("gids", &options.gids)? }))
}
