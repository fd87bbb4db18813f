use anyhow::Result;
use containerd_sdk::api::{events as messages, services::images::v1 as images, types::Envelope};
use prost::Message;
use prost_types::Any;
use serde_json::{Value, json};

use crate::{
    context::{Context, warn},
    output,
};

/// Packages of the events; those of images are in the package of their service.
const PACKAGES: [&str; 2] = ["containerd.events.", "containerd.services.images.v1."];

/// Display containerd events.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Filters, of which one must match
    filters: Vec<String>,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<()> {
    let mut events = context.client().await?.subscribe(&args.filters).await?;
    while let Some(event) = events.next().await? {
        output::line(shown(&event))?;
    }
    Ok(())
}

fn shown(envelope: &Envelope) -> String {
    let time = envelope.timestamp.as_ref().map(ToString::to_string).unwrap_or_default();
    let event = match &envelope.event {
        None => String::new(),
        Some(event) => match decode(event) {
            Ok(value) => value.to_string(),
            Err(error) => {
                warn(format!("cannot decode event {}: {error}", event.type_url));
                json!({"type_url": event.type_url, "bytes": event.value.len()}).to_string()
            }
        },
    };
    format!("{time} {} {} {event}", envelope.namespace, envelope.topic)
}

/// An event as JSON, with the published field names.
fn decode(event: &Any) -> Result<Value, prost::DecodeError> {
    fn of<M: Message + Default>(event: &Any, shown: impl FnOnce(M) -> Value) -> Result<Value, prost::DecodeError> {
        M::decode(event.value.as_slice()).map(shown)
    }
    let url = event.type_url.rsplit('/').next().unwrap_or_default();
    let Some(name) = PACKAGES.iter().find_map(|package| url.strip_prefix(package)) else {
        return Ok(json!({"type_url": event.type_url, "bytes": event.value.len()}));
    };
    match name {
        "ContainerCreate" => of(event, |e: messages::ContainerCreate| {
            let runtime = e.runtime.map(|runtime| json!({"name": runtime.name}));
            json!({"id": e.id, "image": e.image, "runtime": runtime})
        }),
        "ContainerUpdate" => of(
            event,
            |e: messages::ContainerUpdate| json!({"id": e.id, "image": e.image, "labels": e.labels, "snapshot_key": e.snapshot_key}),
        ),
        "ContainerDelete" => of(event, |e: messages::ContainerDelete| json!({"id": e.id})),
        "ContentCreate" => of(event, |e: messages::ContentCreate| json!({"digest": e.digest, "size": e.size})),
        "ContentDelete" => of(event, |e: messages::ContentDelete| json!({"digest": e.digest})),
        "ImageCreate" => of(event, |e: images::ImageCreate| json!({"name": e.name, "labels": e.labels})),
        "ImageUpdate" => of(event, |e: images::ImageUpdate| json!({"name": e.name, "labels": e.labels})),
        "ImageDelete" => of(event, |e: images::ImageDelete| json!({"name": e.name})),
        "NamespaceCreate" => of(event, |e: messages::NamespaceCreate| json!({"name": e.name, "labels": e.labels})),
        "NamespaceUpdate" => of(event, |e: messages::NamespaceUpdate| json!({"name": e.name, "labels": e.labels})),
        "NamespaceDelete" => of(event, |e: messages::NamespaceDelete| json!({"name": e.name})),
        "SnapshotPrepare" => of(
            event,
            |e: messages::SnapshotPrepare| json!({"key": e.key, "parent": e.parent, "snapshotter": e.snapshotter}),
        ),
        "SnapshotCommit" => {
            of(event, |e: messages::SnapshotCommit| json!({"key": e.key, "name": e.name, "snapshotter": e.snapshotter}))
        }
        "SnapshotRemove" => {
            of(event, |e: messages::SnapshotRemove| json!({"key": e.key, "snapshotter": e.snapshotter}))
        }
        name => task_event(name, event),
    }
}

fn task_event(name: &str, event: &Any) -> Result<Value, prost::DecodeError> {
    fn of<M: Message + Default>(event: &Any, shown: impl FnOnce(M) -> Value) -> Result<Value, prost::DecodeError> {
        M::decode(event.value.as_slice()).map(shown)
    }
    let time = |time: Option<prost_types::Timestamp>| time.map(|time| time.to_string());
    match name {
        "TaskCreate" => of(
            event,
            |e: messages::TaskCreate| json!({"container_id": e.container_id, "bundle": e.bundle, "pid": e.pid}),
        ),
        "TaskStart" => of(event, |e: messages::TaskStart| json!({"container_id": e.container_id, "pid": e.pid})),
        "TaskDelete" => of(event, |e: messages::TaskDelete| {
            json!({
                "container_id": e.container_id, "pid": e.pid, "exit_status": e.exit_status,
                "exited_at": time(e.exited_at), "id": e.id,
            })
        }),
        "TaskExit" => of(event, |e: messages::TaskExit| {
            json!({
                "container_id": e.container_id, "id": e.id, "pid": e.pid, "exit_status": e.exit_status,
                "exited_at": time(e.exited_at),
            })
        }),
        "TaskOOM" => of(event, |e: messages::TaskOom| json!({"container_id": e.container_id})),
        "TaskExecAdded" => {
            of(event, |e: messages::TaskExecAdded| json!({"container_id": e.container_id, "exec_id": e.exec_id}))
        }
        "TaskExecStarted" => of(
            event,
            |e: messages::TaskExecStarted| json!({"container_id": e.container_id, "exec_id": e.exec_id, "pid": e.pid}),
        ),
        "TaskPaused" => of(event, |e: messages::TaskPaused| json!({"container_id": e.container_id})),
        "TaskResumed" => of(event, |e: messages::TaskResumed| json!({"container_id": e.container_id})),
        _ => Ok(json!({"type_url": event.type_url, "bytes": event.value.len()})),
    }
}

#[cfg(test)]
mod tests {
    use containerd_sdk::api::any;

    use super::*;

    #[test]
    fn events_are_shown_as_json() {
        let exit = messages::TaskExit {
            container_id: "web".into(),
            id: "web".into(),
            pid: 7,
            exit_status: 3,
            exited_at: None,
        };
        let envelope = Envelope {
            timestamp: Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 0 }),
            namespace: "default".into(),
            topic: "/tasks/exit".into(),
            event: Some(any::pack("containerd.events.TaskExit", &exit)),
        };
        let line = shown(&envelope);
        assert!(line.starts_with("2023-11-14T22:13:20Z default /tasks/exit {"), "{line}");
        assert!(line.contains(r#""exit_status":3"#));
    }
}
