use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use containerd_api_cri::v1::{AuthConfig, ImageSpec, PodSandboxConfig};
use core_images::{MAX_DOCUMENT, PlatformSet, read_blob};
use core_metadata::Database;
use core_oci::ImageConfig;
use core_transfer::{Destination, ImageStore, Source, Transferer, UnpackConfiguration};
use core_types::{Error, Namespace, Platform, Result, ResultExt, Scope};
use tokio::sync::Semaphore;

use crate::{
    Config, Image, SnapshotUsage,
    config::SANDBOX,
    fs::{Total, Usage},
    index::{Index, Loaded},
    pull::Flights,
};

/// The namespace of Kubernetes.
const NAMESPACE: &str = "k8s.io";
/// Annotation of a pod that names its runtime handler, from before requests did.
const HANDLER_ANNOTATION: &str = "io.containerd.cri.runtime-handler";

/// What to pull.
#[derive(Clone, Default)]
pub struct PullRequest {
    /// The image as a client names it.
    pub image: String,
    /// Credentials for this pull only; those of the configuration count when there are none.
    pub auth: Option<AuthConfig>,
    /// Runtime handler, which decides on platform and snapshotter; the default one when empty.
    pub handler: String,
}

impl fmt::Debug for PullRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PullRequest")
            .field("image", &self.image)
            .field("handler", &self.handler)
            .finish_non_exhaustive()
    }
}

/// Platform and snapshotter of a runtime handler.
struct HandlerImages {
    platform: Option<Platform>,
    snapshotter: String,
}

struct Shared {
    config: Config,
    database: Database,
    scope: Scope,
    transferer: Arc<dyn Transferer>,
    platforms: PlatformSet,
    handlers: BTreeMap<String, HandlerImages>,
    /// Snapshotters that the configuration of runtimes names.
    runtimes: OnceLock<BTreeMap<String, String>>,
    /// Where snapshotters keep their data.
    roots: BTreeMap<String, String>,
    index: RwLock<Index>,
    turn: tokio::sync::Mutex<()>,
    flights: Flights,
    downloads: Option<Arc<Semaphore>>,
    usage: Usage,
}

/// Images as the CRI sees them. A clone is the same.
#[derive(Clone)]
pub struct Images(Arc<Shared>);

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Images").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl Images {
    /// Images over the daemon's stores. `roots` says where each snapshotter keeps its data. The index is empty until
    /// it is told to read the store.
    ///
    /// # Errors
    /// InvalidArgument for a wrong configuration; NotFound when the default snapshotter is not there.
    pub(crate) fn new(
        config: Config,
        database: Database,
        transferer: Arc<dyn Transferer>,
        roots: BTreeMap<String, String>,
    ) -> Result<Self> {
        let config = config.complete()?;
        let scope = Scope::new(Namespace::new(NAMESPACE)?);
        database.snapshotter(&scope, &config.snapshotter).doing("snapshotter")?;
        let mut handlers = BTreeMap::new();
        let mut platforms = vec![Platform::host()];
        for (name, section) in &config.runtime_platforms {
            let platform = section.platform()?;
            platforms.extend(platform.clone());
            let snapshotter =
                if section.snapshotter.is_empty() { &config.snapshotter } else { &section.snapshotter }.clone();
            handlers.insert(name.clone(), HandlerImages { platform, snapshotter });
        }
        Ok(Self(Arc::new(Shared {
            downloads: config.downloads().map(|limit| Arc::new(Semaphore::new(limit))),
            platforms: PlatformSet::of(&platforms),
            config,
            database,
            scope,
            transferer,
            handlers,
            runtimes: OnceLock::new(),
            roots,
            index: RwLock::default(),
            turn: tokio::sync::Mutex::default(),
            flights: Flights::default(),
            usage: Usage::default(),
        })))
    }

    /// The image that a client means: a full or short name, a name with a digest, an id or the beginning of one. None
    /// when it is not there, or not whole.
    ///
    /// # Errors
    /// InvalidArgument when several ids begin so.
    pub fn resolve(&self, reference: &str) -> Result<Option<Image>> {
        self.index(|index| index.resolve(reference))
    }

    /// As [`resolve`](Self::resolve), of a message. Where it names no image, what the user wrote counts.
    ///
    /// # Errors
    /// InvalidArgument when it names nothing at all, or several images.
    pub fn resolve_spec(&self, spec: Option<&ImageSpec>) -> Result<Option<Image>> {
        let named = spec.map(|spec| if spec.image.is_empty() { &spec.user_specified_image } else { &spec.image });
        match named.filter(|name| !name.is_empty()) {
            Some(name) => self.resolve(name),
            None => Err(Error::invalid_argument("image.image required")),
        }
    }

    /// All images that are whole, in the order of their ids.
    pub fn list(&self) -> Vec<Image> {
        self.index(Index::list)
    }

    /// The image, pulled if it is not there.
    ///
    /// # Errors
    /// As [`pull`](Self::pull).
    pub async fn ensure(&self, reference: &str, handler: &str) -> Result<Image> {
        if let Some(image) = self.resolve(reference)? {
            return Ok(image);
        }
        let request = PullRequest { image: reference.to_owned(), auth: None, handler: handler.to_owned() };
        self.pull(request).await
    }

    /// The name of the pause image.
    pub fn pause_image(&self) -> &str {
        self.0.config.pinned_images.get(SANDBOX).map_or("", String::as_str)
    }

    /// The pause image of a pod, pulled if it is not there.
    ///
    /// # Errors
    /// FailedPrecondition when `pinned_images.sandbox` names none; else as [`pull`](Self::pull).
    pub async fn ensure_pause_image(&self, config: &PodSandboxConfig, handler: &str) -> Result<Image> {
        let name = self.pause_image();
        if name.is_empty() {
            return Err(Error::failed_precondition(
                "no pause image is configured: set pinned_images.sandbox in section io.containerd.cri.v1.images",
            ));
        }
        self.ensure(name, &handler_of(handler, Some(config))).await
    }

    /// The configuration of an image.
    ///
    /// # Errors
    /// NotFound when the image was removed meanwhile; InvalidArgument when it is malformed.
    pub async fn config(&self, image: &Image) -> Result<ImageConfig> {
        ImageConfig::from_slice(&self.config_bytes(image).await?).doing(&image.id)
    }

    pub(crate) async fn config_bytes(&self, image: &Image) -> Result<Vec<u8>> {
        let content = self.0.database.content(&self.0.scope);
        read_blob(content.as_ref(), &image.config, MAX_DOCUMENT).await
    }

    /// Sees to it that the image is unpacked into a snapshotter. Returns the name of the snapshot that holds its
    /// layers, empty for an image without layers. The image keeps it from being collected.
    ///
    /// # Errors
    /// NotFound for an unknown snapshotter, or when layers are no longer stored; what the unpacking says.
    pub async fn ensure_unpacked(&self, image: &Image, snapshotter: &str) -> Result<String> {
        let chain = image.chain_id.clone();
        if chain.is_empty() || self.0.database.snapshotter(&self.0.scope, snapshotter)?.stat(&chain).await.is_ok() {
            return Ok(chain);
        }
        let source = ImageStore { name: image.reference(), ..ImageStore::default() };
        let unpack = UnpackConfiguration { platform: image.platform.clone(), snapshotter: snapshotter.to_owned() };
        let destination = ImageStore { unpacks: vec![unpack], ..ImageStore::default() };
        self.0
            .transferer
            .transfer(&self.0.scope, Source::Store(source), Destination::Store(destination), None)
            .await
            .doing(format_args!("unpack image {} into snapshotter {snapshotter}", image.id))?;
        Ok(chain)
    }

    /// Takes over which runtime handlers have a snapshotter of their own in the configuration of runtimes. What
    /// `runtime_platforms` says goes before that. To be called once.
    pub fn set_runtime_snapshotters(&self, snapshotters: BTreeMap<String, String>) {
        if self.0.runtimes.set(snapshotters).is_err() {
            tracing::warn!("the snapshotters of runtime handlers are known already");
        }
    }

    /// The snapshotter of a runtime handler; the default one for those that have none of their own.
    pub fn snapshotter_for(&self, handler: &str) -> &str {
        if let Some(found) = self.0.handlers.get(handler) {
            return &found.snapshotter;
        }
        let runtime = self.0.runtimes.get().and_then(|runtimes| runtimes.get(handler));
        runtime.filter(|name| !name.is_empty()).unwrap_or(&self.0.config.snapshotter)
    }

    /// The platform of a runtime handler's images; none for the machine's.
    pub fn platform_for(&self, handler: &str) -> Option<&Platform> {
        self.0.handlers.get(handler)?.platform.as_ref()
    }

    /// What a snapshot weighs, when it was looked at last; none while it was not.
    pub fn snapshots_usage(&self, snapshotter: &str, key: &str) -> Option<SnapshotUsage> {
        self.0.usage.of(snapshotter, key)
    }

    /// Where a snapshotter keeps its data.
    pub fn snapshotter_root(&self, snapshotter: &str) -> Option<&str> {
        self.0.roots.get(snapshotter).map(String::as_str)
    }

    /// The section of the configuration.
    pub fn settings(&self) -> &Config {
        &self.0.config
    }

    /// Removes an image by all its names. Nothing happens when it is gone.
    ///
    /// # Errors
    /// What the image store says.
    pub async fn remove(&self, image: &Image) -> Result<()> {
        for name in &image.references {
            match self.store().delete(name, None).await {
                Err(error) if error.is_not_found() => {}
                done => done.doing(format_args!("failed to delete image reference {name:?}"))?,
            }
            self.refresh(name).await?;
        }
        // The room is wanted now: kubelet removes images when the disk is full.
        if let Err(error) = self.0.database.collect().await {
            tracing::warn!(%error, "cannot collect what a removed image leaves");
        }
        Ok(())
    }

    /// The snapshotters in use, the default one first.
    pub(crate) fn snapshotters(&self) -> Vec<String> {
        let others = self.0.handlers.values().map(|handler| &handler.snapshotter);
        let others = others.chain(self.0.runtimes.get().into_iter().flat_map(BTreeMap::values));
        let mut others: BTreeSet<&String> = others.filter(|name| !name.is_empty()).collect();
        others.remove(&self.0.config.snapshotter);
        std::iter::once(&self.0.config.snapshotter).chain(others).cloned().collect()
    }

    /// What a snapshotter's snapshots weigh; none before they were looked at.
    pub(crate) fn total(&self, snapshotter: &str) -> Option<Total> {
        self.0.usage.total(snapshotter)
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.0.usage
    }

    pub(crate) fn store(&self) -> Arc<dyn core_images::Store> {
        self.0.database.images(&self.0.scope)
    }

    pub(crate) fn database(&self) -> &Database {
        &self.0.database
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.0.scope
    }

    pub(crate) fn transferer(&self) -> &Arc<dyn Transferer> {
        &self.0.transferer
    }

    pub(crate) fn platforms(&self) -> &PlatformSet {
        &self.0.platforms
    }

    pub(crate) fn downloads(&self) -> Option<&Arc<Semaphore>> {
        self.0.downloads.as_ref()
    }

    pub(crate) fn flights(&self) -> &Flights {
        &self.0.flights
    }

    pub(crate) fn turn(&self) -> &tokio::sync::Mutex<()> {
        &self.0.turn
    }

    pub(crate) fn named(&self, name: &str) -> Option<Image> {
        self.index(|index| index.named(name))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.index(Index::names)
    }

    pub(crate) fn set(&self, name: &str, loaded: Option<Loaded>) {
        self.0.index.write().unwrap_or_else(PoisonError::into_inner).set(name, loaded);
    }

    fn index<T>(&self, read: impl FnOnce(&Index) -> T) -> T {
        read(&self.0.index.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The runtime handler of a request: its own, else the one that the pod's annotation names.
pub(crate) fn handler_of(named: &str, pod: Option<&PodSandboxConfig>) -> String {
    let annotated = || pod.and_then(|pod| pod.annotations.get(HANDLER_ANNOTATION)).cloned().unwrap_or_default();
    if named.is_empty() { annotated() } else { named.to_owned() }
}
