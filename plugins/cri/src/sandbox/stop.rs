//! Stopping and removing pods. Both may be asked for again and again; a request while one runs waits with it.

use std::{sync::Arc, time::Duration};

use containerd_api_cri::v1::ContainerEventType;
use core_types::{Result, ResultExt};

use super::{
    network,
    run::{ignore_missing, remove_files},
};
use crate::{blocking, container, cri::Cri, events, layout, netns, store::Sandbox};

/// StopPodSandbox. A pod that is not there is stopped.
///
/// # Errors
/// What keeps it from stopping; asking again goes on from there.
pub(crate) async fn stop(cri: &Arc<Cri>, id: &str) -> Result<()> {
    let Some(sandbox) = cri.sandboxes.find(id)? else {
        return Ok(());
    };
    joined_stop(cri, &sandbox).await
}

async fn joined_stop(cri: &Arc<Cri>, sandbox: &Arc<Sandbox>) -> Result<()> {
    let work = || {
        let (cri, sandbox) = (Arc::clone(cri), Arc::clone(sandbox));
        async move { stop_now(&cri, &sandbox).await.doing(format_args!("stop sandbox {}", sandbox.id())) }
    };
    cri.stopping.run(sandbox.id().to_owned(), work).await
}

async fn stop_now(cri: &Arc<Cri>, sandbox: &Arc<Sandbox>) -> Result<()> {
    let id = sandbox.id();
    // No container is made in it from here on.
    let was_stopped = sandbox.state().ready == Some(false);
    sandbox.update(|state| state.ready = Some(false));
    let inside = containers(cri, id);
    let stops = inside.iter().map(|container| container::stop::stop_now(cri, container, Duration::ZERO));
    for stopped in futures::future::join_all(stops).await {
        stopped?;
    }
    let controller = cri.controller(&sandbox.facts.sandboxer)?;
    ignore_missing(controller.stop(&cri.namespace, id, Duration::from_secs(10)).await)?;
    sandbox.stop();
    if !was_stopped {
        crate::nri::stop_pod(cri, sandbox).await;
    }
    if let Some(netns) = sandbox.state().netns {
        network::detach(cri, sandbox, Some(netns.clone())).await.doing("detach the networks")?;
        netns::removed(netns).await?;
    }
    let volumes = cri.layout.image_volumes(id);
    blocking(move || layout::remove_directory(&volumes)).await
}

/// The containers of a pod.
pub(crate) fn containers(cri: &Cri, sandbox: &str) -> Vec<Arc<crate::store::Container>> {
    let mut inside = cri.containers.list();
    inside.retain(|container| container.facts.sandbox_id == sandbox);
    inside
}

/// RemovePodSandbox, with all containers in it; stopped first when it runs. A pod that is not there is removed.
///
/// # Errors
/// What keeps it from going; asking again goes on from there.
pub(crate) async fn remove(cri: &Arc<Cri>, id: &str) -> Result<()> {
    let Some(sandbox) = cri.sandboxes.find(id)? else {
        return Ok(());
    };
    let id = sandbox.id().to_owned();
    let work = || {
        let (cri, sandbox) = (Arc::clone(cri), Arc::clone(&sandbox));
        async move { remove_now(&cri, &sandbox).await.doing(format_args!("remove sandbox {}", sandbox.id())) }
    };
    cri.removing.run(id, work).await
}

async fn remove_now(cri: &Arc<Cri>, sandbox: &Arc<Sandbox>) -> Result<()> {
    let id = sandbox.id();
    joined_stop(cri, sandbox).await?;
    for inside in containers(cri, id) {
        container::remove::remove(cri, inside.id()).await?;
    }
    let controller = cri.controller(&sandbox.facts.sandboxer)?;
    ignore_missing(controller.shutdown(&cri.namespace, id).await)?;
    remove_files(cri, id).await?;
    ignore_missing(cri.sandbox_records().delete(id).await)?;
    ignore_missing(cri.leases().delete(id, false).await)?;
    crate::nri::remove_pod(cri, sandbox).await;
    cri.sandboxes.remove(id);
    cri.names.release(&sandbox.facts.name);
    events::sandbox(cri, sandbox, ContainerEventType::ContainerDeletedEvent);
    Ok(())
}
