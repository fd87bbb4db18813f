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

use containerd_api_cri::v1::PodSandboxConfig;
use core_oci::IdMapping;
use core_sys::{IdRange, UserMappings};
use core_types::Result;

/// Where a request has its user namespace.
const USER_NAMESPACE: &str = "config.linux.security_context.namespace_options.userns_options";

/// The user namespace that a pod asks for; None for the host's.
///
/// # Errors
/// InvalidArgument for mappings that cannot be.
pub(crate) fn user_namespace(config: &PodSandboxConfig) -> Result<Option<UserMappings>> {
    let options = crate::store::namespaces(config).userns_options;
    let mappings = plugin_cri_spec::user_namespace(USER_NAMESPACE, options.as_ref())?;
    let range = |ids: &IdMapping| IdRange { inside: ids.container, outside: ids.host, length: ids.size };
    Ok(mappings.map(|ids| UserMappings {
        uids: ids.uids.iter().map(range).collect(),
        gids: ids.gids.iter().map(range).collect(),
    }))
}
