//! `/sandboxes/create`, `/sandboxes/start`, `/sandboxes/exit`: controllers publish them, each once, whoever asked.

use containerd_api::{any, events};
use core_events::{Any, Event, Publisher};
use core_sandbox::SandboxExit;
use core_types::Namespace;

/// Says that a sandbox was prepared.
pub fn publish_create(publisher: &dyn Publisher, namespace: &Namespace, id: &str) {
    let event = events::SandboxCreate { sandbox_id: id.to_owned() };
    publish(publisher, namespace, "/sandboxes/create", any::pack("containerd.events.SandboxCreate", &event));
}

/// Says that a sandbox was started.
pub fn publish_start(publisher: &dyn Publisher, namespace: &Namespace, id: &str) {
    let event = events::SandboxStart { sandbox_id: id.to_owned() };
    publish(publisher, namespace, "/sandboxes/start", any::pack("containerd.events.SandboxStart", &event));
}

/// Says that a sandbox ended.
pub fn publish_exit(publisher: &dyn Publisher, namespace: &Namespace, id: &str, exit: &SandboxExit) {
    let event = events::SandboxExit {
        sandbox_id: id.to_owned(),
        exit_status: exit.status,
        exited_at: exit.exited_at.map(Into::into),
    };
    publish(publisher, namespace, "/sandboxes/exit", any::pack("containerd.events.SandboxExit", &event));
}

fn publish(publisher: &dyn Publisher, namespace: &Namespace, topic: &str, event: prost_types::Any) {
    let event = Event::Encoded(Any { type_url: event.type_url, value: event.value.into() });
    if let Err(error) = publisher.publish(namespace, topic, event) {
        tracing::warn!(%namespace, topic, %error, "event not published");
    }
}
