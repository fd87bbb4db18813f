use std::time::SystemTime;

use core_snapshots::{Info, Kind, Usage};
use core_types::Labels;
use serde::{Deserialize, Serialize};

/// [`Kind`] on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredKind {
    View,
    Active,
    Committed,
}

/// A snapshot as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: u64,
    pub(crate) name: String,
    kind: StoredKind,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) parent: String,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub(crate) labels: Labels,
    pub(crate) created: SystemTime,
    pub(crate) updated: SystemTime,
    #[serde(default)]
    inodes: i64,
    #[serde(default)]
    size: i64,
}

impl Record {
    pub(crate) fn new(id: u64, kind: Kind, name: &str, parent: &str, labels: Labels) -> Self {
        let now = SystemTime::now();
        let kind = match kind {
            Kind::View => StoredKind::View,
            Kind::Active => StoredKind::Active,
            Kind::Committed => StoredKind::Committed,
        };
        Self {
            id,
            name: name.to_owned(),
            kind,
            parent: parent.to_owned(),
            labels: set_labels(labels),
            created: now,
            updated: now,
            inodes: 0,
            size: 0,
        }
    }

    pub(crate) fn with_usage(mut self, usage: Usage) -> Self {
        (self.inodes, self.size) = (usage.inodes, usage.size);
        self
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.kind {
            StoredKind::View => Kind::View,
            StoredKind::Active => Kind::Active,
            StoredKind::Committed => Kind::Committed,
        }
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage { inodes: self.inodes, size: self.size }
    }

    pub(crate) fn info(&self) -> Info {
        Info {
            kind: self.kind(),
            name: self.name.clone(),
            parent: self.parent.clone(),
            labels: self.labels.clone(),
            created_at: self.created,
            updated_at: self.updated,
        }
    }
}

/// A label with an empty value is one that is not set.
pub(crate) fn set_labels(mut labels: Labels) -> Labels {
    labels.retain(|_, value| !value.is_empty());
    labels
}
