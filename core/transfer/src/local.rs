use std::{fmt, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use core_remotes::{Resolver, ResolverOptions};
use core_types::{Error, Result, Scope};
use core_unpack::{Engine, Limits};
use tokio::sync::Semaphore;

use crate::{
    Backend, Destination, ImageStore, Progress, ProgressSink, Registry, Source, Transferer, Verifier, archive,
};

/// How transfers are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Downloads and extractions at a time.
    pub limits: Limits,
    /// Uploads at a time.
    pub uploads: usize,
    /// Directories with the per-registry configuration, for requests that name none.
    pub config_path: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { limits: Limits::default(), uploads: 3, config_path: None }
    }
}

/// Transfers inside the daemon.
pub struct LocalTransferer {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) uploads: Semaphore,
    pub(crate) verifiers: Vec<Arc<dyn Verifier>>,
    config_path: Option<PathBuf>,
}

impl fmt::Debug for LocalTransferer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTransferer").field("config_path", &self.config_path).finish_non_exhaustive()
    }
}

/// One transfer: where it belongs and who is told.
pub(crate) struct Job {
    pub(crate) scope: Scope,
    pub(crate) progress: Option<Arc<dyn ProgressSink>>,
}

impl Job {
    pub(crate) fn report(&self, progress: Progress) {
        if let Some(sink) = &self.progress {
            sink.report(progress);
        }
    }

    pub(crate) fn say(&self, event: impl Into<String>) {
        self.report(Progress { event: event.into(), ..Progress::default() });
    }
}

/// Deletes the transfer's lease, also when the transfer is cancelled.
struct LeaseGuard {
    backend: Arc<dyn Backend>,
    held: Option<(Scope, String)>,
}

impl LeaseGuard {
    async fn release(mut self) {
        if let Some((scope, id)) = self.held.take() {
            self.backend.delete_lease(&scope, &id).await;
        }
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        if let (Some((scope, id)), Ok(runtime)) = (self.held.take(), tokio::runtime::Handle::try_current()) {
            let backend = Arc::clone(&self.backend);
            runtime.spawn(async move { backend.delete_lease(&scope, &id).await });
        }
    }
}

impl LocalTransferer {
    /// A transferer over the daemon's stores.
    pub fn new(backend: Arc<dyn Backend>, settings: Settings) -> Self {
        Self {
            backend,
            engine: Arc::new(Engine::new(settings.limits)),
            uploads: Semaphore::new(settings.uploads.max(1)),
            verifiers: Vec::new(),
            config_path: settings.config_path,
        }
    }

    /// Asks these before each pull.
    #[must_use]
    pub fn with_verifiers(mut self, verifiers: Vec<Arc<dyn Verifier>>) -> Self {
        self.verifiers = verifiers;
        self
    }

    pub(crate) fn resolver(&self, registry: &Registry) -> Resolver {
        Resolver::new(ResolverOptions {
            config_path: registry.host_dir.clone().or_else(|| self.config_path.clone()),
            headers: registry.headers.clone(),
            credentials: registry.credentials.clone(),
            default_scheme: registry.default_scheme.clone(),
        })
    }

    /// The unpack targets that a client wishes and this daemon has.
    pub(crate) fn unpack_targets(&self, scope: &Scope, store: &ImageStore) -> Result<Vec<core_unpack::UnpackTarget>> {
        let mut targets = Vec::new();
        for wanted in &store.unpacks {
            match self.backend.unpack_target(scope, wanted)? {
                Some(target) => targets.push(target),
                None => tracing::warn!(platform = %wanted.platform, snapshotter = wanted.snapshotter,
                    "unpack configuration not supported, skipping"),
            }
        }
        Ok(targets)
    }

    async fn dispatch(&self, job: &Job, source: Source, destination: Destination) -> Result<()> {
        match (source, destination) {
            (Source::Registry(registry), Destination::Store(store)) => self.pull(job, &registry, &store).await,
            (Source::Store(store), Destination::Registry(registry)) => self.push(job, &store, &registry).await,
            (Source::Import(import), Destination::Store(store)) => archive::import(self, job, import, &store).await,
            (Source::Store(store), Destination::Export(export)) => archive::export(self, job, &store, export).await,
            (Source::Store(from), Destination::Store(to)) => self.tag(job, &from, &to).await,
            _ => Err(Error::unimplemented("there is no transfer from this source to this destination")),
        }
    }

    async fn tag(&self, job: &Job, from: &ImageStore, to: &ImageStore) -> Result<()> {
        let images = self.backend.images(&job.scope);
        let image = images.get(&from.name).await?;
        self.unpack_stored(job, &image.target, to).await?;
        // Without a name the image keeps the one it has, and is only unpacked.
        if to.name.is_empty() && to.extra_references.is_empty() && !to.unpacks.is_empty() {
            return Ok(());
        }
        crate::save::save(images.as_ref(), to, &image.target, false).await.map(|_| ())
    }
}

#[async_trait]
impl Transferer for LocalTransferer {
    async fn transfer(
        &self,
        scope: &Scope,
        source: Source,
        destination: Destination,
        progress: Option<Arc<dyn ProgressSink>>,
    ) -> Result<()> {
        let mut guard = LeaseGuard { backend: Arc::clone(&self.backend), held: None };
        let mut job = Job { scope: scope.clone(), progress };
        if scope.lease.as_ref().is_none_or(String::is_empty) {
            let id = self.backend.create_lease(scope).await?;
            job.scope = scope.leased(id.clone());
            guard.held = Some((scope.clone(), id));
        }
        let done = self.dispatch(&job, source, destination).await;
        guard.release().await;
        done
    }
}
