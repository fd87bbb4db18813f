use std::{sync::Arc, time::SystemTime};

use async_trait::async_trait;
use containerd_api::services::events::ttrpc::v1::{ForwardRequest, events_ttrpc};
use containerd_ttrpc::{Context, Router, Status};
use core_events::{Envelope, Event};
use core_types::{Error, Namespace, Result};

use crate::convert::{any_from, status, time};

/// Takes an event that a shim published.
pub type Forward = Arc<dyn Fn(Envelope) -> Result<()> + Send + Sync>;

/// Adds `containerd.services.events.ttrpc.v1.Events` to a router; every event goes to `forward`, as it came.
/// A daemon lets the task manager look at it there
/// ([`observe`](core_runtime_v2::TaskManager::observe)) before it goes to the exchange.
pub fn register_events(router: &mut Router, forward: Forward) {
    events_ttrpc::register(router, Arc::new(Events { forward }));
}

struct Events {
    forward: Forward,
}

#[async_trait]
impl events_ttrpc::Events for Events {
    async fn forward(&self, _context: Context, request: ForwardRequest) -> std::result::Result<(), Status> {
        let envelope = envelope(request).map_err(|error| status(&error))?;
        (self.forward)(envelope).map_err(|error| status(&error))
    }
}

fn envelope(request: ForwardRequest) -> Result<Envelope> {
    let envelope = request.envelope.ok_or_else(|| Error::invalid_argument("envelope required"))?;
    let event = envelope.event.ok_or_else(|| Error::invalid_argument("event required"))?;
    Ok(Envelope {
        timestamp: time(envelope.timestamp).unwrap_or_else(SystemTime::now),
        namespace: Namespace::new(&envelope.namespace)?,
        topic: envelope.topic,
        event: Event::Encoded(any_from(event)),
    })
}
