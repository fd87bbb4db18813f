//! The Kubernetes container runtime interface, `runtime.v1` as of Kubernetes 1.36: messages, client, server.

#[allow(missing_docs, unused_qualifications, unreachable_pub, clippy::all, clippy::pedantic)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/cri.rs"));
}

pub use generated::runtime::v1;
