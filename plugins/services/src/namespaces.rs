//! `containerd.services.namespaces.v1.Namespaces`.

use containerd_api::services::namespaces::v1 as api;
use containerd_api_grpc::services::namespaces::v1::namespaces_server;
use core_metadata::Database;
use tonic::{Request, Response, Status};

use crate::{
    GrpcService, convert,
    grpc::serve,
    status::{required, status},
};

/// The service.
pub struct Namespaces {
    database: Database,
}

impl Namespaces {
    /// A service over the database.
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    /// The service, ready to be offered.
    pub fn service(self) -> GrpcService {
        serve!(namespaces_server::NamespacesServer, self)
    }
}

#[tonic::async_trait]
impl namespaces_server::Namespaces for Namespaces {
    async fn get(
        &self,
        request: Request<api::GetNamespaceRequest>,
    ) -> Result<Response<api::GetNamespaceResponse>, Status> {
        let name = request.into_inner().name;
        let labels = self.database.namespaces().get(&name).await.map_err(status)?;
        Ok(Response::new(api::GetNamespaceResponse { namespace: Some(api::Namespace { name, labels }) }))
    }

    async fn list(
        &self,
        _: Request<api::ListNamespacesRequest>,
    ) -> Result<Response<api::ListNamespacesResponse>, Status> {
        let namespaces = self.database.namespaces().list().await.map_err(status)?;
        let namespaces = namespaces.into_iter().map(|(name, labels)| api::Namespace { name, labels }).collect();
        Ok(Response::new(api::ListNamespacesResponse { namespaces }))
    }

    async fn create(
        &self,
        request: Request<api::CreateNamespaceRequest>,
    ) -> Result<Response<api::CreateNamespaceResponse>, Status> {
        let namespace = required(request.into_inner().namespace, "namespace")?;
        self.database.namespaces().create(&namespace.name, namespace.labels.clone()).await.map_err(status)?;
        Ok(Response::new(api::CreateNamespaceResponse { namespace: Some(namespace) }))
    }

    async fn update(
        &self,
        request: Request<api::UpdateNamespaceRequest>,
    ) -> Result<Response<api::UpdateNamespaceResponse>, Status> {
        let request = request.into_inner();
        let namespace = required(request.namespace, "namespace")?;
        let fields = convert::paths(request.update_mask);
        if let Some(field) = fields.iter().find(|field| !field.starts_with("labels.")) {
            return Err(Status::invalid_argument(format!("cannot update {field:?} field")));
        }
        let name = namespace.name;
        let labels = self.database.namespaces().update(&name, namespace.labels, &fields).await.map_err(status)?;
        Ok(Response::new(api::UpdateNamespaceResponse { namespace: Some(api::Namespace { name, labels }) }))
    }

    async fn delete(&self, request: Request<api::DeleteNamespaceRequest>) -> Result<Response<()>, Status> {
        self.database.namespaces().delete(&request.get_ref().name).await.map_err(status)?;
        Ok(Response::new(()))
    }
}
