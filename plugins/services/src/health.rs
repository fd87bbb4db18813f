//! `grpc.health.v1.Health`: whether the daemon serves. The services are all there before the socket accepts,
//! so who gets an answer gets "serving".

use containerd_api::grpc::health::v1::{HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus};
use containerd_api_grpc::grpc::health::v1::health_server;
use futures::{StreamExt, stream};
use tonic::{Request, Response, Status};

use crate::{BoxStream, GrpcService, grpc::serve};

/// The service.
pub struct Health;

impl Health {
    /// The service, ready to be offered.
    pub fn service(self) -> GrpcService {
        serve!(health_server::HealthServer, self)
    }
}

#[tonic::async_trait]
impl health_server::Health for Health {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        match request.get_ref().service.as_str() {
            "" => Ok(Response::new(answer(ServingStatus::Serving))),
            other => Err(Status::not_found(format!("unknown service {other}"))),
        }
    }

    type WatchStream = BoxStream<HealthCheckResponse>;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let status =
            if request.get_ref().service.is_empty() { ServingStatus::Serving } else { ServingStatus::ServiceUnknown };
        // The answer never changes; the stream ends with the connection.
        let answers = stream::iter([Ok(answer(status))]).chain(stream::pending());
        Ok(Response::new(answers.boxed()))
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}
