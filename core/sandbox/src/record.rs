use std::{borrow::Cow, collections::BTreeMap, time::SystemTime};

use core_events::Any;
use core_types::{
    Labels,
    filter::{Fields, label_field},
};

/// Which shim runs a sandbox or a container, and what it is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runtime {
    /// Its name, `io.containerd.runc.v2`.
    pub name: String,
    /// Options of the runtime, as the client sent them.
    pub options: Option<Any>,
}

/// A sandbox as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Its id.
    pub id: String,
    /// Labels.
    pub labels: Labels,
    /// The shim that runs it.
    pub runtime: Runtime,
    /// The specification the client sent.
    pub spec: Option<Any>,
    /// Name of the controller that runs it.
    pub sandboxer: String,
    /// When the record was made.
    pub created_at: SystemTime,
    /// When it changed last.
    pub updated_at: SystemTime,
    /// What clients store beside it.
    pub extensions: BTreeMap<String, Any>,
}

impl Sandbox {
    /// A sandbox of an id, everything else empty; the store sets the times.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            labels: Labels::new(),
            runtime: Runtime::default(),
            spec: None,
            sandboxer: String::new(),
            created_at: SystemTime::UNIX_EPOCH,
            updated_at: SystemTime::UNIX_EPOCH,
            extensions: BTreeMap::new(),
        }
    }
}

impl Fields for Sandbox {
    fn field(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        match path {
            ["id"] => Some(Cow::Borrowed(&self.id)),
            ["labels", rest @ ..] => label_field(&self.labels, rest),
            _ => None,
        }
    }
}
