use std::sync::Arc;

use core_events::{Envelope, Exchange};
use core_plugin::{InitContext, InitResult, Instance, Registration, Transport, types};
use core_runtime_v2::{Config, TaskManager};
use core_types::{Platform, ResultExt};
use plugin_services::{TtrpcService, version};
use plugin_shim_transport::{TtrpcConnector, register_events};
use serde::{Deserialize, Serialize};

/// Where shims make their sockets, whatever the state directory: their paths have to be short.
const SOCKETS: &str = "/run/containerd/s";

/// Section `io.containerd.shim.v1.manager`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct ShimConfig {
    /// More environment for shims, `NAME=value`.
    env: Vec<String>,
}

/// Section `io.containerd.runtime.v2.task`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct TaskConfig {
    /// Platforms that tasks can be of, for introspection.
    platforms: Vec<String>,
}

/// What is common to shims, and the task manager.
pub(super) fn plugins() -> Vec<Registration> {
    let host = Platform::host();
    let config = TaskConfig { platforms: vec![format!("{}/{}", host.os, host.architecture)] };
    vec![
        Registration::new(types::SHIM, "manager", |context| async move {
            Ok(Instance::new(Arc::new(context.config::<ShimConfig>()?)))
        })
        .config(&ShimConfig::default()),
        Registration::new(types::RUNTIME_V2, "task", task_manager)
            .config(&config)
            .requires((types::SHIM, "manager"))
            .requires((types::EVENT, "exchange")),
    ]
}

async fn task_manager(context: InitContext) -> InitResult<Instance> {
    let shims: Arc<ShimConfig> = context.get(types::SHIM, "manager")?;
    let exchange: Arc<Exchange> = context.get(types::EVENT, "exchange")?;
    let task: TaskConfig = context.config()?;
    let addresses = context.addresses();
    let mut config = Config::new(
        context.root().to_owned(),
        context.state().to_owned(),
        addresses.grpc.clone(),
        addresses.ttrpc.clone(),
    );
    config.version = version::VERSION.to_owned();
    config.socket_dir = SOCKETS.into();
    config.env.clone_from(&shims.env);
    config.debug = tracing::enabled!(tracing::Level::DEBUG);
    let timeouts = &mut config.timeouts;
    for (name, field) in [
        ("io.containerd.timeout.shim.load", &mut timeouts.load),
        ("io.containerd.timeout.shim.cleanup", &mut timeouts.cleanup),
        ("io.containerd.timeout.shim.shutdown", &mut timeouts.shutdown),
        ("io.containerd.timeout.task.state", &mut timeouts.state),
    ] {
        *field = context.timeout(name).unwrap_or(*field);
    }
    let manager = Arc::new(TaskManager::new(config, Arc::new(TtrpcConnector::default()), exchange.clone())?);
    let loaded = manager.load().await.doing("find the tasks of an earlier daemon")?;
    tracing::debug!(tasks = loaded, "found tasks of an earlier daemon");
    let mut instance = Instance::new(Arc::clone(&manager))
        .offer(Transport::Ttrpc, shim_events(manager, exchange))
        .export("root", context.root().display().to_string());
    for platform in &task.platforms {
        instance = instance.platform(Platform::parse(platform)?);
    }
    Ok(instance)
}

/// The service to which shims publish.
fn shim_events(manager: Arc<TaskManager>, exchange: Arc<Exchange>) -> TtrpcService {
    let forward = move |envelope: Envelope| {
        manager.observe(&envelope);
        exchange.forward(envelope)
    };
    TtrpcService(Box::new(move |router| register_events(router, Arc::new(forward))))
}
