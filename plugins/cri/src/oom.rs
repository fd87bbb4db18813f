//! Which containers the out-of-memory killer hit.

use std::sync::{Arc, Weak};

use containerd_api::events::TaskOom;
use core_events::Event;
use core_types::Result;
use prost::Message;

use crate::cri::{Cri, NAMESPACE};

/// Topic of the event.
const TOPIC: &str = "/tasks/oom";

/// Listens for out-of-memory kills for as long as the service lives.
///
/// # Errors
/// When the exchange refuses the filter.
pub(crate) fn listen(cri: &Arc<Cri>) -> Result<()> {
    let mut events = cri.exchange.subscribe(&[format!("topic==\"{TOPIC}\",namespace==\"{NAMESPACE}\"")])?;
    let cri = Arc::downgrade(cri);
    tokio::spawn(async move {
        while let Some(envelope) = events.next().await {
            let Event::Encoded(any) = &envelope.event else { continue };
            let Ok(event) = TaskOom::decode(&any.value[..]) else { continue };
            let Some(cri) = Weak::upgrade(&cri) else { return };
            mark(&cri, &event.container_id);
        }
    });
    Ok(())
}

fn mark(cri: &Cri, id: &str) {
    let Ok(Some(container)) = cri.containers.find(id) else { return };
    let marked = container.update(|status| {
        status.oom_killed = true;
        // The event may come after the end.
        if status.finished_at != 0 && status.exit_code != 0 && status.reason.is_empty() {
            status.reason = "OOMKilled".into();
        }
        Ok(())
    });
    if let Err(error) = marked {
        tracing::warn!(id, %error, "status of a container that was killed for memory");
    }
}
