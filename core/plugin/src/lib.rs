//! Plugins: what they are called, how they are registered, ordered and started, and how they find each other.
//!
//! A [`Registration`] names a plugin by type and id, says what it needs, what its configuration looks like and
//! how to start it. A [`Registry`] orders registrations depth first and starts them one after the other; a
//! plugin that fails is recorded and the others go on, unless it was required. What runs is in a
//! [`PluginSet`]: there plugins find those before them, the daemon collects the services they offer, and
//! introspection lists them all with their errors.
//!
//! Types, ids and directory names are containerd's, since clients, configuration files and paths name them.

#![forbid(unsafe_code)]

/// Sections of the configuration: defaults, overlay, unknown keys.
mod config;
/// What a plugin is given when it starts.
mod context;
/// Why a plugin did not start.
mod error;
/// The order of starting.
mod graph;
/// What a plugin leaves behind when it started.
mod instance;
/// How a plugin is described.
mod registration;
/// Registrations, and starting them.
mod registry;
/// The plugins that were started, or tried.
mod set;
#[cfg(test)]
mod tests;
/// The types of plugins.
pub mod types;

pub use config::overlay;
pub use context::{Addresses, InitContext};
pub use error::{InitError, InitResult};
pub use graph::GraphError;
pub use instance::{Instance, Offer, Transport};
pub use registration::{Registration, Requirement};
pub use registry::{Registry, StartError, StartOptions};
pub use set::{PluginInfo, PluginSet};
