//! The node resource interface, `nri.pkg.api.v1alpha1`: messages that runtime and plugins exchange over ttrpc.

#[allow(missing_docs, unused_qualifications, unreachable_pub, clippy::all, clippy::pedantic)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/nri.rs"));
}

pub use generated::nri::pkg::api::v1alpha1;
