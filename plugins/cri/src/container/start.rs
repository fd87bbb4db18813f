//! Starting a container.

use std::sync::Arc;

use containerd_api_cri::v1::{ContainerEventType, ContainerState, NamespaceMode};
use core_runtime_v2::{CreateOptions, Task};
use core_types::{Error, Result, ResultExt};

use super::exit;
use crate::{
    cri::Cri,
    events,
    sandbox::run::ignore_missing,
    store::{Container, Phase, Sandbox, now},
};

/// Exit code of a container that could not be started.
const START_FAILED: i32 = 128;

/// StartContainer.
///
/// # Errors
/// NotFound; FailedPrecondition when it is not a container that was just made or its pod does not run; else what the
/// runtime says, and then the container has ended with the error as its message.
pub(crate) async fn start(cri: &Arc<Cri>, id: &str) -> Result<()> {
    let container = cri.containers.get(id)?;
    let sandbox = cri.sandboxes.get(&container.facts.sandbox_id)?;
    container.enter(Phase::Starting, |status| match status.state() {
        ContainerState::ContainerCreated => Ok(()),
        state => Err(Error::failed_precondition(format!(
            "container {} is in state {}; only one that was just made can be started",
            container.id(),
            state.as_str_name()
        ))),
    })?;
    let (cri, task_container) = (Arc::clone(cri), Arc::clone(&container));
    // Goes on when the caller gives up: half a start is none.
    let started = tokio::spawn(async move {
        let started = launch(&cri, &sandbox, &task_container).await;
        if let Err(error) = &started {
            failed(&task_container, error);
        }
        task_container.leave();
        started
    });
    started.await.unwrap_or_else(|_| Err(Error::internal("the start broke off, see the log")))
}

fn failed(container: &Container, error: &Error) {
    let marked = container.update(|status| {
        status.end(START_FAILED, None);
        status.reason = "StartError".into();
        status.message = error.to_string();
        Ok(())
    });
    if let Err(error) = marked {
        tracing::error!(id = container.id(), %error, "status of a container that could not be started");
    }
}

async fn launch(cri: &Arc<Cri>, sandbox: &Arc<Sandbox>, container: &Arc<Container>) -> Result<()> {
    let id = container.id();
    if !sandbox.is_ready() {
        return Err(Error::failed_precondition(format!("sandbox {} is not running", sandbox.id())));
    }
    let options = &container.facts.config.linux;
    let security = options.as_ref().and_then(|linux| linux.security_context.as_ref());
    if let Some(namespaces) = security.and_then(|security| security.namespace_options.as_ref())
        && namespaces.pid == NamespaceMode::Target as i32
    {
        super::spec::target(cri, sandbox.id(), &namespaces.target_id)?;
    }
    let io = container.io().ok_or_else(|| Error::failed_precondition(format!("container {id} has no streams")))?;
    io.start_log(container.facts.log_path.as_deref()).await.doing("open the log")?;
    let task = create_task(cri, sandbox, container, io.streams()).await?;
    let started = start_task(cri, sandbox, container, &task).await;
    if started.is_err() {
        ignore_missing(task.kill("", 9, true).await).unwrap_or_else(|error| tracing::warn!(id, %error, "kill"));
        if let Err(error) = ignore_missing(cri.tasks.delete(&cri.namespace, id).await.map(drop)) {
            tracing::error!(id, %error, "task of a container that could not be started");
        }
    }
    started
}

async fn create_task(cri: &Cri, sandbox: &Sandbox, container: &Container, io: core_runtime_v2::Io) -> Result<Task> {
    let id = container.id();
    let handler = cri.handler(sandbox)?;
    let record = cri.container_records().get(id).await?;
    let rootfs = cri.snapshotter(&record.snapshotter)?.mounts(&record.snapshot_key).await?;
    let state = sandbox.state();
    let options = CreateOptions {
        runtime: handler.shim().to_owned(),
        options: record.runtime.options,
        spec: record.spec,
        rootfs,
        io,
        sandbox_id: sandbox.id().to_owned(),
        task_address: state.address,
        task_version: state.version,
        ..CreateOptions::default()
    };
    let (task, _) = cri.tasks.create(&cri.namespace, id, options).await?;
    Ok(task)
}

async fn start_task(cri: &Arc<Cri>, sandbox: &Sandbox, container: &Arc<Container>, task: &Task) -> Result<()> {
    crate::nri::starting(cri, sandbox, container).await.doing("NRI: start the container")?;
    // Before the process can end, however late this task gets its turn.
    let started_at = now();
    let pid = task.start("").await?;
    container.update(|status| {
        status.pid = pid;
        status.started_at = started_at;
        Ok(())
    })?;
    events::container(cri, container, ContainerEventType::ContainerStartedEvent);
    exit::watch(cri, container, task.clone());
    crate::nri::started(cri, sandbox, container).await;
    Ok(())
}
