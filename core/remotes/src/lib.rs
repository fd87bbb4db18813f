//! Registries: references, hosts.toml, auth, fetch and push.

#![forbid(unsafe_code)]

/// What proves a client to a registry.
mod credentials;

pub use credentials::{Credential, Credentials, Secret};
