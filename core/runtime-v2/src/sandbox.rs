//! The shims of sandboxes, from their bundles to their sockets. What they are asked is their controllers' business;
//! tasks that belong to a sandbox find its shim here.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use core_types::{Error, Namespace, Result, ResultExt, identifiers};
use tokio::task::AbortHandle;

use crate::{
    Any, Endpoint, ExitStatus, TaskManager, Timeouts,
    binary::Target,
    bundle::{Bundle, Layout},
    entry::{Key, lock},
    load, log,
    manager::{Inner, blocking},
    task::within,
};

/// What the shim of a sandbox is started with.
#[derive(Clone, Debug, Default)]
pub struct SandboxOptions {
    /// Name of the runtime, or absolute path of a shim.
    pub runtime: String,
    /// Options of the runtime.
    pub options: Option<Any>,
    /// The specification, written to the bundle's `config.json`.
    pub spec: Option<Any>,
}

/// Starts and removes the shims of sandboxes. Their bundles are apart from those of tasks.
#[derive(Clone)]
pub struct SandboxShims {
    inner: Arc<Inner>,
    layout: Layout,
}

/// The shim of one sandbox.
pub struct SandboxShim {
    key: Key,
    bundle: Bundle,
    binary: PathBuf,
    endpoint: Option<Endpoint>,
    log: Option<AbortHandle>,
}

impl TaskManager {
    /// The shims of sandboxes whose bundles are in `state` (and, for what survives a reboot, in `root`): directories of
    /// the controller that is there already.
    pub fn sandbox_shims(&self, root: PathBuf, state: PathBuf) -> SandboxShims {
        SandboxShims { inner: Arc::clone(&self.0), layout: Layout { root, state } }
    }
}

impl Inner {
    /// The shim of a sandbox.
    pub(crate) fn sandbox(&self, namespace: &Namespace, id: &str) -> Option<Endpoint> {
        lock(&self.sandboxes).get(&Key { namespace: namespace.clone(), id: id.to_owned() }).cloned()
    }
}

impl SandboxShims {
    /// How long things may take.
    pub fn timeouts(&self) -> Timeouts {
        self.inner.config.timeouts
    }

    /// Starts a shim; when it fails nothing is left. The caller sees to it that an id is started once.
    ///
    /// # Errors
    /// InvalidArgument for a bad id, NotFound for a runtime that is not installed, what the shim's binary said.
    pub async fn start(&self, namespace: &Namespace, id: &str, options: SandboxOptions) -> Result<SandboxShim> {
        identifiers::validate(id).doing("invalid sandbox id")?;
        let binary = self.inner.resolver.resolve(&options.runtime)?;
        let key = Key { namespace: namespace.clone(), id: id.to_owned() };
        let bundle = self.bundle(&key, options.spec, binary.clone()).await?;
        let mut shim = SandboxShim::new(key, bundle, binary);
        let limit = self.inner.config.timeouts.start;
        let started = self.inner.runner.start(&shim.target(), options.options.as_ref(), limit).await;
        let stored = match started {
            Ok(endpoint) => {
                shim.endpoint = Some(endpoint.clone());
                let path = shim.bundle.path.clone();
                blocking(move || endpoint.store(&path)).await.doing("keep the shim's address")
            }
            Err(error) => Err(error.context(format_args!("failed to start shim for runtime {:?}", options.runtime))),
        };
        if let Err(error) = stored {
            self.kill(&shim).await;
            self.clean(&shim).await;
            return Err(error);
        }
        self.register(&shim);
        Ok(shim)
    }

    async fn bundle(&self, key: &Key, spec: Option<Any>, binary: PathBuf) -> Result<Bundle> {
        let (layout, key) = (self.layout.clone(), key.clone());
        blocking(move || {
            let bundle = match Bundle::create(&layout, &key.namespace, &key.id, spec.as_ref()) {
                // Nobody knows of it: this is what a failed removal left.
                Err(error) if error.is_already_exists() => {
                    layout.bundle(&key.namespace, &key.id).delete()?;
                    Bundle::create(&layout, &key.namespace, &key.id, spec.as_ref())
                }
                made => made,
            }?;
            // Before the shim starts: should the daemon die in between, the next one knows how to clean up.
            bundle.store_binary(&binary).inspect_err(|_| drop(bundle.delete()))?;
            Ok(bundle)
        })
        .await
    }

    /// The shims that a daemon before this one left, in whatever state; to be called once, before requests are served.
    ///
    /// # Errors
    /// When the state directory cannot be read.
    pub async fn found(&self) -> Result<Vec<SandboxShim>> {
        let layout = self.layout.clone();
        let found = blocking(move || {
            let found = load::scan(&layout)?;
            load::remove_orphans(&layout.root, &found);
            let endpoint = |bundle: &Bundle| Endpoint::load(&bundle.path).ok();
            Ok(found.into_iter().map(|found| (endpoint(&found.bundle), found)).collect::<Vec<_>>())
        })
        .await?;
        let shims = found.into_iter().map(|(endpoint, found)| {
            let named = found.binary.as_deref().unwrap_or(load::OLD_RUNTIME);
            let binary = self.inner.resolver.resolve(named).unwrap_or_else(|_| PathBuf::from(named));
            let mut shim = SandboxShim::new(found.key, found.bundle, binary);
            shim.endpoint = endpoint;
            self.register(&shim);
            shim
        });
        Ok(shims.collect())
    }

    fn register(&self, shim: &SandboxShim) {
        if let Some(endpoint) = &shim.endpoint {
            lock(&self.inner.sandboxes).insert(shim.key.clone(), endpoint.clone());
        }
    }

    /// Kills a shim that was asked to end and does not. One that does not tell its pid is asked by its task service.
    pub async fn kill(&self, shim: &SandboxShim) {
        let Some(endpoint) = &shim.endpoint else { return };
        let (timeouts, id) = (&self.inner.config.timeouts, &shim.key.id);
        let Ok(client) = self.inner.connect(&shim.key.namespace, endpoint, timeouts.state).await else { return };
        let info = within(timeouts.state, "connect", client.connect(id)).await;
        let pid = info.ok().and_then(|info| i32::try_from(info.shim_pid).ok()).filter(|pid| *pid > 0);
        if pid.is_none() {
            let asked = within(timeouts.shutdown, "shutdown", client.shutdown(id, true)).await;
            if asked.is_ok() && tokio::time::timeout(timeouts.shutdown, client.closed()).await.is_ok() {
                return;
            }
            tracing::warn!(id, namespace = %shim.key.namespace, "shim of a sandbox may be left behind");
        }
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    /// Lets the binary clean up after a shim that died, then removes the bundle. Answers how it ended if that is known.
    pub async fn clean(&self, shim: &SandboxShim) -> Option<ExitStatus> {
        let answer = {
            let _permit = self.inner.cleanups.acquire().await;
            self.inner.runner.delete(&shim.target(), self.inner.config.timeouts.cleanup).await
        };
        if let Err(error) = &answer {
            tracing::debug!(id = shim.key.id, namespace = %shim.key.namespace, %error, "nothing cleaned after a sandbox's shim");
        }
        self.remove(shim).await;
        answer.ok().filter(|exit| exit.exited_at.is_some())
    }

    /// Removes the bundle of a shim that ended.
    pub async fn remove(&self, shim: &SandboxShim) {
        lock(&self.inner.sandboxes).remove(&shim.key);
        let bundle = shim.bundle.clone();
        if let Err(error) = blocking(move || bundle.delete()).await {
            tracing::error!(id = shim.key.id, namespace = %shim.key.namespace, %error, "bundle not removed");
        }
    }
}

impl fmt::Debug for SandboxShims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxShims").field("layout", &self.layout).finish_non_exhaustive()
    }
}

impl SandboxShim {
    fn new(key: Key, bundle: Bundle, binary: PathBuf) -> Self {
        let log = log::follow(&bundle.path, &key.id)
            .inspect_err(|error| tracing::debug!(id = key.id, %error, "the shim's log is not followed"));
        Self { key, bundle, binary, endpoint: None, log: log.ok() }
    }

    fn target(&self) -> Target<'_> {
        Target { binary: &self.binary, namespace: &self.key.namespace, id: &self.key.id, bundle: &self.bundle.path }
    }

    /// Namespace of the sandbox.
    pub fn namespace(&self) -> &Namespace {
        &self.key.namespace
    }

    /// Id of the sandbox.
    pub fn id(&self) -> &str {
        &self.key.id
    }

    /// Path of its bundle.
    pub fn bundle(&self) -> &Path {
        &self.bundle.path
    }

    /// How it is reached.
    ///
    /// # Errors
    /// NotFound when it never said.
    pub fn endpoint(&self) -> Result<&Endpoint> {
        let none = || Error::not_found(format!("the shim of sandbox {} never answered", self.key.id));
        self.endpoint.as_ref().ok_or_else(none)
    }
}

impl fmt::Debug for SandboxShim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxShim").field("bundle", &self.bundle.path).field("endpoint", &self.endpoint).finish()
    }
}

impl Drop for SandboxShim {
    fn drop(&mut self) {
        if let Some(log) = self.log.take() {
            log.abort();
        }
    }
}
