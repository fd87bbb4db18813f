//! Noticing that a container ended, and cleaning up after it.

use std::{sync::Arc, time::Duration};

use containerd_api_cri::v1::ContainerEventType;
use core_runtime_v2::{ExitStatus, Task};
use core_types::Result;

use crate::{cri::Cri, events, sandbox::run::ignore_missing, store::Container};

/// Between two tries to learn how a container ended, when its shim cannot say.
const PAUSE: Duration = Duration::from_secs(2);
/// How long output may still come when the process is gone: a grandchild may hold the pipe.
const DRAIN: Duration = Duration::from_secs(10);

/// Watches a container until it ends. The watch holds it not alive: it ends with its removal.
pub(crate) fn watch(cri: &Arc<Cri>, container: &Arc<Container>, task: Task) {
    let (cri, container) = (Arc::downgrade(cri), Arc::downgrade(container));
    tokio::spawn(async move {
        let exit = loop {
            match task.wait("").await {
                Ok(exit) => break Some(exit),
                Err(error) if error.is_not_found() => break None,
                Err(error) => {
                    tracing::warn!(id = task.id(), %error, "waiting for a container; trying again");
                    tokio::time::sleep(PAUSE).await;
                }
            }
            if container.strong_count() == 0 {
                return;
            }
        };
        if let (Some(cri), Some(container)) = (cri.upgrade(), container.upgrade()) {
            ended(&cri, &container, exit).await;
        }
    });
}

/// Records an end (None: nobody saw it), and gives back what the container held.
pub(crate) async fn ended(cri: &Arc<Cri>, container: &Arc<Container>, exit: Option<ExitStatus>) {
    let id = container.id();
    if let Err(error) = clean(cri, container).await {
        tracing::error!(id, %error, "task of a container that ended");
    }
    let recorded = container.update(|status| {
        if status.finished_at == 0 {
            match exit {
                Some(exit) => status.end(i32::try_from(exit.status).unwrap_or(i32::MAX), exit.exited_at),
                None => status.end_unseen(),
            }
        }
        Ok(())
    });
    if let Err(error) = recorded {
        tracing::error!(id, %error, "status of a container that ended");
    }
    events::container(cri, container, ContainerEventType::ContainerStoppedEvent);
    crate::nri::exited(cri, container).await;
}

async fn clean(cri: &Arc<Cri>, container: &Arc<Container>) -> Result<()> {
    let id = container.id();
    ignore_missing(cri.tasks.delete(&cri.namespace, id).await.map(drop))?;
    if let Some(io) = container.take_io() {
        if tokio::time::timeout(DRAIN, io.finished()).await.is_err() {
            tracing::warn!(id, "a process that the container left behind holds its output; no more is logged");
        }
        io.close().await;
    }
    Ok(())
}

/// Asks again and again how a container is that could not be asked before.
pub(crate) fn ask_again(cri: &Arc<Cri>, container: &Arc<Container>, task: Task) {
    let (cri, container) = (Arc::downgrade(cri), Arc::downgrade(container));
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(PAUSE).await;
            let Some(container) = container.upgrade() else { return };
            if !container.status().unknown || cri.strong_count() == 0 {
                return;
            }
            match task.state("").await {
                Ok(state) if state.status == core_runtime_v2::Status::Running => {
                    let known = container.update(|status| {
                        status.unknown = false;
                        status.pid = state.pid;
                        Ok(())
                    });
                    if let Err(error) = known {
                        tracing::error!(id = container.id(), %error, "status of a running container");
                    }
                    return;
                }
                // The watch sees the end.
                Ok(_) => return,
                Err(error) if error.is_not_found() => return,
                Err(error) => tracing::debug!(id = container.id(), %error, "state of a container is still not known"),
            }
        }
    });
}
