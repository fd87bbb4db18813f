//! `containerd.services.sandbox.v1.Controller`: what runs sandboxes, chosen by the request's `sandboxer`.
//!
//! The events `/sandboxes/*` are published by the controllers, so that they come also when the daemon itself drives
//! one, and once.

use std::time::{Duration, SystemTime};

use containerd_api::{services::sandbox::v1 as api, types};
use containerd_api_grpc::services::sandbox::v1::controller_server;
use core_sandbox::{Controllers, CreateOptions, Sandbox};
use tonic::{Request, Response, Status};

use crate::{
    GrpcService, convert,
    grpc::serve,
    sandboxes::from_message,
    scope::scope,
    status::{required, status},
};

/// The service.
pub struct SandboxControllers {
    controllers: Controllers,
}

impl SandboxControllers {
    /// A service over the controllers, also those that are added later.
    pub fn new(controllers: Controllers) -> Self {
        Self { controllers }
    }

    /// The service, ready to be offered.
    pub fn service(self) -> GrpcService {
        serve!(controller_server::ControllerServer, self)
    }
}

/// The sandbox of a request to create one: whose id, where both name it, is the same.
fn sandbox(id: &str, message: Option<types::Sandbox>) -> Result<Sandbox, Status> {
    let mut sandbox = match message {
        Some(message) => from_message(Some(message))?,
        None => Sandbox::new(id),
    };
    if sandbox.id.is_empty() {
        id.clone_into(&mut sandbox.id);
    }
    if !id.is_empty() && sandbox.id != id {
        return Err(Status::invalid_argument(format!(
            "sandbox_id {id:?} is not that of the sandbox, {:?}",
            sandbox.id
        )));
    }
    Ok(sandbox)
}

#[tonic::async_trait]
impl controller_server::Controller for SandboxControllers {
    async fn create(
        &self,
        request: Request<api::ControllerCreateRequest>,
    ) -> Result<Response<api::ControllerCreateResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let controller = self.controllers.get(&request.sandboxer).map_err(status)?;
        let sandbox = sandbox(&request.sandbox_id, request.sandbox)?;
        let options = CreateOptions {
            rootfs: convert::mounts_from(request.rootfs),
            options: request.options.map(convert::any_from),
            netns: Some(request.netns_path).filter(|path| !path.is_empty()).map(Into::into),
            annotations: request.annotations,
        };
        controller.create(&scope.namespace, &sandbox, options).await.map_err(status)?;
        Ok(Response::new(api::ControllerCreateResponse { sandbox_id: sandbox.id }))
    }

    async fn start(
        &self,
        request: Request<api::ControllerStartRequest>,
    ) -> Result<Response<api::ControllerStartResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let controller = self.controllers.get(&request.sandboxer).map_err(status)?;
        let instance = controller.start(&scope.namespace, &request.sandbox_id).await.map_err(status)?;
        Ok(Response::new(api::ControllerStartResponse {
            sandbox_id: request.sandbox_id,
            pid: instance.pid,
            created_at: instance.created_at.and_then(convert::timestamp),
            labels: instance.labels,
            address: instance.address,
            version: instance.version,
            spec: instance.spec.map(convert::any_to),
        }))
    }

    async fn platform(
        &self,
        request: Request<api::ControllerPlatformRequest>,
    ) -> Result<Response<api::ControllerPlatformResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let controller = self.controllers.get(&request.sandboxer).map_err(status)?;
        let platform = controller.platform(&scope.namespace, &request.sandbox_id).await.map_err(status)?;
        Ok(Response::new(api::ControllerPlatformResponse { platform: Some(convert::platform_to(platform)) }))
    }

    async fn stop(
        &self,
        request: Request<api::ControllerStopRequest>,
    ) -> Result<Response<api::ControllerStopResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let controller = self.controllers.get(&request.sandboxer).map_err(status)?;
        let grace = Duration::from_secs(request.timeout_secs.into());
        controller.stop(&scope.namespace, &request.sandbox_id, grace).await.map_err(status)?;
        Ok(Response::new(api::ControllerStopResponse {}))
    }

    async fn wait(
        &self,
        request: Request<api::ControllerWaitRequest>,
    ) -> Result<Response<api::ControllerWaitResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let controller = self.controllers.get(&request.sandboxer).map_err(status)?;
        let exit = controller.wait(&scope.namespace, &request.sandbox_id).await.map_err(status)?;
        let exited_at = exit.exited_at.and_then(convert::timestamp);
        Ok(Response::new(api::ControllerWaitResponse { exit_status: exit.status, exited_at }))
    }

    async fn status(
        &self,
        request: Request<api::ControllerStatusRequest>,
    ) -> Result<Response<api::ControllerStatusResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let controller = self.controllers.get(&request.sandboxer).map_err(status)?;
        let asked = controller.status(&scope.namespace, &request.sandbox_id, request.verbose).await;
        let found = asked.map_err(status)?;
        Ok(Response::new(api::ControllerStatusResponse {
            sandbox_id: request.sandbox_id,
            pid: found.pid,
            state: found.state,
            info: found.info,
            created_at: found.created_at.and_then(convert::timestamp),
            exited_at: found.exited_at.and_then(convert::timestamp),
            extra: found.extra.map(convert::any_to),
            address: found.address,
            version: found.version,
        }))
    }

    async fn shutdown(
        &self,
        request: Request<api::ControllerShutdownRequest>,
    ) -> Result<Response<api::ControllerShutdownResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let controller = self.controllers.get(&request.sandboxer).map_err(status)?;
        controller.shutdown(&scope.namespace, &request.sandbox_id).await.map_err(status)?;
        Ok(Response::new(api::ControllerShutdownResponse {}))
    }

    async fn metrics(
        &self,
        request: Request<api::ControllerMetricsRequest>,
    ) -> Result<Response<api::ControllerMetricsResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let controller = self.controllers.get(&request.sandboxer).map_err(status)?;
        let data = controller.metrics(&scope.namespace, &request.sandbox_id).await.map_err(status)?;
        let metrics = (!data.type_url.is_empty()).then(|| types::Metric {
            timestamp: convert::timestamp(SystemTime::now()),
            id: request.sandbox_id,
            data: Some(convert::any_to(data)),
        });
        Ok(Response::new(api::ControllerMetricsResponse { metrics }))
    }

    async fn update(
        &self,
        request: Request<api::ControllerUpdateRequest>,
    ) -> Result<Response<api::ControllerUpdateResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let controller = self.controllers.get(&request.sandboxer).map_err(status)?;
        let sandbox = sandbox(&request.sandbox_id, Some(required(request.sandbox, "sandbox")?))?;
        controller.update(&scope.namespace, &sandbox, &request.fields).await.map_err(status)?;
        Ok(Response::new(api::ControllerUpdateResponse {}))
    }
}
