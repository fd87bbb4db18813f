//! `containerd.services.containers.v1.Containers`: records of containers.

use std::sync::Arc;

use containerd_api::{any, events, services::containers::v1 as api};
use containerd_api_grpc::services::containers::v1::containers_server;
use core_events::{Event, Publisher};
use core_metadata::{Container, Database, Runtime};
use core_types::Scope;
use futures::{StreamExt, stream};
use prost::Message;
use tonic::{Request, Response, Status};

use crate::{
    BoxStream, GrpcService, convert,
    events::publish,
    grpc::serve,
    scope::scope,
    status::{required, status},
};

/// The service.
pub struct Containers {
    database: Database,
    events: Arc<dyn Publisher>,
}

impl Containers {
    /// A service over the database; changes are told to `events`.
    pub fn new(database: Database, events: Arc<dyn Publisher>) -> Self {
        Self { database, events }
    }

    /// The service, ready to be offered.
    pub fn service(self) -> GrpcService {
        serve!(containers_server::ContainersServer, self)
    }

    async fn all(&self, scope: &Scope, filters: &[String]) -> Result<Vec<api::Container>, Status> {
        let containers = self.database.containers(scope).list(filters).await.map_err(status)?;
        Ok(containers.into_iter().map(to_message).collect())
    }

    fn publish<M: Message>(&self, scope: &Scope, topic: &str, name: &str, message: &M) {
        let event = Event::Encoded(convert::any_from(any::pack(name, message)));
        publish(&*self.events, &scope.namespace, topic, event);
    }
}

#[tonic::async_trait]
impl containers_server::Containers for Containers {
    async fn get(
        &self,
        request: Request<api::GetContainerRequest>,
    ) -> Result<Response<api::GetContainerResponse>, Status> {
        let scope = scope(&request)?;
        let container = self.database.containers(&scope).get(&request.get_ref().id).await.map_err(status)?;
        Ok(Response::new(api::GetContainerResponse { container: Some(to_message(container)) }))
    }

    async fn list(
        &self,
        request: Request<api::ListContainersRequest>,
    ) -> Result<Response<api::ListContainersResponse>, Status> {
        let scope = scope(&request)?;
        let containers = self.all(&scope, &request.get_ref().filters).await?;
        Ok(Response::new(api::ListContainersResponse { containers }))
    }

    type ListStreamStream = BoxStream<api::ListContainerMessage>;

    async fn list_stream(
        &self,
        request: Request<api::ListContainersRequest>,
    ) -> Result<Response<Self::ListStreamStream>, Status> {
        let scope = scope(&request)?;
        let containers = self.all(&scope, &request.get_ref().filters).await?;
        let messages =
            containers.into_iter().map(|container| Ok(api::ListContainerMessage { container: Some(container) }));
        Ok(Response::new(stream::iter(messages).boxed()))
    }

    async fn create(
        &self,
        request: Request<api::CreateContainerRequest>,
    ) -> Result<Response<api::CreateContainerResponse>, Status> {
        let scope = scope(&request)?;
        let container = required(request.into_inner().container, "container")?;
        let created = self.database.containers(&scope).create(from_message(container)).await.map_err(status)?;
        let container = to_message(created);
        let runtime = container.runtime.clone().unwrap_or_default();
        let event = events::ContainerCreate {
            id: container.id.clone(),
            image: container.image.clone(),
            runtime: Some(events::container_create::Runtime { name: runtime.name, options: runtime.options }),
        };
        self.publish(&scope, "/containers/create", "containerd.events.ContainerCreate", &event);
        Ok(Response::new(api::CreateContainerResponse { container: Some(container) }))
    }

    async fn update(
        &self,
        request: Request<api::UpdateContainerRequest>,
    ) -> Result<Response<api::UpdateContainerResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let container = required(request.container, "container")?;
        if container.id.is_empty() {
            return Err(Status::invalid_argument("container.id required"));
        }
        let fields = convert::paths(request.update_mask);
        let updated =
            self.database.containers(&scope).update(from_message(container), &fields).await.map_err(status)?;
        let container = to_message(updated);
        let event = events::ContainerUpdate {
            id: container.id.clone(),
            image: container.image.clone(),
            labels: container.labels.clone(),
            snapshot_key: container.snapshot_key.clone(),
        };
        self.publish(&scope, "/containers/update", "containerd.events.ContainerUpdate", &event);
        Ok(Response::new(api::UpdateContainerResponse { container: Some(container) }))
    }

    async fn delete(&self, request: Request<api::DeleteContainerRequest>) -> Result<Response<()>, Status> {
        let scope = scope(&request)?;
        let id = request.into_inner().id;
        self.database.containers(&scope).delete(&id).await.map_err(status)?;
        let event = events::ContainerDelete { id };
        self.publish(&scope, "/containers/delete", "containerd.events.ContainerDelete", &event);
        Ok(Response::new(()))
    }
}

fn to_message(container: Container) -> api::Container {
    api::Container {
        id: container.id,
        labels: container.labels,
        image: container.image,
        runtime: Some(api::container::Runtime {
            name: container.runtime.name,
            options: container.runtime.options.map(convert::any_to),
        }),
        spec: container.spec.map(convert::any_to),
        snapshotter: container.snapshotter,
        snapshot_key: container.snapshot_key,
        created_at: convert::timestamp(container.created_at),
        updated_at: convert::timestamp(container.updated_at),
        extensions: container.extensions.into_iter().map(|(key, any)| (key, convert::any_to(any))).collect(),
        sandbox: container.sandbox_id,
    }
}

fn from_message(message: api::Container) -> Container {
    let runtime = message.runtime.unwrap_or_default();
    Container {
        id: message.id,
        labels: message.labels,
        image: message.image,
        runtime: Runtime { name: runtime.name, options: runtime.options.map(convert::any_from) },
        spec: message.spec.map(convert::any_from),
        snapshotter: message.snapshotter,
        snapshot_key: message.snapshot_key,
        created_at: convert::time(message.created_at),
        updated_at: convert::time(message.updated_at),
        extensions: message.extensions.into_iter().map(|(key, any)| (key, convert::any_from(any))).collect(),
        sandbox_id: message.sandbox,
    }
}
