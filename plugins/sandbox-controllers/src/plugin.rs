use std::sync::Arc;

use core_events::{Exchange, Publisher};
use core_plugin::{InitContext, InitResult, Instance, Registration, types};
use core_runtime_v2::TaskManager;
use core_sandbox::{Controller, Controllers};
use core_types::ResultExt;

use crate::ShimController;

/// Where all controllers are found by name, in the plugin set: a [`Controllers`].
pub const CONTROLLERS: (&str, &str) = (types::INTERNAL, "sandbox-controllers");
/// The controller that speaks with shims, in the plugin set: an `Arc<dyn Controller>`.
pub const SHIM: (&str, &str) = (types::SANDBOX_CONTROLLER, "shim");

const TASKS: (&str, &str) = (types::RUNTIME_V2, "task");
const EXCHANGE: (&str, &str) = (types::EVENT, "exchange");

/// The registrations.
pub fn plugins() -> Vec<Registration> {
    vec![
        Registration::new(CONTROLLERS.0, CONTROLLERS.1, |_| async { Ok(Instance::new(Controllers::default())) }),
        Registration::new(SHIM.0, SHIM.1, shim).requires(CONTROLLERS).requires(TASKS).requires(EXCHANGE),
    ]
}

async fn shim(context: InitContext) -> InitResult<Instance> {
    let controllers: Controllers = context.get(CONTROLLERS.0, CONTROLLERS.1)?;
    let tasks: Arc<TaskManager> = context.get(TASKS.0, TASKS.1)?;
    let events: Arc<dyn Publisher> = context.get::<Arc<Exchange>>(EXCHANGE.0, EXCHANGE.1)?;
    let (root, state) = (context.create_root()?.to_owned(), context.create_state()?.to_owned());
    let controller = ShimController::new(tasks.sandbox_shims(root, state), events);
    let loaded = controller.load().await.doing("find the sandboxes of an earlier daemon")?;
    tracing::debug!(sandboxes = loaded, "found sandboxes of an earlier daemon");
    let controller: Arc<dyn Controller> = Arc::new(controller);
    controllers.add(SHIM.1, Arc::clone(&controller))?;
    Ok(Instance::new(controller))
}
