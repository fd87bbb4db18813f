use std::{collections::BTreeMap, sync::Arc};

use core_events::{Exchange, Publisher};
use core_metadata::{Backends, Database, Options};
use core_plugin::{InitContext, InitResult, Instance, Registration, Requirement, types};
use core_snapshots::Snapshotter;
use core_types::Error;
use serde::{Deserialize, Serialize};

/// Section `io.containerd.metadata.v1.bolt`. The id is the published one, although the database is another.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct MetadataConfig {
    /// `shared` or `isolated`.
    content_sharing_policy: String,
    /// Do not sync; not supported, the database shares one sync among concurrent writers.
    no_sync: bool,
}

/// The content store, the snapshotters, and the metadata over them.
pub(super) fn plugins() -> Vec<Registration> {
    let config = MetadataConfig { content_sharing_policy: "shared".into(), no_sync: false };
    vec![
        plugin_content_local::registration(),
        plugin_snapshot_overlay::registration(),
        plugin_snapshot_native::registration(),
        Registration::new(types::METADATA, "bolt", open_metadata)
            .config(&config)
            .requires(types::CONTENT)
            .requires((types::EVENT, "exchange"))
            .requires(Requirement::optional(types::SNAPSHOTTER)),
    ]
}

async fn open_metadata(context: InitContext) -> InitResult<Instance> {
    let config: MetadataConfig = context.config()?;
    let isolated = match config.content_sharing_policy.as_str() {
        "shared" => false,
        "isolated" => true,
        other => {
            let message = format!("unknown content_sharing_policy {other:?}: use shared or isolated");
            return Err(Error::invalid_argument(message).into());
        }
    };
    if config.no_sync {
        tracing::warn!("no_sync is not supported: writes are always durable");
    }
    let events: Arc<dyn Publisher> = context.get::<Arc<Exchange>>(types::EVENT, "exchange")?;
    let snapshotters = context.all::<Arc<dyn Snapshotter>>(types::SNAPSHOTTER)?;
    let backends = Backends {
        content: context.single(types::CONTENT)?,
        snapshotters: snapshotters.into_iter().collect::<BTreeMap<_, _>>(),
        events,
    };
    let path = context.create_root()?.join("meta.lmdb");
    let database = Database::open_with(&path, backends, Options { isolated, ..Options::default() }).await?;
    let closing = database.clone();
    let policy = config.content_sharing_policy;
    Ok(Instance::new(database).export("policy", policy).on_close(move || async move { closing.close().await }))
}
