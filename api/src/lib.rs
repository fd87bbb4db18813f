//! Messages of the daemon's API and stubs for ttrpc.
//!
//! The modules follow the published protobuf packages (`containerd.services.tasks.v1` is
//! [`services::tasks::v1`]); they are generated at build time from `proto/`, whose package, message and
//! field names and numbers are the interface. gRPC stubs are in `containerd-api-grpc`, which uses these
//! messages, so that a shim need not link any of tonic.

#[allow(missing_docs, unused_qualifications, unreachable_pub, clippy::all, clippy::pedantic)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/api.rs"));
}

pub use generated::{containerd::*, google, grpc, io::containerd::cgroups, runtimeoptions};

/// Type URLs of `Any` values, which containerd writes without a host part.
pub mod any;
