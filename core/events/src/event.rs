use std::time::SystemTime;

use bytes::Bytes;
use core_types::{Labels, Namespace, Result};

/// A serialized protobuf message with its name, as shims and clients send events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Any {
    /// Name of the message, `containerd.events.TaskExit`.
    pub type_url: String,
    /// Its bytes.
    pub value: Bytes,
}

/// What happened. The named ones are made by the core and encoded by the API layer; task events come from
/// shims as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// `/containers/create`
    ContainerCreate {
        /** Its id. */
        id: String,
        /** Its image. */
        image: String,
        /** Its runtime. */
        runtime: String,
    },
    /// `/containers/update`
    ContainerUpdate {
        /** Its id. */
        id: String,
        /** Its image. */
        image: String,
        /** Its labels. */
        labels: Labels,
        /** Its snapshot. */
        snapshot_key: String,
    },
    /// `/containers/delete`
    ContainerDelete {
        /** Its id. */
        id: String,
    },
    /// `/content/create`
    ContentCreate {
        /** The blob. */
        digest: String,
        /** Its size. */
        size: u64,
    },
    /// `/content/delete`
    ContentDelete {
        /** The blob. */
        digest: String,
    },
    /// `/images/create`
    ImageCreate {
        /** Its name. */
        name: String,
        /** Its labels. */
        labels: Labels,
    },
    /// `/images/update`
    ImageUpdate {
        /** Its name. */
        name: String,
        /** Its labels. */
        labels: Labels,
    },
    /// `/images/delete`
    ImageDelete {
        /** Its name. */
        name: String,
    },
    /// `/namespaces/create`
    NamespaceCreate {
        /** Its name. */
        name: String,
        /** Its labels. */
        labels: Labels,
    },
    /// `/namespaces/update`
    NamespaceUpdate {
        /** Its name. */
        name: String,
        /** Its labels. */
        labels: Labels,
    },
    /// `/namespaces/delete`
    NamespaceDelete {
        /** Its name. */
        name: String,
    },
    /// `/snapshot/prepare`
    SnapshotPrepare {
        /** Its key. */
        key: String,
        /** Its parent. */
        parent: String,
        /** Who keeps it. */
        snapshotter: String,
    },
    /// `/snapshot/commit`
    SnapshotCommit {
        /** Its key. */
        key: String,
        /** Its name. */
        name: String,
        /** Who keeps it. */
        snapshotter: String,
    },
    /// `/snapshot/remove`
    SnapshotRemove {
        /** Its key. */
        key: String,
        /** Who keeps it. */
        snapshotter: String,
    },
    /// Encoded already.
    Encoded(Any),
}

/// An event with its circumstances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// When it happened.
    pub timestamp: SystemTime,
    /// Where it happened.
    pub namespace: Namespace,
    /// What it is about, `/tasks/exit`.
    pub topic: String,
    /// What happened.
    pub event: Event,
}

/// Takes events. Never waits for a subscriber.
pub trait Publisher: Send + Sync {
    /// Publishes an event now.
    ///
    /// # Errors
    /// InvalidArgument for a malformed topic.
    fn publish(&self, namespace: &Namespace, topic: &str, event: Event) -> Result<()>;
}
