//! gRPC stubs of the daemon's API.
//!
//! A client and a server module for each service, in the published packages: the client of
//! `containerd.services.tasks.v1.Tasks` is [`services::tasks::v1::tasks_client::TasksClient`].

#[allow(missing_docs, unused_qualifications, unreachable_pub, clippy::all, clippy::pedantic)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/grpc.rs"));
}

pub use generated::{containerd::*, grpc};
