//! `containerd.services.diff.v1.Diff`: applying layers and making them.

use std::sync::Arc;

use containerd_api::services::diff::v1 as api;
use containerd_api_grpc::services::diff::v1::diff_server;
use core_diff::{ApplyOptions, CompareOptions, Differ};
use core_metadata::Database;
use core_types::{Descriptor, ErrorKind, Result as CoreResult, media_types};
use serde::{Deserialize, Serialize};
use tonic::{Request, Response, Status};

use crate::{
    GrpcService, convert,
    grpc::serve_shared,
    scope::scope,
    status::{required, status},
};

/// Section `io.containerd.service.v1.diff-service` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Differs in order of preference; the first that knows the media type serves.
    pub default: Vec<String>,
    /// Flush the file system after each layer, whatever the client asked for.
    pub sync_fs: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { default: vec!["walking".into()], sync_fs: false }
    }
}

/// The service.
pub struct Diff {
    database: Database,
    differs: Vec<Differ>,
    sync: bool,
}

impl Diff {
    /// A service that tries `differs` in order; `sync` flushes after each layer.
    pub fn new(database: Database, differs: Vec<Differ>, sync: bool) -> Self {
        Self { database, differs, sync }
    }

    /// The service, ready to be offered.
    pub fn service(self: Arc<Self>) -> GrpcService {
        serve_shared!(diff_server::DiffServer, self)
    }
}

#[tonic::async_trait]
impl diff_server::Diff for Diff {
    async fn apply(&self, request: Request<api::ApplyRequest>) -> Result<Response<api::ApplyResponse>, Status> {
        let scope = scope(&request)?;
        let content = self.database.content(&scope);
        let hold = self.database.hold(&scope);
        let request = request.into_inner();
        let layer = convert::descriptor_from(required(request.diff, "diff")?)?;
        let mounts = convert::mounts_from(request.mounts);
        let options = ApplyOptions { sync: request.sync_fs || self.sync };
        let differs = self.differs.clone();
        // A client that goes away does not end the extraction, so its lease is kept for as long as that goes on.
        let applying = tokio::spawn(async move {
            let _hold = hold;
            let mut answer = none_left(&layer.media_type);
            for differ in &differs {
                let applied = differ.applier.apply(Arc::clone(&content), &layer, &mounts, options.clone()).await;
                answer = applied.map(|applied| Descriptor::new(media_types::OCI_LAYER, applied.diff_id, applied.size));
                if !unimplemented(&answer) {
                    break;
                }
            }
            answer
        });
        let answer = applying.await.map_err(|error| Status::internal(format!("apply: {error}")))?;
        let applied = Some(convert::descriptor_to(answer.map_err(status)?));
        Ok(Response::new(api::ApplyResponse { applied }))
    }

    async fn diff(&self, request: Request<api::DiffRequest>) -> Result<Response<api::DiffResponse>, Status> {
        let content = self.database.content(&scope(&request)?);
        let request = request.into_inner();
        let (left, right) = (convert::mounts_from(request.left), convert::mounts_from(request.right));
        let options = CompareOptions {
            media_type: request.media_type,
            reference: request.r#ref,
            labels: request.labels,
            source_date_epoch: request.source_date_epoch.map(|time| time.seconds),
        };
        let mut answer = none_left(&options.media_type);
        for differ in &self.differs {
            answer = differ.comparer.compare(Arc::clone(&content), &left, &right, options.clone()).await;
            if !unimplemented(&answer) {
                break;
            }
        }
        let diff = Some(convert::descriptor_to(answer.map_err(status)?));
        Ok(Response::new(api::DiffResponse { diff }))
    }
}

fn none_left(media_type: &str) -> CoreResult<Descriptor> {
    Err(core_types::Error::unimplemented(format!("no differ is loaded for {media_type:?}")))
}

fn unimplemented(answer: &CoreResult<Descriptor>) -> bool {
    matches!(answer, Err(error) if error.kind() == ErrorKind::Unimplemented)
}
