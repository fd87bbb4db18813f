//! After a restart of the daemon: pods and containers are read from their records, and found again in their shims.
//! Nothing here waits for a shim that does not answer.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use containerd_api_cri::v1::ContainerState;
use core_runtime_v2::{State, Status as TaskStatus};
use core_types::{Error, Result};
use futures::future::join_all;
use plugin_cri_io::ContainerIo;

use crate::{
    blocking,
    container::{create, exit},
    cri::Cri,
    netns,
    sandbox::{
        network,
        pause::found,
        run::{ignore_missing, remove_files},
        watch,
    },
    store::{Container, ContainerRecord, Sandbox, SandboxRecord, Status, records},
};

/// How long a shim may take to say how it is, before it counts as unknown.
const ANSWER: Duration = Duration::from_millis(1500);

/// Finds everything again. What was half made is taken apart.
///
/// # Errors
/// When records cannot be read at all.
pub(crate) async fn recover(cri: &Arc<Cri>) -> Result<()> {
    let stored = cri.sandbox_records().list(&[]).await?;
    let sandboxes = stored.iter().filter(|record| record.extensions.contains_key(records::SANDBOX));
    join_all(sandboxes.map(|record| recover_sandbox(cri, record))).await;
    let kind = format!("labels.{:?}=={:?}", records::KIND, records::KIND_CONTAINER);
    let containers = cri.container_records().list(&[kind]).await?;
    join_all(containers.iter().map(|record| recover_container(cri, record))).await;
    tidy(cri).await;
    Ok(())
}

async fn recover_sandbox(cri: &Arc<Cri>, record: &core_sandbox::Sandbox) {
    let sandbox = match SandboxRecord::read(record) {
        Ok(sandbox) => Arc::new(sandbox),
        Err(error) => {
            tracing::error!(id = record.id, %error, "record of a sandbox cannot be read; it is left alone");
            return;
        }
    };
    let id = sandbox.id().to_owned();
    if let Err(error) = cri.names.reserve(&sandbox.facts.name, &id) {
        tracing::error!(id, %error, "two sandboxes have one name");
    }
    if !sandbox.state().complete {
        match undo_sandbox(cri, &sandbox).await {
            Ok(()) => {
                cri.names.release(&sandbox.facts.name);
                return;
            }
            Err(error) => {
                tracing::error!(id, %error, "half a sandbox could not be taken apart; remove it to try again")
            }
        }
        sandbox.stop();
        cri.sandboxes.insert(&id, sandbox);
        return;
    }
    find_sandbox(cri, &sandbox).await;
    cri.sandboxes.insert(&id, Arc::clone(&sandbox));
}

/// Learns from its controller how a sandbox is.
async fn find_sandbox(cri: &Arc<Cri>, sandbox: &Arc<Sandbox>) {
    let id = sandbox.id();
    let controller = match cri.controller(&sandbox.facts.sandboxer) {
        Ok(controller) => controller,
        Err(error) => {
            tracing::error!(id, %error, "sandbox without a controller");
            return sandbox.stop();
        }
    };
    let asked = tokio::time::timeout(ANSWER, controller.status(&cri.namespace, id, false)).await;
    match asked.unwrap_or_else(|_| Err(Error::deadline_exceeded("no answer"))) {
        Ok(status) if status.state == core_sandbox::READY => {
            sandbox.update(|state| {
                state.ready = Some(true);
                state.pid = status.pid;
            });
            watch::start(cri, sandbox, controller);
        }
        Ok(_) => sandbox.stop(),
        Err(error) if error.is_not_found() => sandbox.stop(),
        Err(error) => {
            tracing::warn!(id, %error, "state of a sandbox is not known yet");
            watch::start(cri, sandbox, Arc::clone(&controller));
            watch::ask_again(cri, sandbox, controller);
        }
    }
}

/// Takes apart a sandbox that was not started wholly.
async fn undo_sandbox(cri: &Arc<Cri>, sandbox: &Arc<Sandbox>) -> Result<()> {
    let id = sandbox.id();
    tracing::info!(id, "taking apart half a sandbox of an earlier daemon");
    let controller = cri.controller(&sandbox.facts.sandboxer)?;
    ignore_missing(controller.shutdown(&cri.namespace, id).await)?;
    if let Some(path) = sandbox.state().netns {
        network::detach(cri, sandbox, Some(path.clone())).await?;
        netns::removed(path).await?;
    }
    remove_files(cri, id).await?;
    ignore_missing(cri.sandbox_records().delete(id).await)?;
    ignore_missing(cri.leases().delete(id, false).await)
}

async fn recover_container(cri: &Arc<Cri>, record: &core_metadata::Container) {
    let id = record.id.clone();
    match find_container(cri, record).await {
        Ok(()) => {}
        Err(error) => tracing::error!(id, %error, "container of an earlier daemon is left alone"),
    }
}

async fn find_container(cri: &Arc<Cri>, record: &core_metadata::Container) -> Result<()> {
    let facts = ContainerRecord::read(record)?;
    let (id, file) = (facts.id.clone(), cri.layout.status(&facts.id));
    let (status, existed) = {
        let file = file.clone();
        blocking(move || Ok((Status::load(&file)?, file.exists()))).await?
    };
    if !existed {
        // The request that made it was never answered.
        return undo_container(cri, record).await;
    }
    if let Err(error) = cri.names.reserve(&facts.name, &id) {
        tracing::error!(id, %error, "two containers have one name");
    }
    let torn = status.is_none();
    let mut status = status.unwrap_or_else(Status::created);
    status.oom_killed = false;
    let task = found(cri.tasks.get(&cri.namespace, &id))?;
    let state = match &task {
        None => None,
        Some(task) => {
            let asked = tokio::time::timeout(ANSWER, task.state("")).await;
            Some(asked.unwrap_or_else(|_| Err(Error::deadline_exceeded("no answer"))))
        }
    };
    let ended = status.state() == ContainerState::ContainerExited;
    let started = status.started_at != 0;
    let io = if ended { None } else { reattach(cri, &facts, started).await };
    if matches!(&state, Some(Err(error)) if !error.is_not_found()) && !ended {
        status.unknown = true;
    }
    let container = Arc::new(Container::new(facts, status, file, io));
    cri.containers.insert(&id, Arc::clone(&container));
    match (task, state) {
        _ if ended => exit_leftovers(cri, &id).await,
        (Some(task), Some(Ok(state))) => resume(cri, &container, task, &state).await,
        (Some(task), Some(Err(error))) if !error.is_not_found() => {
            tracing::warn!(id, %error, "state of a container is not known yet");
            exit::watch(cri, &container, task.clone());
            exit::ask_again(cri, &container, task);
        }
        _ if started || torn => exit::ended(cri, &container, None).await,
        _ => {}
    }
    Ok(())
}

/// A container whose shim answered.
async fn resume(cri: &Arc<Cri>, container: &Arc<Container>, task: core_runtime_v2::Task, state: &State) {
    match state.status {
        TaskStatus::Running | TaskStatus::Paused | TaskStatus::Pausing => {
            let marked = container.update(|status| {
                status.pid = state.pid;
                // The daemon may have gone between the start and the note of it.
                if status.started_at == 0 {
                    status.started_at = crate::store::now();
                }
                Ok(())
            });
            if let Err(error) = marked {
                tracing::error!(id = container.id(), %error, "status of a running container");
            }
            exit::watch(cri, container, task);
        }
        TaskStatus::Stopped => {
            let exit = task.wait("").await.ok();
            exit::ended(cri, container, exit).await;
        }
        // Made and not started: the start was never answered, so it did not happen.
        TaskStatus::Created | TaskStatus::Unknown => {
            if let Err(error) = ignore_missing(task.kill("", 9, true).await) {
                tracing::warn!(id = container.id(), %error, "kill a task that was never started");
            }
            exit::ended(cri, container, None).await;
        }
    }
}

/// The task of a container that ended may be left.
async fn exit_leftovers(cri: &Arc<Cri>, id: &str) {
    if let Err(error) = ignore_missing(cri.tasks.delete(&cri.namespace, id).await.map(drop)) {
        tracing::warn!(id, %error, "task of a container that ended");
    }
}

async fn reattach(cri: &Arc<Cri>, facts: &crate::store::ContainerFacts, started: bool) -> Option<Arc<ContainerIo>> {
    let directory = cri.layout.container_state(&facts.id).join("io");
    let options = create::io_options(cri, &facts.config);
    let io = async {
        let io = ContainerIo::reattach(&directory, &facts.id, options).await?;
        if started {
            io.start_log(facts.log_path.as_deref()).await?;
        }
        Ok::<_, Error>(io)
    };
    match io.await {
        Ok(io) => Some(Arc::new(io)),
        Err(error) => {
            tracing::warn!(id = facts.id, %error, "streams of a container cannot be opened again");
            None
        }
    }
}

async fn undo_container(cri: &Arc<Cri>, record: &core_metadata::Container) -> Result<()> {
    tracing::info!(id = record.id, "taking apart half a container of an earlier daemon");
    ignore_missing(cri.snapshotter(&record.snapshotter)?.remove(&record.snapshot_key).await)?;
    ignore_missing(cri.container_records().delete(&record.id).await)?;
    create::remove_directories(cri, &record.id).await
}

/// Removes directories and root file systems that belong to nothing.
async fn tidy(cri: &Arc<Cri>) {
    let layout = cri.layout.clone();
    let left = blocking(move || Ok((layout.left("sandboxes"), layout.left("containers")))).await;
    let Ok((sandboxes, containers)) = left else { return };
    let known: BTreeSet<String> = cri.sandboxes.list().iter().map(|sandbox| sandbox.id().to_owned()).collect();
    for id in sandboxes.iter().filter(|id| !known.contains(*id)) {
        report(id, remove_files(cri, id).await);
    }
    let known: BTreeSet<String> = cri.containers.list().iter().map(|container| container.id().to_owned()).collect();
    for id in containers.iter().filter(|id| !known.contains(*id)) {
        if cri.container_records().get(id).await.is_ok() {
            continue;
        }
        for snapshotter in cri.database.snapshotter_names() {
            let removed = match cri.snapshotter(&snapshotter) {
                Ok(snapshots) => ignore_missing(snapshots.remove(id).await),
                Err(error) => Err(error),
            };
            report(id, removed);
        }
        report(id, create::remove_directories(cri, id).await);
    }
}

fn report(id: &str, removed: Result<()>) {
    if let Err(error) = removed {
        tracing::warn!(id, %error, "what an earlier daemon left could not be removed");
    }
}
