use std::sync::Arc;

use core_diff::Differ;
use core_events::{Exchange, Publisher};
use core_metadata::Database;
use core_plugin::{InitContext, Instance, Registration, Requirement, Transport, types};
use core_runtime_v2::TaskManager;
use core_streaming::Streams;
use core_transfer::Transferer;
use core_types::{Error, Result};

use crate::{
    GrpcService, containers::Containers, content::Content, diff, events::Events, health::Health, images::Images,
    introspection::Introspection, leases::Leases, namespaces::Namespaces, sandbox_controllers::SandboxControllers,
    sandboxes::Sandboxes, snapshots::Snapshots, streaming::Streaming, tasks, transfer::Transfer, version::Version,
};

/// The exchange of events, in the plugin set.
const EXCHANGE: (&str, &str) = (types::EVENT, "exchange");
/// The service that chooses a differ.
const DIFF_SERVICE: (&str, &str) = (types::SERVICE, "diff-service");
/// The registry of streams.
const STREAMS: (&str, &str) = (types::STREAMING, "manager");

/// The controllers of sandboxes by name.
const CONTROLLERS: (&str, &str) = (types::INTERNAL, "sandbox-controllers");
/// The task manager.
const TASKS: (&str, &str) = (types::RUNTIME_V2, "task");

/// The registrations of all services, and of the parts that are theirs alone.
pub fn plugins() -> Vec<Registration> {
    vec![
        Registration::new(EXCHANGE.0, EXCHANGE.1, |_| async { Ok(Instance::new(Arc::new(Exchange::new()))) }),
        Registration::new(STREAMS.0, STREAMS.1, |_| async { Ok(Instance::new(Streams::new())) }),
        over_database("leases", |database| Leases::new(database).service()),
        over_database("namespaces", |database| Namespaces::new(database).service()),
        over_database("images", |database| Images::new(database).service()),
        over_database("content", |database| Content::new(database).service()),
        over_database("snapshots", |database| Snapshots::new(database).service()),
        over_database("sandboxes", |database| Sandboxes::new(database).service()),
        sandbox_controllers(),
        containers(),
        tasks(),
        diff_service(),
        Registration::new(types::GRPC, "diff", |context| async move {
            Ok(grpc(context.get::<Arc<diff::Diff>>(DIFF_SERVICE.0, DIFF_SERVICE.1)?.service()))
        })
        .requires(DIFF_SERVICE),
        Registration::new(types::GRPC, "events", |context| async move {
            Ok(grpc(Events::new(context.get(EXCHANGE.0, EXCHANGE.1)?).service()))
        })
        .requires(EXCHANGE),
        Registration::new(types::GRPC, "introspection", |context| async move {
            let root = context.create_root()?;
            Ok(grpc(Introspection::new(context.plugins(), root)?.service()))
        }),
        Registration::new(types::GRPC, "streaming", |context| async move {
            Ok(grpc(Streaming::new(context.get(STREAMS.0, STREAMS.1)?).service()))
        })
        .requires(STREAMS),
        transfer(),
        Registration::new(types::GRPC, "version", |_| async { Ok(grpc(Version.service())) }),
        Registration::new(types::GRPC, "healthcheck", |_| async { Ok(grpc(Health.service())) }),
    ]
}

/// An instance that is only a gRPC service.
fn grpc(service: GrpcService) -> Instance {
    Instance::new(service.name()).offer(Transport::Grpc, service)
}

fn database(context: &InitContext) -> Result<Database> {
    context.single(types::METADATA)
}

fn over_database(id: &'static str, service: fn(Database) -> GrpcService) -> Registration {
    Registration::new(types::GRPC, id, move |context| async move { Ok(grpc(service(database(&context)?))) })
        .requires(types::METADATA)
}

fn sandbox_controllers() -> Registration {
    Registration::new(types::GRPC, "sandbox-controllers", |context| async move {
        let controllers = context.get(CONTROLLERS.0, CONTROLLERS.1)?;
        Ok(grpc(SandboxControllers::new(controllers).service()))
    })
    .requires(CONTROLLERS)
    .requires(Requirement::optional(types::SANDBOX_CONTROLLER))
}

fn containers() -> Registration {
    Registration::new(types::GRPC, "containers", |context| async move {
        let events: Arc<dyn Publisher> = context.get::<Arc<Exchange>>(EXCHANGE.0, EXCHANGE.1)?;
        Ok(grpc(Containers::new(database(&context)?, events).service()))
    })
    .requires(types::METADATA)
    .requires(EXCHANGE)
}

fn tasks() -> Registration {
    Registration::new(types::GRPC, "tasks", |context| async move {
        let manager = context.get::<Arc<TaskManager>>(TASKS.0, TASKS.1)?;
        let events: Arc<dyn Publisher> = context.get::<Arc<Exchange>>(EXCHANGE.0, EXCHANGE.1)?;
        Ok(grpc(tasks::service(manager, database(&context)?, events)))
    })
    .requires(TASKS)
    .requires(types::METADATA)
    .requires(EXCHANGE)
}

fn diff_service() -> Registration {
    Registration::new(DIFF_SERVICE.0, DIFF_SERVICE.1, |context| async move {
        let config: diff::Config = context.config()?;
        let loaded = context.all::<Differ>(types::DIFFER)?;
        let choose = |wanted: &String| {
            let found = loaded.iter().find(|(id, _)| id == wanted).map(|(_, differ)| differ.clone());
            found.ok_or_else(|| Error::not_found(format!("needed differ not loaded: {wanted}")))
        };
        let differs = config.default.iter().map(choose).collect::<Result<Vec<_>>>()?;
        Ok(Instance::new(Arc::new(diff::Diff::new(database(&context)?, differs, config.sync_fs))))
    })
    .config(&diff::Config::default())
    .requires(types::DIFFER)
    .requires(types::METADATA)
}

fn transfer() -> Registration {
    Registration::new(types::GRPC, "transfer", |context| async move {
        let transferers = context.all::<Arc<dyn Transferer>>(types::TRANSFER)?;
        let transferers = transferers.into_iter().map(|(_, transferer)| transferer).collect();
        Ok(grpc(Transfer::new(transferers, context.get(STREAMS.0, STREAMS.1)?).service()))
    })
    .requires(Requirement::optional(types::TRANSFER))
    .requires(STREAMS)
}
