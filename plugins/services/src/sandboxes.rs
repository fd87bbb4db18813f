//! `containerd.services.sandbox.v1.Store`: records of sandboxes.

use containerd_api::{services::sandbox::v1 as api, types};
use containerd_api_grpc::services::sandbox::v1::store_server;
use core_metadata::Database;
use core_sandbox::{Runtime, Sandbox};
use tonic::{Request, Response, Status};

use crate::{
    GrpcService, convert,
    grpc::serve,
    scope::scope,
    status::{required, status},
};

/// The service.
pub struct Sandboxes {
    database: Database,
}

impl Sandboxes {
    /// A service over the database.
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    /// The service, ready to be offered.
    pub fn service(self) -> GrpcService {
        serve!(store_server::StoreServer, self)
    }
}

#[tonic::async_trait]
impl store_server::Store for Sandboxes {
    async fn create(
        &self,
        request: Request<api::StoreCreateRequest>,
    ) -> Result<Response<api::StoreCreateResponse>, Status> {
        let scope = scope(&request)?;
        let sandbox = from_message(request.into_inner().sandbox)?;
        let sandbox = self.database.sandboxes(&scope).create(sandbox).await.map_err(status)?;
        Ok(Response::new(api::StoreCreateResponse { sandbox: Some(to_message(sandbox)) }))
    }

    async fn update(
        &self,
        request: Request<api::StoreUpdateRequest>,
    ) -> Result<Response<api::StoreUpdateResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let sandbox = from_message(request.sandbox)?;
        let sandbox = self.database.sandboxes(&scope).update(sandbox, &request.fields).await.map_err(status)?;
        Ok(Response::new(api::StoreUpdateResponse { sandbox: Some(to_message(sandbox)) }))
    }

    async fn delete(
        &self,
        request: Request<api::StoreDeleteRequest>,
    ) -> Result<Response<api::StoreDeleteResponse>, Status> {
        let scope = scope(&request)?;
        self.database.sandboxes(&scope).delete(&request.get_ref().sandbox_id).await.map_err(status)?;
        Ok(Response::new(api::StoreDeleteResponse {}))
    }

    async fn list(&self, request: Request<api::StoreListRequest>) -> Result<Response<api::StoreListResponse>, Status> {
        let scope = scope(&request)?;
        let sandboxes = self.database.sandboxes(&scope).list(&request.get_ref().filters).await.map_err(status)?;
        Ok(Response::new(api::StoreListResponse { list: sandboxes.into_iter().map(to_message).collect() }))
    }

    async fn get(&self, request: Request<api::StoreGetRequest>) -> Result<Response<api::StoreGetResponse>, Status> {
        let scope = scope(&request)?;
        let sandbox = self.database.sandboxes(&scope).get(&request.get_ref().sandbox_id).await.map_err(status)?;
        Ok(Response::new(api::StoreGetResponse { sandbox: Some(to_message(sandbox)) }))
    }
}

fn to_message(sandbox: Sandbox) -> types::Sandbox {
    types::Sandbox {
        sandbox_id: sandbox.id,
        runtime: Some(types::sandbox::Runtime {
            name: sandbox.runtime.name,
            options: sandbox.runtime.options.map(convert::any_to),
        }),
        spec: sandbox.spec.map(convert::any_to),
        labels: sandbox.labels,
        created_at: convert::timestamp(sandbox.created_at),
        updated_at: convert::timestamp(sandbox.updated_at),
        extensions: sandbox.extensions.into_iter().map(|(key, any)| (key, convert::any_to(any))).collect(),
        sandboxer: sandbox.sandboxer,
    }
}

pub(crate) fn from_message(message: Option<types::Sandbox>) -> Result<Sandbox, Status> {
    let message = required(message, "sandbox")?;
    let runtime = message.runtime.unwrap_or_default();
    Ok(Sandbox {
        id: message.sandbox_id,
        runtime: Runtime { name: runtime.name, options: runtime.options.map(convert::any_from) },
        spec: message.spec.map(convert::any_from),
        labels: message.labels,
        created_at: convert::time(message.created_at),
        updated_at: convert::time(message.updated_at),
        extensions: message.extensions.into_iter().map(|(key, any)| (key, convert::any_from(any))).collect(),
        sandboxer: message.sandboxer,
    })
}
