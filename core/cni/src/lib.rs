//! CNI: network configurations, and their plugins run in order.
//!
//! [`Cni`] is made from a [`Config`] that names directories: of configurations, of plugin binaries and of the
//! record of what was attached. It attaches a sandbox's network namespace to every configured network
//! ([`Cni::setup`]), takes it off again ([`Cni::remove`]), and says whether the network is ready
//! ([`Cni::status`]). The contract is the CNI specification, versions 0.1.0 to 1.1.0; the record of attachments
//! is the one of the specification's own library, so that another runtime's attachments can be removed.
//!
//! An attachment is recorded before its first plugin runs. Whatever happens then, `remove` finds it.

#![forbid(unsafe_code)]

/// What is attached: the sandbox and what its plugins may be told.
mod attachment;
/// The record of attachments, on disk.
mod cache;
/// One network's plugins, run in order.
mod chain;
/// The handle that the rest of the program uses.
mod cni;
/// The settings.
mod config;
/// The configuration directory and when it must be read again.
mod directory;
/// What can go wrong.
mod error;
/// One plugin, run as a process within bounds.
mod exec;
/// The loopback interface, brought up without a plugin.
mod loopback;
/// Which version of the specification a network is used with.
mod negotiate;
/// One network configuration.
mod network;
/// What plugins answer.
mod result;
/// What attaching a sandbox to all of its networks gave.
mod setup;
/// Versions of the specification.
mod version;

pub use attachment::{Attachment, Bandwidth, Capabilities, Dns, PortMapping};
pub use cni::Cni;
pub use config::{Config, IpPreference};
pub use error::{Cause, Error, PluginFailure, Result};
pub use network::{Network, Plugin};
pub use result::{NetworkResult, ResultDns, ResultInterface, ResultIp, Route};
pub use setup::{Interface, InterfaceIp, Recorded, Setup};
pub use version::SpecVersion;
