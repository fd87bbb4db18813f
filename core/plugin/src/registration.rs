use std::fmt;

use core_types::{Error, Result};
use serde::{Serialize, de::DeserializeOwned};

use crate::{InitContext, InitResult, Instance, config::Section, instance::BoxFuture};

/// Starts a plugin.
pub(crate) type Init = Box<dyn Fn(InitContext) -> BoxFuture<InitResult<Instance>> + Send + Sync>;

/// What a plugin needs started before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The type of plugin.
    pub kind: String,
    /// One of that type; all of that type when there is none.
    pub id: Option<String>,
    /// Whether the plugin can start when there is none.
    pub optional: bool,
}

impl Requirement {
    /// Those of a type, if there are any: only the order matters.
    pub fn optional(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), id: None, optional: true }
    }

    /// Whether a plugin is meant.
    pub(crate) fn matches(&self, registration: &Registration) -> bool {
        self.kind == registration.kind && self.id.as_ref().is_none_or(|id| *id == registration.id)
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.id {
            Some(id) => write!(f, "{}.{id}", self.kind),
            None => f.write_str(&self.kind),
        }
    }
}

impl From<&str> for Requirement {
    fn from(kind: &str) -> Self {
        Self { kind: kind.to_owned(), id: None, optional: false }
    }
}

impl From<(&str, &str)> for Requirement {
    fn from((kind, id): (&str, &str)) -> Self {
        Self { kind: kind.to_owned(), id: Some(id.to_owned()), optional: false }
    }
}

/// How a plugin is described.
pub struct Registration {
    pub(crate) kind: String,
    pub(crate) id: String,
    pub(crate) requires: Vec<Requirement>,
    pub(crate) section: Result<Option<Section>>,
    pub(crate) init: Init,
}

impl Registration {
    /// A plugin of type `kind` (see [`types`](crate::types)) called `id`, started by `init`.
    pub fn new<F, R>(kind: impl Into<String>, id: impl Into<String>, init: F) -> Self
    where
        F: Fn(InitContext) -> R + Send + Sync + 'static,
        R: Future<Output = InitResult<Instance>> + Send + 'static,
    {
        Self {
            kind: kind.into(),
            id: id.into(),
            requires: Vec::new(),
            section: Ok(None),
            init: Box::new(move |context| Box::pin(init(context))),
        }
    }

    /// What has to be started before: a type (all of it, at least one), or one plugin by `(type, id)`.
    #[must_use]
    pub fn requires(mut self, requirement: impl Into<Requirement>) -> Self {
        self.requires.push(requirement.into());
        self
    }

    /// The shape and the defaults of its configuration. A section of the file is laid over `default`, keys
    /// that `T` does not know are warned about, and [`InitContext::config`] reads the result.
    #[must_use]
    pub fn config<T: Serialize + DeserializeOwned>(mut self, default: &T) -> Self {
        self.section = Section::of(default).map(Some);
        self
    }

    /// Type and id in one, `io.containerd.snapshotter.v1.overlayfs`: its name in the configuration, of its
    /// directories and in messages.
    pub fn uri(&self) -> String {
        format!("{}.{}", self.kind, self.id)
    }

    /// Its type.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The defaults of its configuration; none when it takes no configuration.
    ///
    /// # Errors
    /// Internal when the defaults cannot be written as TOML.
    pub fn default_config(&self) -> Result<Option<&toml::Table>> {
        match &self.section {
            Ok(section) => Ok(section.as_ref().map(|section| &section.default)),
            Err(error) => Err(Error::new(error.kind(), error.message())),
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("uri", &self.uri()).field("requires", &self.requires).finish()
    }
}
