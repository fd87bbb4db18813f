use std::{fmt, sync::Arc};

use crate::{Result, identifiers};

/// A namespace's name; valid by construction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// Checks and takes a name.
    ///
    /// # Errors
    /// InvalidArgument when it is no identifier.
    pub fn new(name: &str) -> Result<Self> {
        identifiers::validate(name)?;
        Ok(Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a request belongs: its namespace (metadata `containerd-namespace`) and the lease
/// that holds what it creates (metadata `containerd-lease`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The namespace.
    pub namespace: Namespace,
    /// Id of the lease to which new objects are added.
    pub lease: Option<String>,
}

impl Scope {
    /// A scope without a lease.
    pub fn new(namespace: Namespace) -> Self {
        Self { namespace, lease: None }
    }

    /// The same namespace under a lease.
    #[must_use]
    pub fn leased(&self, lease: impl Into<String>) -> Self {
        Self { namespace: self.namespace.clone(), lease: Some(lease.into()) }
    }
}
