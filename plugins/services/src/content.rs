//! `containerd.services.content.v1.Content`: blobs and ingests.

use containerd_api::services::content::v1 as api;
use containerd_api_grpc::services::content::v1::content_server;
use core_content::{Info, IngestStatus};
use core_metadata::Database;
use futures::{StreamExt, stream};
use tonic::{Request, Response, Status, Streaming};

use crate::{
    BoxStream, GrpcService, convert,
    grpc::serve,
    scope::scope,
    status::{required, status},
};

/// Reading a blob in pieces.
mod read;
/// Writing an ingest, message by message.
mod write;

/// Blobs in one message of a listing.
const LIST_CHUNK: usize = 100;

/// The service.
pub struct Content {
    database: Database,
}

impl Content {
    /// A service over the database.
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    /// The service, ready to be offered.
    pub fn service(self) -> GrpcService {
        serve!(content_server::ContentServer, self)
    }
}

#[tonic::async_trait]
impl content_server::Content for Content {
    async fn info(&self, request: Request<api::InfoRequest>) -> Result<Response<api::InfoResponse>, Status> {
        let scope = scope(&request)?;
        let digest = convert::digest(&request.get_ref().digest)?;
        let info = self.database.content(&scope).info(&digest).await.map_err(status)?;
        Ok(Response::new(api::InfoResponse { info: Some(info_message(info)) }))
    }

    async fn update(&self, request: Request<api::UpdateRequest>) -> Result<Response<api::UpdateResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let message = required(request.info, "info")?;
        let info = Info {
            digest: convert::digest(&message.digest)?,
            size: u64::try_from(message.size).unwrap_or_default(),
            created_at: convert::time(message.created_at),
            updated_at: convert::time(message.updated_at),
            labels: message.labels,
        };
        let fields = convert::paths(request.update_mask);
        let info = self.database.content(&scope).update(info, &fields).await.map_err(status)?;
        Ok(Response::new(api::UpdateResponse { info: Some(info_message(info)) }))
    }

    type ListStream = BoxStream<api::ListContentResponse>;

    async fn list(&self, request: Request<api::ListContentRequest>) -> Result<Response<Self::ListStream>, Status> {
        let scope = scope(&request)?;
        let infos = self.database.content(&scope).list(&request.get_ref().filters).await.map_err(status)?;
        let chunks = stream::iter(infos).map(info_message).chunks(LIST_CHUNK);
        Ok(Response::new(chunks.map(|info| Ok(api::ListContentResponse { info })).boxed()))
    }

    async fn delete(&self, request: Request<api::DeleteContentRequest>) -> Result<Response<()>, Status> {
        let scope = scope(&request)?;
        let digest = convert::digest(&request.get_ref().digest)?;
        self.database.content(&scope).delete(&digest).await.map_err(status)?;
        Ok(Response::new(()))
    }

    type ReadStream = BoxStream<api::ReadContentResponse>;

    async fn read(&self, request: Request<api::ReadContentRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let digest = convert::digest(&request.digest)?;
        let reader = self.database.content(&scope).reader(&digest).await.map_err(status)?;
        Ok(Response::new(read::stream(reader, request.offset, request.size)?))
    }

    async fn status(&self, request: Request<api::StatusRequest>) -> Result<Response<api::StatusResponse>, Status> {
        let scope = scope(&request)?;
        let found = self.database.content(&scope).status(&request.get_ref().r#ref).await.map_err(status)?;
        Ok(Response::new(api::StatusResponse { status: Some(status_message(found)) }))
    }

    async fn list_statuses(
        &self,
        request: Request<api::ListStatusesRequest>,
    ) -> Result<Response<api::ListStatusesResponse>, Status> {
        let scope = scope(&request)?;
        let found = self.database.content(&scope).list_statuses(&request.get_ref().filters).await.map_err(status)?;
        Ok(Response::new(api::ListStatusesResponse { statuses: found.into_iter().map(status_message).collect() }))
    }

    type WriteStream = BoxStream<api::WriteContentResponse>;

    async fn write(
        &self,
        request: Request<Streaming<api::WriteContentRequest>>,
    ) -> Result<Response<Self::WriteStream>, Status> {
        let scope = scope(&request)?;
        Ok(Response::new(write::stream(self.database.content(&scope), request.into_inner())))
    }

    async fn abort(&self, request: Request<api::AbortRequest>) -> Result<Response<()>, Status> {
        let scope = scope(&request)?;
        self.database.content(&scope).abort(&request.get_ref().r#ref).await.map_err(status)?;
        Ok(Response::new(()))
    }
}

fn info_message(info: Info) -> api::Info {
    api::Info {
        digest: info.digest.to_string(),
        size: convert::length(info.size),
        created_at: convert::timestamp(info.created_at),
        updated_at: convert::timestamp(info.updated_at),
        labels: info.labels,
    }
}

fn status_message(status: IngestStatus) -> api::Status {
    api::Status {
        started_at: convert::timestamp(status.started_at),
        updated_at: convert::timestamp(status.updated_at),
        r#ref: status.reference,
        offset: convert::length(status.offset),
        total: convert::length(status.total),
        expected: status.expected.map(|digest| digest.to_string()).unwrap_or_default(),
    }
}
