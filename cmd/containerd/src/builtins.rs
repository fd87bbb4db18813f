//! The plugins of this daemon, in one place.

/// Shims and the task manager.
mod runtime;
/// The listeners.
mod servers;
/// Content, snapshotters and metadata.
mod storage;

use core_plugin::Registry;
use core_types::Result;

pub(crate) use servers::Listener;

/// Every plugin, in the order in which introspection shows them where no requirement says otherwise.
///
/// # Errors
/// When two have the same name.
pub(crate) fn registry() -> Result<Registry> {
    let mut registry = Registry::new();
    let all = [storage::plugins(), runtime::plugins(), plugin_services::plugins(), servers::plugins()];
    for plugin in all.into_iter().flatten() {
        registry.register(plugin)?;
    }
    Ok(registry)
}
