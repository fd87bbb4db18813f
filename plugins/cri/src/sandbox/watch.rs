//! Noticing that a pod ended by itself.

use std::{sync::Arc, time::Duration};

use containerd_api_cri::v1::ContainerEventType;
use core_sandbox::Controller;

use crate::{cri::Cri, events, store::Sandbox};

/// Between two tries to learn whether a sandbox runs, when its controller cannot say.
const PAUSE: Duration = Duration::from_secs(2);

/// Watches a pod until it ends. The watch holds no pod alive: it ends with the pod's removal.
pub(crate) fn start(cri: &Arc<Cri>, sandbox: &Arc<Sandbox>, controller: Arc<dyn Controller>) {
    let (cri, sandbox) = (Arc::downgrade(cri), Arc::downgrade(sandbox));
    tokio::spawn(async move {
        loop {
            let (id, namespace) = match (sandbox.upgrade(), cri.upgrade()) {
                (Some(sandbox), Some(cri)) => (sandbox.id().to_owned(), cri.namespace.clone()),
                _ => return,
            };
            match controller.wait(&namespace, &id).await {
                Err(error) if !error.is_not_found() => {
                    tracing::warn!(id, %error, "waiting for a sandbox; trying again");
                    tokio::time::sleep(PAUSE).await;
                }
                _ => break,
            }
        }
        if let (Some(sandbox), Some(cri)) = (sandbox.upgrade(), cri.upgrade()) {
            sandbox.stop();
            events::sandbox(&cri, &sandbox, ContainerEventType::ContainerStoppedEvent);
        }
    });
}

/// Asks again and again how a sandbox is that could not be asked before.
pub(crate) fn ask_again(cri: &Arc<Cri>, sandbox: &Arc<Sandbox>, controller: Arc<dyn Controller>) {
    let (cri, sandbox) = (Arc::downgrade(cri), Arc::downgrade(sandbox));
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(PAUSE).await;
            let (Some(sandbox), Some(cri)) = (sandbox.upgrade(), cri.upgrade()) else { return };
            if sandbox.state().ready.is_some() {
                return;
            }
            match controller.status(&cri.namespace, sandbox.id(), false).await {
                Ok(status) if status.state == core_sandbox::READY => {
                    sandbox.update(|state| {
                        state.ready = Some(true);
                        state.pid = status.pid;
                    });
                    return;
                }
                Ok(_) => return sandbox.stop(),
                Err(error) if error.is_not_found() => return sandbox.stop(),
                Err(error) => tracing::debug!(id = sandbox.id(), %error, "state of a sandbox is still not known"),
            }
        }
    });
}
