use std::sync::Arc;

use core_diff::Differ;
use core_metadata::Database;
use core_plugin::{InitContext, Instance, Registration, types};
use core_transfer::{LocalTransferer, Transferer};
use core_types::{Error, Platform, Result};

use crate::{Config, DaemonBackend, Unpack, UnpackSection, backend::DEFAULT_SNAPSHOTTER};

/// The differ that is taken when the configuration names none.
const DEFAULT_DIFFER: &str = "walking";

/// The registration; others get it as an `Arc<dyn Transferer>`.
pub fn registration() -> Registration {
    let init = |context: InitContext| async move {
        let config: Config = context.config()?;
        let database: Database = context.single(types::METADATA)?;
        let differs: Vec<(String, Differ)> = context.all(types::DIFFER)?;
        Ok(Instance::new(transferer(&config, database, &differs)?).platform(Platform::host()))
    };
    Registration::new(types::TRANSFER, "local", init)
        .config(&Config::default())
        .requires(types::METADATA)
        .requires(types::DIFFER)
}

/// The transferer of a daemon.
///
/// # Errors
/// NotFound when the configuration names a snapshotter or differ that is not there.
pub fn transferer(config: &Config, database: Database, differs: &[(String, Differ)]) -> Result<Arc<dyn Transferer>> {
    let unpacks = unpacks(config, &database, differs)?;
    let backend = Arc::new(DaemonBackend::new(database, unpacks));
    Ok(Arc::new(LocalTransferer::new(backend, config.settings())))
}

/// What can be unpacked. Without configuration that is every snapshotter for this platform, the default one first.
fn unpacks(config: &Config, database: &Database, differs: &[(String, Differ)]) -> Result<Vec<Unpack>> {
    let names = database.snapshotter_names();
    let mut sections = config.unpack_config.clone();
    if sections.is_empty() {
        let mut names = names.clone();
        names.sort_by_key(|name| name != DEFAULT_SNAPSHOTTER);
        sections = names
            .into_iter()
            .map(|snapshotter| UnpackSection { snapshotter, optional: true, ..UnpackSection::default() })
            .collect();
    }
    let mut unpacks = Vec::new();
    for section in sections {
        let wanted = if section.differ.is_empty() { DEFAULT_DIFFER } else { &section.differ };
        let differ = differs.iter().find(|(id, _)| id == wanted).map(|(_, differ)| differ);
        let (Some(differ), true) = (differ, names.contains(&section.snapshotter)) else {
            if section.optional {
                continue;
            }
            return Err(Error::not_found(format!(
                "unpack_config: snapshotter {:?} or differ {wanted:?} is not there",
                section.snapshotter
            )));
        };
        let platform = if section.platform.is_empty() { Platform::host() } else { Platform::parse(&section.platform)? };
        unpacks.push(Unpack {
            platform,
            exact: config.check_platform_supported,
            snapshotter: section.snapshotter,
            applier: Arc::clone(&differ.applier),
            sync: section.sync_fs,
        });
    }
    Ok(unpacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_published_name_and_keys() {
        assert_eq!(registration().uri(), "io.containerd.transfer.v1.local");
        let config: Config = toml::from_str(
            "max_concurrent_downloads = 5\nconfig_path = \"/etc/containerd/certs.d\"\n[[unpack_config]]\nplatform = \"linux/amd64\"\nsnapshotter = \"native\"",
        )
        .unwrap();
        assert_eq!((config.max_concurrent_downloads, config.unpack_config[0].snapshotter.as_str()), (5, "native"));
        assert!(config.settings().config_path.is_some());
    }
}
