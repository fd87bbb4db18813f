//! The configuration file: versions, imports, migration, output.

/// Reading.
mod load;
/// Older versions.
mod migrate;
/// What can stand in it.
mod schema;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context;
use core_plugin::Registry;
use core_types::duration;
use toml::{Table, Value};

pub(crate) use load::{Remark, load, sections};
pub(crate) use schema::{Config, DEFAULT_ADDRESS, DEFAULT_PATH, GRPC, TTRPC, VERSION};

/// Durations that count when the file is silent.
const DEFAULT_TIMEOUTS: [(&str, &str); 4] = [
    ("io.containerd.timeout.shim.cleanup", "5s"),
    ("io.containerd.timeout.shim.load", "5s"),
    ("io.containerd.timeout.shim.shutdown", "3s"),
    ("io.containerd.timeout.task.state", "2s"),
];

/// The durations of the file.
///
/// # Errors
/// When one is no duration.
pub(crate) fn timeouts(config: &Config) -> anyhow::Result<BTreeMap<String, Duration>> {
    let parse = |(name, text): (&String, &String)| {
        let duration = duration::parse(text);
        Ok((name.clone(), duration.with_context(|| format!("timeouts: {name} is no duration: {text:?}"))?))
    };
    config.timeouts.iter().map(parse).collect()
}

/// The configuration as a file of the newest version, with what each registered plugin takes filled in.
///
/// # Errors
/// When something cannot be written as TOML.
pub(crate) fn render(mut config: Config, registry: &Registry) -> anyhow::Result<String> {
    config.version = VERSION;
    for (name, duration) in DEFAULT_TIMEOUTS {
        config.timeouts.entry(name.to_owned()).or_insert_with(|| duration.to_owned());
    }
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
