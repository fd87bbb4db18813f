//! Speaks ttrpc with shims.
//!
//! [`TtrpcConnector`] connects the task manager to the task service (version 2 or 3) of a shim;
//! [`register_events`] is the other direction, the service to which shims publish.

/// Connecting to a shim.
mod connector;
/// Plain types from and to messages.
mod convert;
/// The service to which shims publish.
mod events;
/// The task service of a shim.
mod shim;

pub use connector::TtrpcConnector;
pub use events::{Forward, register_events};
