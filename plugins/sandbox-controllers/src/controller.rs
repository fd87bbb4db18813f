use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use core_events::{Any, Publisher};
use core_runtime_v2::{SandboxOptions, SandboxShim, SandboxShims};
use core_sandbox::{Controller, CreateOptions, Instance, Sandbox, SandboxExit, SandboxStatus};
use core_types::{Error, ErrorKind, Namespace, Platform, Result, ResultExt};

use crate::{
    entry::{Entry, Link},
    events,
    remote::Remote,
    supervise,
};

/// What a stop may take beyond the grace: killing, and unmounting after it.
const KILL: Duration = Duration::from_secs(30);

/// The controller `shim`: each sandbox is a shim that serves the sandbox API. Shims outlive the daemon and are found
/// again by their bundles; one that dies takes its sandbox with it.
pub struct ShimController {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shims: SandboxShims,
    pub(crate) events: Arc<dyn Publisher>,
    table: Mutex<Table>,
}

type Key = (Namespace, String);

/// The sandboxes, and the ids that are being created.
#[derive(Default)]
struct Table {
    sandboxes: BTreeMap<Key, Arc<Entry>>,
    busy: BTreeSet<Key>,
}

impl ShimController {
    /// A controller without sandboxes; [`load`](Self::load) finds those of a daemon before.
    pub fn new(shims: SandboxShims, events: Arc<dyn Publisher>) -> Self {
        Self { inner: Arc::new(Inner { shims, events, table: Mutex::default() }) }
    }

    /// Finds the sandboxes of a daemon before this one; to be called once, before requests are served. Answers their
    /// number. They are connected in the background.
    ///
    /// # Errors
    /// When the state directory cannot be read.
    pub async fn load(&self) -> Result<usize> {
        let shims = self.inner.shims.found().await?;
        let entries: Vec<_> = shims.into_iter().map(|shim| Arc::new(Entry::new(shim))).collect();
        for entry in &entries {
            entry.load();
            self.inner.insert(entry);
            supervise::spawn(&self.inner, entry, true);
        }
        Ok(entries.len())
    }
}

impl Drop for ShimController {
    fn drop(&mut self) {
        // Shims outlive the daemon; only what watches them ends.
        self.inner.lock().sandboxes.values().for_each(|entry| entry.release());
    }
}

impl fmt::Debug for ShimController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShimController").field("shims", &self.inner.shims).finish_non_exhaustive()
    }
}

fn key(shim: &SandboxShim) -> Key {
    (shim.namespace().clone(), shim.id().to_owned())
}

/// What goes on when the caller gives up.
async fn finish<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    tokio::spawn(work).await.unwrap_or_else(|error| Err(Error::internal(format!("the request ended early: {error}"))))
}

fn ignore_missing(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unavailable) => Ok(()),
        outcome => outcome,
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, entry: &Arc<Entry>) {
        self.lock().sandboxes.insert(key(&entry.shim), Arc::clone(entry));
    }

    fn get(&self, namespace: &Namespace, id: &str) -> Result<Arc<Entry>> {
        let found = self.lock().sandboxes.get(&(namespace.clone(), id.to_owned())).cloned();
        found.ok_or_else(|| Error::not_found(format!("sandbox {id} not found")))
    }

    /// Takes a sandbox out whose bundle is removed. The caller holds `entry.changing`.
    pub(crate) fn forget(&self, entry: &Entry) {
        self.lock().sandboxes.remove(&key(&entry.shim));
        entry.set_link(Link::Gone);
        entry.release();
    }

    /// Asks the shim of a sandbox; when it is lost meanwhile, NotFound.
    async fn ask<T, F>(&self, entry: &Entry, request: impl Fn(Arc<Remote>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let load = self.shims.timeouts().load;
        let asked = request(entry.remote(load).await?).await;
        match asked {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                request(entry.remote(load + self.shims.timeouts().cleanup).await?).await
            }
            asked => asked,
        }
    }

    async fn create(self: &Arc<Self>, namespace: Namespace, sandbox: Sandbox, options: CreateOptions) -> Result<()> {
        let runtime =
            SandboxOptions { runtime: sandbox.runtime.name, options: sandbox.runtime.options, spec: sandbox.spec };
        let id = sandbox.id;
        let shim = self.shims.start(&namespace, &id, runtime).await?;
        let remote = match self.prepare(&shim, options).await {
            Ok(remote) => remote,
            Err((error, remote)) => {
                self.end_shim(&shim, remote.as_ref()).await;
                return Err(error.context(format_args!("failed to create sandbox {id}")));
            }
        };
        let entry = Arc::new(Entry::new(shim));
        entry.set_link(Link::Up(Arc::new(remote)));
        self.insert(&entry);
        events::publish_create(&*self.events, &namespace, &id);
        supervise::spawn(self, &entry, false);
        Ok(())
    }

    async fn prepare(&self, shim: &SandboxShim, options: CreateOptions) -> Result<Remote, (Error, Option<Remote>)> {
        let timeouts = self.shims.timeouts();
        let endpoint = shim.endpoint().map_err(|error| (error, None))?;
        let connecting = Remote::connect(shim.namespace(), shim.id(), endpoint, timeouts.load);
        let remote = connecting.await.map_err(|error| (error, None))?;
        let bundle = shim.bundle().to_string_lossy().into_owned();
        match remote.create(bundle, options, timeouts.long).await {
            Ok(()) => Ok(remote),
            Err(error) => Err((error, Some(remote))),
        }
    }

    async fn start(&self, entry: &Entry) -> Result<Instance> {
        let id = entry.shim.id();
        let _changing = entry.changing.lock().await;
        if entry.state.borrow().started {
            return Err(Error::failed_precondition(format!("sandbox {id} was started before")));
        }
        let timeouts = self.shims.timeouts();
        let remote = entry.remote(timeouts.load).await?;
        match remote.start(timeouts.long).await {
            Ok(mut instance) => {
                (instance.address, instance.version) = address(&entry.shim);
                events::publish_start(&*self.events, entry.shim.namespace(), id);
                entry.state.send_modify(|state| state.started = true);
                Ok(instance)
            }
            Err(error) => {
                self.end_shim(&entry.shim, Some(&remote)).await;
                self.forget(entry);
                Err(error.context(format_args!("failed to start sandbox {id}")))
            }
        }
    }

    async fn stop(&self, entry: &Entry, grace: Duration) -> Result<()> {
        let remote = match entry.remote(self.shims.timeouts().load).await {
            Err(error) if error.is_not_found() => return Ok(()),
            remote => remote?,
        };
        ignore_missing(remote.stop(grace, grace.saturating_add(KILL)).await)
            .doing(format_args!("failed to stop sandbox {}", entry.shim.id()))?;
        if !entry.state.borrow().started {
            entry.end(&*self.events, supervise::at(SandboxExit::default())).await;
        }
        Ok(())
    }

    async fn shutdown(&self, entry: &Entry) {
        let _changing = entry.changing.lock().await;
        if entry.is_gone() {
            return;
        }
        let remote = entry.remote(self.shims.timeouts().load).await.ok();
        self.end_shim(&entry.shim, remote.as_deref()).await;
        entry.end(&*self.events, supervise::at(SandboxExit::default())).await;
        self.forget(entry);
    }

    /// Ends a shim, by force when it does not do so itself, and removes its bundle.
    pub(crate) async fn end_shim(&self, shim: &SandboxShim, remote: Option<&Remote>) {
        let timeouts = self.shims.timeouts();
        if let Some(remote) = remote {
            let asked = ignore_missing(remote.shutdown(timeouts.short).await);
            let left = match asked {
                Ok(()) => tokio::time::timeout(timeouts.shutdown, remote.closed()).await.is_ok(),
                Err(error) => {
                    tracing::warn!(id = shim.id(), namespace = %shim.namespace(), %error, "the shim of a sandbox does not end");
                    false
                }
            };
            if left {
                return self.shims.remove(shim).await;
            }
        }
        self.shims.kill(shim).await;
        self.shims.clean(shim).await;
    }
}

/// Where the task service of a sandbox is.
fn address(shim: &SandboxShim) -> (String, u32) {
    match shim.endpoint() {
        Ok(endpoint) => (format!("{}+{}", endpoint.protocol, endpoint.address), endpoint.version),
        Err(_) => (String::new(), 0),
    }
}

/// An id that nobody else may create a sandbox of, until dropped.
struct Reserved {
    inner: Arc<Inner>,
    key: Key,
}

impl Reserved {
    fn take(inner: &Arc<Inner>, key: Key) -> Result<Self> {
        let mut table = inner.lock();
        if table.sandboxes.contains_key(&key) {
            return Err(Error::already_exists(format!("sandbox {} already exists", key.1)));
        }
        if !table.busy.insert(key.clone()) {
            return Err(Error::already_exists(format!("sandbox {} is being created", key.1)));
        }
        drop(table);
        Ok(Self { inner: Arc::clone(inner), key })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.inner.lock().busy.remove(&self.key);
    }
}

#[async_trait]
impl Controller for ShimController {
    async fn create(&self, namespace: &Namespace, sandbox: &Sandbox, options: CreateOptions) -> Result<()> {
        let reserved = Reserved::take(&self.inner, (namespace.clone(), sandbox.id.clone()))?;
        let (namespace, sandbox) = (namespace.clone(), sandbox.clone());
        finish(async move { reserved.inner.create(namespace, sandbox, options).await }).await
    }

    async fn start(&self, namespace: &Namespace, id: &str) -> Result<Instance> {
        let (inner, entry) = (Arc::clone(&self.inner), self.inner.get(namespace, id)?);
        finish(async move { inner.start(&entry).await }).await
    }

    async fn platform(&self, namespace: &Namespace, id: &str) -> Result<Platform> {
        let (entry, limit) = (self.inner.get(namespace, id)?, self.inner.shims.timeouts().short);
        self.inner.ask(&entry, |remote| async move { remote.platform(limit).await }).await
    }

    async fn stop(&self, namespace: &Namespace, id: &str, grace: Duration) -> Result<()> {
        match self.inner.get(namespace, id) {
            Err(error) if error.is_not_found() => Ok(()),
            entry => self.inner.stop(&*entry?, grace).await,
        }
    }

    async fn wait(&self, namespace: &Namespace, id: &str) -> Result<SandboxExit> {
        let entry = self.inner.get(namespace, id)?;
        let mut states = entry.state.subscribe();
        let state = states.wait_for(|state| state.exit.is_some() || matches!(state.link, Link::Gone)).await;
        state.ok().and_then(|state| state.exit).ok_or_else(|| entry.not_found())
    }

    async fn status(&self, namespace: &Namespace, id: &str, verbose: bool) -> Result<SandboxStatus> {
        let (entry, limit) = (self.inner.get(namespace, id)?, self.inner.shims.timeouts().short);
        let asked = self.inner.ask(&entry, |remote| async move { remote.status(verbose, limit).await }).await;
        let mut status = asked.doing(format_args!("failed to query the status of sandbox {id}"))?;
        (status.address, status.version) = address(&entry.shim);
        Ok(status)
    }

    async fn shutdown(&self, namespace: &Namespace, id: &str) -> Result<()> {
        let entry = match self.inner.get(namespace, id) {
            Err(error) if error.is_not_found() => return Ok(()),
            entry => entry?,
        };
        let inner = Arc::clone(&self.inner);
        finish(async move {
            inner.shutdown(&entry).await;
            Ok(())
        })
        .await
    }

    async fn metrics(&self, namespace: &Namespace, id: &str) -> Result<Any> {
        let (entry, limit) = (self.inner.get(namespace, id)?, self.inner.shims.timeouts().short);
        let metrics = self.inner.ask(&entry, |remote| async move { remote.metrics(limit).await }).await?;
        Ok(metrics.unwrap_or_else(|| Any { type_url: String::new(), value: Vec::new().into() }))
    }

    /// The sandbox API has no way to tell a shim.
    async fn update(&self, namespace: &Namespace, sandbox: &Sandbox, _fields: &[String]) -> Result<()> {
        self.inner.get(namespace, &sandbox.id).map(drop)
    }
}

#[cfg(test)]
mod tests;
