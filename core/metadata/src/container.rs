//! The container record.

use std::{borrow::Cow, collections::BTreeMap, time::SystemTime};

use core_events::Any;
use core_sandbox::Runtime;
use core_types::{
    Labels,
    filter::{Fields, label_field},
};

/// A container as it is stored: what to run, not whether it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its id.
    pub id: String,
    /// Labels.
    pub labels: Labels,
    /// Name of the image it was made from; may be empty.
    pub image: String,
    /// The shim that runs it.
    pub runtime: Runtime,
    /// The OCI specification, byte for byte as the client sent it.
    pub spec: Option<Any>,
    /// Name of the snapshotter of its root file system; may be empty.
    pub snapshotter: String,
    /// Key of the snapshot that is its root file system.
    pub snapshot_key: String,
    /// When the record was made.
    pub created_at: SystemTime,
    /// When it changed last.
    pub updated_at: SystemTime,
    /// What clients store beside it.
    pub extensions: BTreeMap<String, Any>,
    /// The sandbox it belongs to; may be empty.
    pub sandbox_id: String,
}

impl Container {
    /// A container of an id, everything else empty; the store sets the times.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            labels: Labels::new(),
            image: String::new(),
            runtime: Runtime::default(),
            spec: None,
            snapshotter: String::new(),
            snapshot_key: String::new(),
            created_at: SystemTime::UNIX_EPOCH,
            updated_at: SystemTime::UNIX_EPOCH,
            extensions: BTreeMap::new(),
            sandbox_id: String::new(),
        }
    }
}

impl Fields for Container {
    fn field(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        let set = |value: &'_ str| (!value.is_empty()).then(|| Cow::Owned(value.to_owned()));
        match path {
            ["id"] => set(&self.id),
            ["runtime", "name"] => set(&self.runtime.name),
            ["image"] => set(&self.image),
            ["labels", rest @ ..] => label_field(&self.labels, rest),
            _ => None,
        }
    }
}
