//! `containerd.services.transfer.v1.Transfer`: pull, push, import, export and tag inside the daemon.

use std::{sync::Arc, time::Duration};

use containerd_api::{any, services::transfer::v1 as api, types::transfer as messages};
use containerd_api_grpc::services::transfer::v1::transfer_server;
use core_remotes::{Credential, Credentials, Secret};
use core_streaming::{FromStream, IntoStream, Stream, Streams};
use core_transfer::{
    Destination, Export, ImageReference, ImageStore, Import, Progress, ProgressSink, PullOptions, Registry, Source,
    Transferer, UnpackConfiguration,
};
use core_types::{Error, ErrorKind, Namespace, Result as CoreResult};
use prost::Message;
use prost_types::Any;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

use crate::{
    GrpcService, convert,
    grpc::serve,
    scope::scope,
    status::{required, status},
};

/// How long a client may take to open a stream that its request names.
const PATIENCE: Duration = Duration::from_secs(10);
/// Progress reports on their way to a client; more are dropped, the next one tells the same and more.
const REPORTS: usize = 256;
/// How long the last reports may take to reach the client.
const LAST_REPORTS: Duration = Duration::from_secs(5);

/// The service.
pub struct Transfer {
    transferers: Vec<Arc<dyn Transferer>>,
    streams: Streams,
}

impl Transfer {
    /// A service that tries `transferers` in order; clients' streams are looked up in `streams`.
    pub fn new(transferers: Vec<Arc<dyn Transferer>>, streams: Streams) -> Self {
        Self { transferers, streams }
    }

    /// The service, ready to be offered.
    pub fn service(self) -> GrpcService {
        serve!(transfer_server::TransferServer, self)
    }
}

#[tonic::async_trait]
impl transfer_server::Transfer for Transfer {
    async fn transfer(&self, request: Request<api::TransferRequest>) -> Result<Response<()>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let ends = Ends { streams: &self.streams, namespace: &scope.namespace };
        let (source, destination) =
            (required(request.source, "source")?, required(request.destination, "destination")?);
        let reporter = match request.options.map(|options| options.progress_stream).filter(|name| !name.is_empty()) {
            Some(name) => Some(Reporter::new(ends.stream(&name).await.map_err(status)?)),
            None => None,
        };
        let sink = reporter.as_ref().map(|reporter| Arc::new(reporter.sink()) as Arc<dyn ProgressSink>);
        let mut answer = Err(Error::unimplemented(format!(
            "transfer from {} to {} is not implemented",
            source.type_url, destination.type_url
        )));
        for transferer in &self.transferers {
            let from = ends.source(&source).await.map_err(status)?;
            let to = ends.destination(&destination).await.map_err(status)?;
            answer = transferer.transfer(&scope, from, to, sink.clone()).await;
            if !matches!(&answer, Err(error) if error.kind() == ErrorKind::Unimplemented) {
                break;
            }
        }
        drop(sink);
        if let Some(reporter) = reporter {
            reporter.finish().await;
        }
        answer.map_err(status)?;
        Ok(Response::new(()))
    }
}

/// Turns the messages of a request into what they mean.
struct Ends<'a> {
    streams: &'a Streams,
    namespace: &'a Namespace,
}

impl Ends<'_> {
    async fn stream(&self, name: &str) -> CoreResult<Arc<dyn Stream>> {
        self.streams.get(self.namespace, name, PATIENCE).await
    }

    async fn source(&self, any: &Any) -> CoreResult<Source> {
        match name(any) {
            "containerd.types.transfer.OCIRegistry" => Ok(Source::Registry(self.registry(unpack(any)?).await?)),
            "containerd.types.transfer.ImageStore" => Ok(Source::Store(store(unpack(any)?))),
            "containerd.types.transfer.ImageImportStream" => {
                let message: messages::ImageImportStream = unpack(any)?;
                Ok(Source::Import(Import {
                    stream: Box::new(FromStream::new(self.stream(&message.stream).await?)),
                    media_type: message.media_type,
                    force_compress: message.force_compress,
                }))
            }
            other => Err(Error::unimplemented(format!("transfer from {other} is not implemented"))),
        }
    }

    async fn destination(&self, any: &Any) -> CoreResult<Destination> {
        match name(any) {
            "containerd.types.transfer.OCIRegistry" => Ok(Destination::Registry(self.registry(unpack(any)?).await?)),
            "containerd.types.transfer.ImageStore" => Ok(Destination::Store(store(unpack(any)?))),
            "containerd.types.transfer.ImageExportStream" => {
                let message: messages::ImageExportStream = unpack(any)?;
                Ok(Destination::Export(Export {
                    stream: Box::new(IntoStream::new(self.stream(&message.stream).await?)),
                    media_type: message.media_type,
                    platforms: message.platforms.into_iter().map(convert::platform_from).collect(),
                    all_platforms: message.all_platforms,
                    skip_compatibility_manifest: message.skip_compatibility_manifest,
                    skip_non_distributable: message.skip_non_distributable,
                }))
            }
            other => Err(Error::unimplemented(format!("transfer to {other} is not implemented"))),
        }
    }

    async fn registry(&self, message: messages::OciRegistry) -> CoreResult<Registry> {
        let resolver = message.resolver.unwrap_or_default();
        let credentials: Option<Arc<dyn Credentials>> = match resolver.auth_stream.as_str() {
            "" => None,
            name => Some(Arc::new(AskClient { stream: self.stream(name).await?, turn: Default::default() })),
        };
        Ok(Registry {
            reference: message.reference,
            headers: resolver.headers.into_iter().collect(),
            credentials,
            host_dir: Some(resolver.host_dir).filter(|dir| !dir.is_empty()).map(Into::into),
            default_scheme: Some(resolver.default_scheme).filter(|scheme| !scheme.is_empty()),
            pull: PullOptions::default(),
        })
    }
}

fn name(any: &Any) -> &str {
    any.type_url.rsplit('/').next().unwrap_or_default()
}

fn unpack<M: Message + Default>(any: &Any) -> CoreResult<M> {
    M::decode(any.value.as_slice())
        .map_err(|error| Error::invalid_argument(format!("{} cannot be decoded: {error}", name(any))))
}

fn store(message: messages::ImageStore) -> ImageStore {
    let reference = |message: messages::ImageReference| ImageReference {
        name: message.name,
        is_prefix: message.is_prefix,
        allow_overwrite: message.allow_overwrite,
        add_digest: message.add_digest,
        skip_named_digest: message.skip_named_digest,
    };
    let unpack = |message: messages::UnpackConfiguration| UnpackConfiguration {
        platform: message.platform.map(convert::platform_from).unwrap_or_default(),
        snapshotter: message.snapshotter,
    };
    ImageStore {
        name: message.name,
        labels: message.labels,
        platforms: message.platforms.into_iter().map(convert::platform_from).collect(),
        all_metadata: message.all_metadata,
        manifest_limit: message.manifest_limit,
        extra_references: message.extra_references.into_iter().map(reference).collect(),
        unpacks: message.unpacks.into_iter().map(unpack).collect(),
    }
}

/// Asks the client for credentials, over a stream that it opened for that. One question at a time.
struct AskClient {
    stream: Arc<dyn Stream>,
    turn: tokio::sync::Mutex<()>,
}

#[async_trait::async_trait]
impl Credentials for AskClient {
    async fn credential(&self, host: &str, reference: &str) -> CoreResult<Credential> {
        let _turn = self.turn.lock().await;
        let question =
            messages::AuthRequest { host: host.into(), reference: reference.into(), wwwauthenticate: Vec::new() };
        let question = any::pack("containerd.types.transfer.AuthRequest", &question);
        self.stream.send(convert::any_from(question)).await?;
        let answer = self.stream.receive().await?;
        let answer = answer.ok_or_else(|| Error::cancelled("the client closed the stream of credentials"))?;
        let answer: messages::AuthResponse = unpack(&convert::any_to(answer))?;
        Ok(match answer.auth_type() {
            messages::AuthType::None => Credential::Anonymous,
            messages::AuthType::Credentials => {
                Credential::Password { username: answer.username, password: Secret::new(answer.secret) }
            }
            messages::AuthType::Refresh if answer.secret.is_empty() => Credential::Anonymous,
            messages::AuthType::Refresh => Credential::Refresh(Secret::new(answer.secret)),
            messages::AuthType::Header => Credential::Header(Secret::new(answer.secret)),
        })
    }
}

/// Carries progress to the client without holding up the transfer.
struct Reporter {
    reports: mpsc::Sender<Progress>,
    task: tokio::task::JoinHandle<()>,
}

impl Reporter {
    fn new(stream: Arc<dyn Stream>) -> Self {
        let (reports, mut queue) = mpsc::channel::<Progress>(REPORTS);
        let task = tokio::spawn(async move {
            while let Some(progress) = queue.recv().await {
                let message = any::pack("containerd.types.transfer.Progress", &to_message(progress));
                if stream.send(convert::any_from(message)).await.is_err() {
                    break;
                }
            }
            stream.close().await;
        });
        Self { reports, task }
    }

    fn sink(&self) -> impl ProgressSink + 'static {
        let reports = self.reports.clone();
        move |progress| {
            let _ = reports.try_send(progress);
        }
    }

    /// Lets the last reports go out.
    async fn finish(self) {
        let Self { reports, mut task } = self;
        drop(reports);
        if tokio::time::timeout(LAST_REPORTS, &mut task).await.is_err() {
            task.abort();
        }
    }
}

fn to_message(progress: Progress) -> messages::Progress {
    messages::Progress {
        event: progress.event,
        name: progress.name,
        parents: progress.parents,
        progress: progress.progress,
        total: progress.total,
        desc: progress.descriptor.map(convert::descriptor_to),
    }
}
