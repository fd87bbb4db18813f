use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use core_events::{Exchange, Publisher};
use core_metadata::{Backends, Database, Options};
use core_plugin::{InitContext, InitResult, Instance, Registration, Requirement, types};
use core_snapshots::Snapshotter;

use crate::{Config, SharingPolicy};

/// Where the database is: a directory beside that of containerd's own, whose type it shares.
pub fn directory(root: &Path) -> PathBuf {
    root.join(format!("{}.lmdb", types::METADATA))
}

/// The plugin `io.containerd.metadata.v1.bolt`; its instance is a [`Database`]. The id is the published one, which
/// configurations and clients name, although the database is another.
pub fn registration() -> Registration {
    Registration::new(types::METADATA, "bolt", open)
        .config(&Config::default())
        .requires(types::CONTENT)
        .requires((types::EVENT, "exchange"))
        .requires(Requirement::optional(types::SNAPSHOTTER))
}

async fn open(context: InitContext) -> InitResult<Instance> {
    let config: Config = context.config()?;
    if config.no_sync {
        tracing::warn!("no_sync is not supported: writes are durable, and concurrent ones share a sync");
    }
    let events: Arc<dyn Publisher> = context.get::<Arc<Exchange>>(types::EVENT, "exchange")?;
    let snapshotters = context.all::<Arc<dyn Snapshotter>>(types::SNAPSHOTTER)?;
    let backends =
        Backends { content: context.single(types::CONTENT)?, snapshotters: snapshotters.into_iter().collect(), events };
    let root = context.root().parent().unwrap_or_else(|| context.root());
    let path = directory(root);
    let isolated = config.content_sharing_policy == SharingPolicy::Isolated;
    let database = Database::open_with(&path, backends, Options { isolated, ..Options::default() }).await?;
    let closing = database.clone();
    Ok(Instance::new(database)
        .export("policy", config.content_sharing_policy.as_str())
        .export("path", path.display().to_string())
        .on_close(move || async move { closing.close().await }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_place_are_the_published_ones() {
        assert_eq!(registration().uri(), "io.containerd.metadata.v1.bolt");
        assert_eq!(directory(Path::new("/r")), Path::new("/r/io.containerd.metadata.v1.lmdb"));
    }
}
