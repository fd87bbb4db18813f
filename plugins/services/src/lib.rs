//! The gRPC services: thin conversions over core.
//!
//! One module for each service of the API. A service holds handles of the core and nothing else; what a
//! message means is in [`convert`], how an error becomes a status in [`status`], where a request belongs in
//! [`scope`]. [`GrpcRouter`] serves them all on one socket; [`plugins`] lists the registrations.

/// The containers service.
pub mod containers;
/// The content service.
pub mod content;
/// Messages to core types and back.
pub mod convert;
/// The diff service.
pub mod diff;
/// Events on the wire, and the events services (gRPC and ttrpc).
pub mod events;
/// All services on one socket.
mod grpc;
/// Whether the daemon serves.
pub mod health;
/// The images service.
pub mod images;
/// What the daemon is made of.
pub mod introspection;
/// The leases service.
pub mod leases;
/// The namespaces service.
pub mod namespaces;
/// The registrations of all services.
mod registrations;
/// What runs sandboxes.
pub mod sandbox_controllers;
/// The store of sandboxes.
pub mod sandboxes;
/// Namespace and lease of a request.
pub mod scope;
/// The snapshots service.
pub mod snapshots;
/// Errors as gRPC statuses.
pub mod status;
/// Streams between clients and the daemon.
pub mod streaming;
/// The tasks service.
pub mod tasks;
/// The transfer service.
pub mod transfer;
/// Which version this is.
pub mod version;

pub use grpc::{BoxStream, GrpcRouter, GrpcService, MAX_MESSAGE_SIZE, TtrpcService};
pub use registrations::plugins;
