//! `containerd.services.snapshots.v1.Snapshots`: snapshots of every snapshotter.

use std::sync::Arc;

use containerd_api::services::snapshots::v1 as api;
use containerd_api_grpc::services::snapshots::v1::snapshots_server;
use core_metadata::Database;
use core_snapshots::{Info, Kind, Snapshotter};
use core_types::ErrorKind;
use futures::{StreamExt, stream};
use tonic::{Request, Response, Status};

use crate::{
    BoxStream, GrpcService, convert,
    grpc::serve,
    scope::scope,
    status::{required, status},
};

/// Snapshots in one message of a listing.
const LIST_CHUNK: usize = 100;

/// The service.
pub struct Snapshots {
    database: Database,
}

impl Snapshots {
    /// A service over the database.
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    /// The service, ready to be offered.
    pub fn service(self) -> GrpcService {
        serve!(snapshots_server::SnapshotsServer, self)
    }

    /// The snapshotter that a request names, and the request.
    fn named<T>(
        &self,
        request: Request<T>,
        name: impl FnOnce(&T) -> &str,
    ) -> Result<(Arc<dyn Snapshotter>, T), Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let snapshotter = match name(&request) {
            "" => return Err(Status::invalid_argument("snapshotter argument missing")),
            name => self.database.snapshotter(&scope, name).map_err(|error| match error.kind() {
                // The request names a snapshotter that this daemon has not; NotFound is for snapshots.
                ErrorKind::NotFound => Status::invalid_argument(error.message()),
                _ => status(error),
            })?,
        };
        Ok((snapshotter, request))
    }
}

#[tonic::async_trait]
impl snapshots_server::Snapshots for Snapshots {
    async fn prepare(
        &self,
        request: Request<api::PrepareSnapshotRequest>,
    ) -> Result<Response<api::PrepareSnapshotResponse>, Status> {
        let (snapshotter, request) = self.named(request, |request| &request.snapshotter)?;
        let mounts = snapshotter.prepare(&request.key, &request.parent, request.labels).await.map_err(status)?;
        Ok(Response::new(api::PrepareSnapshotResponse { mounts: convert::mounts_to(mounts) }))
    }

    async fn view(
        &self,
        request: Request<api::ViewSnapshotRequest>,
    ) -> Result<Response<api::ViewSnapshotResponse>, Status> {
        let (snapshotter, request) = self.named(request, |request| &request.snapshotter)?;
        let mounts = snapshotter.view(&request.key, &request.parent, request.labels).await.map_err(status)?;
        Ok(Response::new(api::ViewSnapshotResponse { mounts: convert::mounts_to(mounts) }))
    }

    async fn mounts(&self, request: Request<api::MountsRequest>) -> Result<Response<api::MountsResponse>, Status> {
        let (snapshotter, request) = self.named(request, |request| &request.snapshotter)?;
        let mounts = snapshotter.mounts(&request.key).await.map_err(status)?;
        Ok(Response::new(api::MountsResponse { mounts: convert::mounts_to(mounts) }))
    }

    async fn commit(&self, request: Request<api::CommitSnapshotRequest>) -> Result<Response<()>, Status> {
        let (snapshotter, request) = self.named(request, |request| &request.snapshotter)?;
        let parent = Some(request.parent.as_str()).filter(|parent| !parent.is_empty());
        snapshotter.commit(&request.name, &request.key, parent, request.labels).await.map_err(status)?;
        Ok(Response::new(()))
    }

    async fn remove(&self, request: Request<api::RemoveSnapshotRequest>) -> Result<Response<()>, Status> {
        let (snapshotter, request) = self.named(request, |request| &request.snapshotter)?;
        snapshotter.remove(&request.key).await.map_err(status)?;
        Ok(Response::new(()))
    }

    async fn stat(
        &self,
        request: Request<api::StatSnapshotRequest>,
    ) -> Result<Response<api::StatSnapshotResponse>, Status> {
        let (snapshotter, request) = self.named(request, |request| &request.snapshotter)?;
        let info = snapshotter.stat(&request.key).await.map_err(status)?;
        Ok(Response::new(api::StatSnapshotResponse { info: Some(to_message(info)) }))
    }

    async fn update(
        &self,
        request: Request<api::UpdateSnapshotRequest>,
    ) -> Result<Response<api::UpdateSnapshotResponse>, Status> {
        let (snapshotter, request) = self.named(request, |request| &request.snapshotter)?;
        let fields = convert::paths(request.update_mask);
        let info = snapshotter.update(from_message(request.info)?, &fields).await.map_err(status)?;
        Ok(Response::new(api::UpdateSnapshotResponse { info: Some(to_message(info)) }))
    }

    type ListStream = BoxStream<api::ListSnapshotsResponse>;

    async fn list(&self, request: Request<api::ListSnapshotsRequest>) -> Result<Response<Self::ListStream>, Status> {
        let (snapshotter, request) = self.named(request, |request| &request.snapshotter)?;
        let infos = snapshotter.list(&request.filters).await.map_err(status)?;
        let chunks = stream::iter(infos).map(to_message).chunks(LIST_CHUNK);
        Ok(Response::new(chunks.map(|info| Ok(api::ListSnapshotsResponse { info })).boxed()))
    }

    async fn usage(&self, request: Request<api::UsageRequest>) -> Result<Response<api::UsageResponse>, Status> {
        let (snapshotter, request) = self.named(request, |request| &request.snapshotter)?;
        let usage = snapshotter.usage(&request.key).await.map_err(status)?;
        Ok(Response::new(api::UsageResponse { size: usage.size, inodes: usage.inodes }))
    }

    async fn cleanup(&self, request: Request<api::CleanupRequest>) -> Result<Response<()>, Status> {
        let (snapshotter, _) = self.named(request, |request| &request.snapshotter)?;
        snapshotter.cleanup().await.map_err(status)?;
        Ok(Response::new(()))
    }
}

fn to_message(info: Info) -> api::Info {
    let kind = match info.kind {
        Kind::View => api::Kind::View,
        Kind::Active => api::Kind::Active,
        Kind::Committed => api::Kind::Committed,
    };
    api::Info {
        name: info.name,
        parent: info.parent,
        kind: kind.into(),
        created_at: convert::timestamp(info.created_at),
        updated_at: convert::timestamp(info.updated_at),
        labels: info.labels,
    }
}

fn from_message(message: Option<api::Info>) -> Result<Info, Status> {
    let message = required(message, "info")?;
    // Only labels can be changed; the kind of an update counts for nothing.
    let kind = match message.kind() {
        api::Kind::View => Kind::View,
        api::Kind::Committed => Kind::Committed,
        api::Kind::Active | api::Kind::Unknown => Kind::Active,
    };
    Ok(Info {
        kind,
        name: message.name,
        parent: message.parent,
        labels: message.labels,
        created_at: convert::time(message.created_at),
        updated_at: convert::time(message.updated_at),
    })
}
