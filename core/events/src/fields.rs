use std::borrow::Cow;

use core_types::filter::{Fields, label_field};

use crate::{Envelope, Event, encoded};

fn text(value: &str) -> Option<Cow<'_, str>> {
    Some(Cow::Borrowed(value))
}

/// `namespace`, `topic` and `event.<field>`, with the field names of the published event messages.
impl Fields for Envelope {
    fn field(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        match path {
            ["namespace"] => text(self.namespace.as_str()),
            ["topic"] => text(&self.topic),
            ["event", rest @ ..] => self.event.field(rest),
            _ => None,
        }
    }
}

impl Fields for Event {
    fn field(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        match (self, path) {
            (Self::Encoded(any), path) => encoded::field(&any.type_url, &any.value, path),
            (
                Self::ContainerCreate { id, .. } | Self::ContainerUpdate { id, .. } | Self::ContainerDelete { id },
                ["id"],
            ) => text(id),
            (Self::ContainerCreate { image, .. } | Self::ContainerUpdate { image, .. }, ["image"]) => text(image),
            (Self::ContainerCreate { runtime, .. }, ["runtime", "name"]) => text(runtime),
            (Self::ContainerUpdate { snapshot_key, .. }, ["snapshot_key"]) => text(snapshot_key),
            (Self::ContentCreate { digest, .. } | Self::ContentDelete { digest }, ["digest"]) => text(digest),
            (
                Self::ImageCreate { name, .. }
                | Self::ImageUpdate { name, .. }
                | Self::ImageDelete { name }
                | Self::NamespaceCreate { name, .. }
                | Self::NamespaceUpdate { name, .. }
                | Self::NamespaceDelete { name },
                ["name"],
            ) => text(name),
            (
                Self::ContainerUpdate { labels, .. }
                | Self::ImageCreate { labels, .. }
                | Self::ImageUpdate { labels, .. }
                | Self::NamespaceCreate { labels, .. }
                | Self::NamespaceUpdate { labels, .. },
                ["labels", key @ ..],
            ) => label_field(labels, key),
            (
                Self::SnapshotPrepare { key, .. } | Self::SnapshotCommit { key, .. } | Self::SnapshotRemove { key, .. },
                ["key"],
            ) => text(key),
            (Self::SnapshotPrepare { parent, .. }, ["parent"]) => text(parent),
            (Self::SnapshotCommit { name, .. }, ["name"]) => text(name),
            (
                Self::SnapshotPrepare { snapshotter, .. }
                | Self::SnapshotCommit { snapshotter, .. }
                | Self::SnapshotRemove { snapshotter, .. },
                ["snapshotter"],
            ) => text(snapshotter),
            _ => None,
        }
    }
}
