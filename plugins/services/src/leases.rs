//! `containerd.services.leases.v1.Leases`: what holds resources.

use containerd_api::services::leases::v1 as api;
use containerd_api_grpc::services::leases::v1::leases_server;
use core_leases::{Lease, Resource};
use core_metadata::Database;
use tonic::{Request, Response, Status};

use crate::{
    GrpcService, convert,
    grpc::serve,
    scope::scope,
    status::{required, status},
};

/// The service.
pub struct Leases {
    database: Database,
}

impl Leases {
    /// A service over the database.
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    /// The service, ready to be offered.
    pub fn service(self) -> GrpcService {
        serve!(leases_server::LeasesServer, self)
    }
}

#[tonic::async_trait]
impl leases_server::Leases for Leases {
    async fn create(&self, request: Request<api::CreateRequest>) -> Result<Response<api::CreateResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let id = Some(request.id).filter(|id| !id.is_empty());
        let lease = self.database.leases(&scope).create(id, request.labels).await.map_err(status)?;
        Ok(Response::new(api::CreateResponse { lease: Some(to_message(lease)) }))
    }

    async fn delete(&self, request: Request<api::DeleteRequest>) -> Result<Response<()>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        self.database.leases(&scope).delete(&request.id, request.sync).await.map_err(status)?;
        Ok(Response::new(()))
    }

    async fn list(&self, request: Request<api::ListRequest>) -> Result<Response<api::ListResponse>, Status> {
        let scope = scope(&request)?;
        let leases = self.database.leases(&scope).list(&request.get_ref().filters).await.map_err(status)?;
        Ok(Response::new(api::ListResponse { leases: leases.into_iter().map(to_message).collect() }))
    }

    async fn add_resource(&self, request: Request<api::AddResourceRequest>) -> Result<Response<()>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let resource = resource(request.resource)?;
        self.database.leases(&scope).add_resource(&request.id, resource).await.map_err(status)?;
        Ok(Response::new(()))
    }

    async fn delete_resource(&self, request: Request<api::DeleteResourceRequest>) -> Result<Response<()>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let resource = resource(request.resource)?;
        self.database.leases(&scope).remove_resource(&request.id, resource).await.map_err(status)?;
        Ok(Response::new(()))
    }

    async fn list_resources(
        &self,
        request: Request<api::ListResourcesRequest>,
    ) -> Result<Response<api::ListResourcesResponse>, Status> {
        let scope = scope(&request)?;
        let resources = self.database.leases(&scope).resources(&request.get_ref().id).await.map_err(status)?;
        let message = |resource: Resource| api::Resource { id: resource.id, r#type: resource.kind };
        Ok(Response::new(api::ListResourcesResponse { resources: resources.into_iter().map(message).collect() }))
    }
}

fn resource(message: Option<api::Resource>) -> Result<Resource, Status> {
    let message = required(message, "resource")?;
    Ok(Resource { id: message.id, kind: message.r#type })
}

fn to_message(lease: Lease) -> api::Lease {
    api::Lease { id: lease.id, created_at: convert::timestamp(lease.created_at), labels: lease.labels }
}
