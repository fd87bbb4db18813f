//! The plugins of this daemon, in one place.

/// Shims and the task manager.
mod runtime;
/// The listeners.
mod servers;

use core_plugin::Registry;
use core_types::Result;

pub(crate) use servers::Listener;

/// Every plugin, in the order in which introspection shows them where no requirement says otherwise.
///
/// # Errors
/// When two have the same name.
pub(crate) fn registry() -> Result<Registry> {
    let mut registry = Registry::new();
    let storage = [
        plugin_content_local::registration(),
        plugin_snapshot_overlay::registration(),
        plugin_snapshot_native::registration(),
        plugin_metadata_lmdb::registration(),
        plugin_gc_scheduler::registration(),
        plugin_diff_walking::registration(),
        plugin_transfer_local::registration(),
        plugin_nri::registration(),
        plugin_cri_images::registration(),
    ];
    let all = storage
        .into_iter()
        .chain(runtime::plugins())
        .chain(plugin_sandbox_controllers::plugins())
        .chain(plugin_services::plugins())
        .chain(plugin_cri::plugins())
        .chain(servers::plugins());
    for plugin in all {
        registry.register(plugin)?;
    }
    Ok(registry)
}
