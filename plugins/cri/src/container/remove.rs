//! Removing a container.

use std::{sync::Arc, time::Duration};

use containerd_api_cri::v1::{ContainerEventType, ContainerState};
use core_types::{Result, ResultExt};

use super::{create::remove_directories, stop};
use crate::{
    cri::Cri,
    events,
    sandbox::{pause::found, run::ignore_missing},
    store::{Container, Phase},
};

/// RemoveContainer; killed first when it runs. One that is not there is removed.
///
/// # Errors
/// What keeps it from going; asking again goes on from there.
pub(crate) async fn remove(cri: &Arc<Cri>, id: &str) -> Result<()> {
    let Some(container) = cri.containers.find(id)? else {
        return Ok(());
    };
    let id = container.id().to_owned();
    let work = || {
        let (cri, container) = (Arc::clone(cri), Arc::clone(&container));
        async move {
            let removed = remove_now(&cri, &container).await;
            removed.doing(format_args!("remove container {}", container.id()))
        }
    };
    cri.removing.run(id, work).await
}

async fn remove_now(cri: &Arc<Cri>, container: &Arc<Container>) -> Result<()> {
    let id = container.id();
    if matches!(container.state(), ContainerState::ContainerRunning | ContainerState::ContainerUnknown) {
        stop::stop_now(cri, container, Duration::ZERO).await?;
    }
    container.enter(Phase::Removing, |_| Ok(()))?;
    let gone = take_apart(cri, container).await;
    if gone.is_err() {
        container.leave();
        return gone;
    }
    cri.containers.remove(id);
    cri.names.release(&container.facts.name);
    events::container(cri, container, ContainerEventType::ContainerDeletedEvent);
    crate::nri::removed(cri, container).await;
    Ok(())
}

async fn take_apart(cri: &Arc<Cri>, container: &Container) -> Result<()> {
    let id = container.id();
    if let Some(io) = container.take_io() {
        io.close().await;
    }
    if let Some(record) = found(cri.container_records().get(id).await)? {
        ignore_missing(cri.snapshotter(&record.snapshotter)?.remove(&record.snapshot_key).await)?;
        ignore_missing(cri.container_records().delete(id).await)?;
    }
    remove_directories(cri, id).await
}
