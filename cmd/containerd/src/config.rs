//! The configuration file: versions, imports, migration, output.

/// Reading.
mod load;
/// Older versions.
mod migrate;
/// What can stand in it.
mod schema;
#[cfg(test)]
mod tests;

use core_plugin::Registry;
use toml::{Table, Value};

pub(crate) use load::{Remark, load, sections};
pub(crate) use schema::{Config, DEFAULT_ADDRESS, DEFAULT_PATH, GRPC, TTRPC, VERSION};

/// The configuration as a file of the newest version, with what each registered plugin takes filled in.
///
/// # Errors
/// When something cannot be written as TOML.
pub(crate) fn render(mut config: Config, registry: &Registry) -> anyhow::Result<String> {
    config.version = VERSION;
    for registration in registry.registrations() {
        let Some(default) = registration.default_config()? else { continue };
        let mut whole: Table = default.clone();
        if let Some(Value::Table(set)) = config.plugins.remove(&registration.uri()) {
            core_plugin::overlay(&mut whole, set);
        }
        config.plugins.insert(registration.uri(), Value::Table(whole));
    }
    Ok(toml::to_string_pretty(&config)?)
}
