//! Telling those who listen what happened to pods and containers.

use containerd_api_cri::v1::{ContainerEventResponse, ContainerEventType, ContainerStatus};

use crate::{
    container,
    cri::Cri,
    sandbox,
    store::{Container, Sandbox, now},
};

/// An event of a pod.
pub(crate) fn sandbox(cri: &Cri, sandbox: &Sandbox, kind: ContainerEventType) {
    publish(cri, sandbox.id(), Some(sandbox), kind);
}

/// An event of a container.
pub(crate) fn container(cri: &Cri, container: &Container, kind: ContainerEventType) {
    if cri.feed.is_heard() {
        let sandbox = cri.sandboxes.find(&container.facts.sandbox_id).ok().flatten();
        publish(cri, container.id(), sandbox.as_deref(), kind);
    }
}

fn publish(cri: &Cri, id: &str, sandbox: Option<&Sandbox>, kind: ContainerEventType) {
    if !cri.feed.is_heard() {
        return;
    }
    let deleted =
        kind == ContainerEventType::ContainerDeletedEvent && sandbox.is_some_and(|sandbox| sandbox.id() == id);
    let sandbox = sandbox.filter(|_| !deleted);
    cri.feed.publish(&ContainerEventResponse {
        container_id: id.to_owned(),
        container_event_type: kind as i32,
        created_at: now(),
        pod_sandbox_status: sandbox.map(self::sandbox::status::status),
        containers_statuses: sandbox.map(|sandbox| containers(cri, sandbox)).unwrap_or_default(),
    });
}

/// The status of every container of a pod.
pub(crate) fn containers(cri: &Cri, sandbox: &Sandbox) -> Vec<ContainerStatus> {
    self::sandbox::stop::containers(cri, sandbox.id())
        .iter()
        .map(|inside| container::status::status(cri, inside))
        .collect()
}
