//! `containerd.services.version.v1.Version`.

use containerd_api::services::version::v1 as api;
use containerd_api_grpc::services::version::v1::version_server;
use tonic::{Request, Response, Status};

use crate::{GrpcService, grpc::serve};

/// What the daemon calls itself: the version of containerd whose interface it has, and its own after a `+`.
/// Clients parse this as a semantic version, ignore what follows the `+` in comparing, and some ask for at least
/// some 1.x or 2.x before they use a feature.
pub const VERSION: &str = concat!("v2.3.4+rust.", env!("CARGO_PKG_VERSION"));

/// The revision of the source; empty when the build did not say (`CONTAINERD_REVISION`).
pub const REVISION: &str = match option_env!("CONTAINERD_REVISION") {
    Some(revision) => revision,
    None => "",
};

/// The service.
pub struct Version;

impl Version {
    /// The service, ready to be offered.
    pub fn service(self) -> GrpcService {
        serve!(version_server::VersionServer, self)
    }
}

#[tonic::async_trait]
impl version_server::Version for Version {
    async fn version(&self, _: Request<()>) -> Result<Response<api::VersionResponse>, Status> {
        Ok(Response::new(api::VersionResponse { version: VERSION.into(), revision: REVISION.into() }))
    }
}
