use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use containerd_api::{
    any,
    services::transfer::v1::{TransferOptions, TransferRequest},
    types::transfer as messages,
};
use core_types::{Descriptor, Labels, Platform};
use prost::Message as _;
use prost_types::Any;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    task::JoinSet,
};

use crate::{
    Client, Error, Image, MessageStream, Result, convert,
    streams::{ByteReceiver, send_bytes, stream_id},
};

/// Names of the messages that say what is transferred.
const OCI_REGISTRY: &str = "containerd.types.transfer.OCIRegistry";
const IMAGE_STORE: &str = "containerd.types.transfer.ImageStore";
const IMPORT_STREAM: &str = "containerd.types.transfer.ImageImportStream";
const EXPORT_STREAM: &str = "containerd.types.transfer.ImageExportStream";
const PROGRESS: &str = "containerd.types.transfer.Progress";
const AUTH_REQUEST: &str = "containerd.types.transfer.AuthRequest";
const AUTH_RESPONSE: &str = "containerd.types.transfer.AuthResponse";

/// How long after the daemon's answer the end of a progress stream is waited for.
const PROGRESS_TAIL: Duration = Duration::from_secs(1);
/// How long after the daemon's answer the rest of an archive is waited for.
const ARCHIVE_TAIL: Duration = Duration::from_secs(60);

/// Gives secrets for registries.
#[async_trait]
pub trait Credentials: Send + Sync {
    /// User and secret for a host; an empty user makes the secret a refresh token; `None` for none.
    async fn get(&self, reference: &str, host: &str) -> Option<(String, String)>;
}

/// The same user and secret for one registry host.
#[derive(Clone)]
pub struct StaticCredentials {
    host: String,
    user: String,
    secret: String,
}

impl StaticCredentials {
    /// A user and secret for the registry of an image reference; other hosts get none.
    pub fn for_reference(reference: &str, user: &str, secret: &str) -> Self {
        let host = reference.split('/').next().unwrap_or_default();
        Self { host: host.to_owned(), user: user.to_owned(), secret: secret.to_owned() }
    }
}

#[async_trait]
impl Credentials for StaticCredentials {
    async fn get(&self, _reference: &str, host: &str) -> Option<(String, String)> {
        let hub = |host: &str| matches!(host, "docker.io" | "registry-1.docker.io" | "index.docker.io");
        let same = host == self.host || (hub(host) && hub(&self.host));
        same.then(|| (self.user.clone(), self.secret.clone()))
    }
}

/// An image in a registry, and how to reach it.
#[derive(Clone, Default)]
pub struct Registry {
    /// The image's full name.
    pub reference: String,
    /// Directory with `hosts.toml` files, on the daemon's side.
    pub host_dir: String,
    /// `http` to use plain HTTP; empty for the daemon's default.
    pub default_scheme: String,
    /// Headers sent with every request.
    pub headers: BTreeMap<String, String>,
    /// Secrets.
    pub credentials: Option<Arc<dyn Credentials>>,
    /// Log requests and answers.
    pub http_debug: bool,
    /// Trace connections.
    pub http_trace: bool,
}

impl Registry {
    /// An image with nothing special about its registry.
    pub fn new(reference: &str) -> Self {
        Self { reference: reference.to_owned(), ..Self::default() }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("reference", &self.reference).finish_non_exhaustive()
    }
}

/// Images in the daemon's store.
#[derive(Clone, Debug, Default)]
pub struct ImageStore {
    /// Name of the image; may be empty when importing or exporting several.
    pub name: String,
    /// Labels for it.
    pub labels: Labels,
    /// Platforms to transfer; all when empty.
    pub platforms: Vec<Platform>,
    /// Fetch manifests of the other platforms too.
    pub all_metadata: bool,
    /// What to unpack, and by which snapshotter (empty for the default).
    pub unpack: Vec<(Platform, String)>,
    /// More names to give or take.
    pub extra_references: Vec<messages::ImageReference>,
}

/// How an archive is written or read.
#[derive(Clone, Debug, Default)]
pub struct Archive {
    /// Media type; empty for an OCI layout in tar.
    pub media_type: String,
    /// When importing, compress layers that are not.
    pub force_compress: bool,
    /// When exporting, the platforms; this machine's when empty.
    pub platforms: Vec<Platform>,
    /// When exporting, all platforms.
    pub all_platforms: bool,
    /// When exporting, leave out Docker's `manifest.json`.
    pub skip_docker_manifest: bool,
    /// When exporting, leave out layers that may not be passed on.
    pub skip_non_distributable: bool,
}

/// Where something comes from.
pub enum Source {
    /// A registry.
    Registry(Registry),
    /// The daemon's store.
    Store(ImageStore),
    /// An archive that is read here.
    Archive(Archive, Box<dyn AsyncRead + Send + Unpin>),
}

/// Where something goes to.
pub enum Destination {
    /// A registry.
    Registry(Registry),
    /// The daemon's store.
    Store(ImageStore),
    /// An archive that is written here.
    Archive(Archive, Box<dyn AsyncWrite + Send + Unpin>),
}

/// One step of a transfer.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// What is going on (`downloading`, `extracting`, `complete` …).
    pub event: String,
    /// With what; empty when it is about the whole transfer.
    pub name: String,
    /// Names of what it belongs to.
    pub parents: Vec<String>,
    /// Bytes done.
    pub progress: i64,
    /// Bytes in all, 0 when unknown.
    pub total: i64,
    /// The content.
    pub descriptor: Option<Descriptor>,
}

/// Takes the steps of a transfer.
pub type ProgressSink = Box<dyn FnMut(Progress) + Send>;

/// How to pull.
#[derive(Default)]
pub struct Pull {
    /// The platform; this machine's when none.
    pub platform: Option<Platform>,
    /// Who unpacks; empty for the default.
    pub snapshotter: String,
    /// How to reach the registry; its reference is filled in.
    pub registry: Registry,
    /// Labels of the image.
    pub labels: Labels,
    /// Takes the steps.
    pub progress: Option<ProgressSink>,
}

impl Client {
    /// Pulls an image and unpacks it, all in the daemon.
    ///
    /// # Errors
    /// NotFound for a name the registry does not know, and what else registry, disk and daemon say.
    pub async fn pull(&self, reference: &str, options: Pull) -> Result<Image> {
        let platform = options.platform.unwrap_or_else(Platform::host);
        let registry = Registry { reference: reference.to_owned(), ..options.registry };
        let store = ImageStore {
            name: reference.to_owned(),
            labels: options.labels,
            platforms: vec![platform.clone()],
            all_metadata: true,
            unpack: vec![(platform.clone(), options.snapshotter)],
            ..ImageStore::default()
        };
        self.transfer(Source::Registry(registry), Destination::Store(store), options.progress).await?;
        Ok(self.image(reference).await?.for_platform(&platform))
    }

    /// Transfers between registry, store and archive.
    ///
    /// # Errors
    /// Unimplemented for a pair that the daemon does not offer.
    pub async fn transfer(
        &self,
        source: Source,
        destination: Destination,
        progress: Option<ProgressSink>,
    ) -> Result<()> {
        let mut side = JoinSet::new();
        let mut archive = JoinSet::new();
        let source = self.source(source, &mut side).await?;
        let destination = self.destination(destination, &mut side, &mut archive).await?;
        let mut options = TransferOptions::default();
        let mut reports = JoinSet::new();
        if let Some(sink) = progress {
            options.progress_stream = stream_id("progress");
            let stream = self.stream(&options.progress_stream).await?;
            reports.spawn(report(stream, sink));
        }
        let request = TransferRequest { source: Some(source), destination: Some(destination), options: Some(options) };
        let answer = self.transfer_service().transfer(request).await;
        if tokio::time::timeout(PROGRESS_TAIL, reports.join_next()).await.is_err() {
            tracing::debug!("the daemon left the progress stream open");
        }
        answer?;
        match tokio::time::timeout(ARCHIVE_TAIL, archive.join_next()).await {
            Ok(None) => Ok(()),
            Ok(Some(Ok(written))) => written,
            Ok(Some(Err(_))) | Err(_) => {
                Err(core_types::Error::deadline_exceeded("the archive was not received to its end").into())
            }
        }
    }

    async fn source(&self, source: Source, side: &mut JoinSet<()>) -> Result<Any> {
        match source {
            Source::Registry(registry) => self.registry(registry, side).await,
            Source::Store(store) => Ok(store_message(store)),
            Source::Archive(archive, reader) => {
                let id = stream_id("import");
                let stream = self.stream(&id).await?;
                side.spawn(async move {
                    if let Err(error) = send_bytes(stream, reader).await {
                        tracing::warn!(%error, "sending the archive failed");
                    }
                });
                let message = messages::ImageImportStream {
                    stream: id,
                    media_type: archive.media_type,
                    force_compress: archive.force_compress,
                };
                Ok(any::pack(IMPORT_STREAM, &message))
            }
        }
    }

    async fn destination(
        &self,
        destination: Destination,
        side: &mut JoinSet<()>,
        archives: &mut JoinSet<Result<()>>,
    ) -> Result<Any> {
        match destination {
            Destination::Registry(registry) => self.registry(registry, side).await,
            Destination::Store(store) => Ok(store_message(store)),
            Destination::Archive(archive, writer) => {
                let id = stream_id("export");
                archives.spawn(receive(ByteReceiver::new(self.stream(&id).await?), writer));
                let message = messages::ImageExportStream {
                    stream: id,
                    media_type: archive.media_type,
                    platforms: archive.platforms.iter().map(convert::platform_to_api).collect(),
                    all_platforms: archive.all_platforms,
                    skip_compatibility_manifest: archive.skip_docker_manifest,
                    skip_non_distributable: archive.skip_non_distributable,
                };
                Ok(any::pack(EXPORT_STREAM, &message))
            }
        }
    }

    async fn registry(&self, registry: Registry, side: &mut JoinSet<()>) -> Result<Any> {
        let mut resolver = messages::RegistryResolver {
            headers: registry.headers,
            host_dir: registry.host_dir,
            default_scheme: registry.default_scheme,
            ..messages::RegistryResolver::default()
        };
        let debug = match (registry.http_debug, registry.http_trace) {
            (true, true) => messages::HttpDebug::Both,
            (true, false) => messages::HttpDebug::Debug,
            (false, true) => messages::HttpDebug::Trace,
            (false, false) => messages::HttpDebug::Disabled,
        };
        resolver.http_debug = debug.into();
        if let Some(credentials) = registry.credentials {
            resolver.auth_stream = stream_id("creds");
            let stream = self.stream(&resolver.auth_stream).await?;
            side.spawn(answer_credentials(stream, credentials));
        }
        let message = messages::OciRegistry { reference: registry.reference, resolver: Some(resolver) };
        Ok(any::pack(OCI_REGISTRY, &message))
    }
}

fn store_message(store: ImageStore) -> Any {
    let unpack = |(platform, snapshotter): &(Platform, String)| messages::UnpackConfiguration {
        platform: Some(convert::platform_to_api(platform)),
        snapshotter: snapshotter.clone(),
    };
    let message = messages::ImageStore {
        name: store.name,
        labels: store.labels,
        platforms: store.platforms.iter().map(convert::platform_to_api).collect(),
        all_metadata: store.all_metadata,
        manifest_limit: 0,
        extra_references: store.extra_references,
        unpacks: store.unpack.iter().map(unpack).collect(),
    };
    any::pack(IMAGE_STORE, &message)
}

async fn receive(mut bytes: ByteReceiver, mut writer: Box<dyn AsyncWrite + Send + Unpin>) -> Result<()> {
    let failed = |error| Error::io("write archive", error);
    while let Some(piece) = bytes.next().await? {
        writer.write_all(&piece).await.map_err(failed)?;
    }
    writer.flush().await.map_err(failed)?;
    writer.shutdown().await.map_err(failed)
}

async fn report(mut stream: MessageStream, mut sink: ProgressSink) {
    // The sending half stays open: its end would tell the daemon to stop reporting.
    while let Ok(Some(message)) = stream.receive().await {
        let Ok(step) = any::unpack::<messages::Progress>(PROGRESS, &message) else { continue };
        sink(Progress {
            event: step.event,
            name: step.name,
            parents: step.parents,
            progress: step.progress,
            total: step.total,
            descriptor: step.desc.and_then(|descriptor| convert::descriptor_from_api(descriptor).ok()),
        });
    }
}

async fn answer_credentials(mut stream: MessageStream, credentials: Arc<dyn Credentials>) {
    while let Ok(Some(message)) = stream.receive().await {
        if !any::is(&message, AUTH_REQUEST) {
            continue;
        }
        let Ok(request) = messages::AuthRequest::decode(message.value.as_slice()) else { continue };
        let mut answer = messages::AuthResponse::default();
        let kind = match credentials.get(&request.reference, &request.host).await {
            None => messages::AuthType::None,
            Some((user, secret)) => {
                answer.secret = secret;
                answer.username = user;
                if answer.username.is_empty() { messages::AuthType::Refresh } else { messages::AuthType::Credentials }
            }
        };
        answer.auth_type = kind.into();
        if stream.send(any::pack(AUTH_RESPONSE, &answer)).await.is_err() {
            return;
        }
    }
}
