use std::{collections::BTreeMap, sync::Arc, time::Duration};

use core_events::Exchange;
use core_metadata::Database;
use core_plugin::{InitContext, InitResult, Instance, Registration, Requirement, Transport, types};
use core_transfer::Transferer;
use core_types::Platform;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{Config, Images, service::service, sync::FILTERS};

/// The registration; others get it as [`Images`].
pub fn registration() -> Registration {
    Registration::new(types::CRI_SERVICE, "images", init)
        .config(&Config::default())
        .requires(types::METADATA)
        .requires((types::EVENT, "exchange"))
        .requires((types::TRANSFER, "local"))
        .requires(Requirement::optional(types::SNAPSHOTTER))
}

async fn init(context: InitContext) -> InitResult<Instance> {
    let config: Config = context.config()?;
    let database: Database = context.single(types::METADATA)?;
    let transferer: Arc<dyn Transferer> = context.get(types::TRANSFER, "local")?;
    let exchange: Arc<Exchange> = context.get(types::EVENT, "exchange")?;
    let images = Images::new(config, database.clone(), transferer, roots(&context, &database))?;
    // Before the store is read, so that nothing is missed in between.
    let events = exchange.subscribe(&FILTERS.map(str::to_owned))?;
    images.resync().await?;
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    tasks.spawn(images.clone().watch(events, stop.clone()));
    let (sampled, ends) = (images.clone(), stop.clone());
    let instance = Instance::new(images.clone()).offer(Transport::Grpc, service(images)).platform(Platform::host());
    let running = tasks.clone();
    let instance = instance.when_serving(move || async move {
        running.spawn(sample(sampled, ends));
        running.close();
    });
    Ok(instance.on_close(move || async move {
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }))
}

/// Samples what snapshots weigh, once all plugins are there and every snapshotter in use is known.
async fn sample(images: Images, stop: CancellationToken) {
    let period = Duration::from_secs(images.settings().stats_collect_period.max(1));
    images.usage().run(images.database(), images.scope(), &images.snapshotters(), period, stop).await;
}

/// Where each snapshotter keeps its data: what its plugin says, else where plugins' directories are.
fn roots(context: &InitContext, database: &Database) -> BTreeMap<String, String> {
    let infos = context.plugins().infos();
    let parent = context.root().parent().unwrap_or(context.root());
    let root = |name: &String| {
        let plugin = infos.iter().find(|info| info.kind == types::SNAPSHOTTER && info.id == *name);
        let told = plugin.and_then(|plugin| plugin.exports.get("root")).filter(|root| !root.is_empty()).cloned();
        told.unwrap_or_else(|| parent.join(format!("{}.{name}", types::SNAPSHOTTER)).display().to_string())
    };
    database.snapshotter_names().into_iter().map(|name| (name.clone(), root(&name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_published_name() {
        assert_eq!(registration().uri(), "io.containerd.cri.v1.images");
    }
}
