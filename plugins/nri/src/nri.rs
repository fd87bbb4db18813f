/// The hooks.
mod hooks;
/// Plugins that connect.
mod listen;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use containerd_api_nri::v1alpha1::{
    Container, ContainerAdjustment, ContainerEviction, ContainerUpdate, Event, PodSandbox,
};
use core_plugin::{InitContext, Instance, Registration, types};
use core_types::Result;
use tokio::{sync::OwnedRwLockReadGuard, task::JoinSet};

use crate::{Config, launch, peer::Plugin};

/// What plugins see of the runtime and can ask of it. It is called while a hook waits, so it must not call hooks that
/// wait for plugins to answer other than through tasks of its own.
#[async_trait]
pub trait RuntimeCallbacks: Send + Sync + 'static {
    /// Everything there is, for a plugin that joins.
    ///
    /// # Errors
    /// The plugin is then not taken in.
    async fn pods_and_containers(&self) -> Result<(Vec<PodSandbox>, Vec<Container>)>;

    /// Updates containers without a hook; those that failed.
    ///
    /// # Errors
    /// When none could be tried.
    async fn update_containers(&self, updates: Vec<ContainerUpdate>) -> Result<Vec<ContainerUpdate>>;
}

/// What plugins want of a container that is made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adjusted {
    /// Changes of the container; see [`crate::apply`].
    pub adjustment: Option<ContainerAdjustment>,
    /// Updates of other containers.
    pub updates: Vec<ContainerUpdate>,
    /// Containers to be stopped.
    pub evictions: Vec<ContainerEviction>,
}

/// The handle of the runtime; clones share it. With its last clone the plugins are let go.
#[derive(Clone)]
pub struct Nri(Arc<Inner>);

impl std::fmt::Debug for Nri {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.plugins().iter().map(|plugin| plugin.full_name())).finish()
    }
}

/// Keeps plugins from joining while it is held; see [`Nri::block_sync`].
#[derive(Debug)]
pub struct SyncBlock(#[allow(dead_code, reason = "held for its drop")] OwnedRwLockReadGuard<()>);

struct Inner {
    config: Config,
    callbacks: Arc<dyn RuntimeCallbacks>,
    /// In the order of their indices.
    plugins: Mutex<Vec<Arc<Plugin>>>,
    /// One hook at a time: plugins see changes in one order.
    turn: tokio::sync::Mutex<()>,
    sync: Arc<tokio::sync::RwLock<()>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Inner {
    fn plugins(&self) -> MutexGuard<'_, Vec<Arc<Plugin>>> {
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a plugin in at its place, after it was told of everything.
    async fn admit(self: &Arc<Self>, plugin: Plugin) -> Result<()> {
        let name = plugin.full_name();
        let alone = self.sync.write().await;
        let (pods, containers) = self.callbacks.pods_and_containers().await?;
        let updates = plugin.synchronize(&pods, &containers).await?;
        let plugin = Arc::new(plugin);
        {
            let mut plugins = self.plugins();
            let place = plugins.partition_point(|have| have.index <= plugin.index);
            plugins.insert(place, plugin.clone());
        }
        let weak = Arc::downgrade(self);
        self.tasks().spawn(async move {
            plugin.gone().await;
            plugin.close();
            if let Some(inner) = weak.upgrade() {
                tracing::info!(plugin = plugin.full_name(), "NRI: plugin is gone");
                inner.plugins().retain(|have| !Arc::ptr_eq(have, &plugin));
            }
        });
        tracing::info!(plugin = name, "NRI: plugin is registered");
        // An update may itself have to wait for who blocks joining.
        drop(alone);
        if !updates.is_empty() {
            let failed = self.callbacks.update_containers(updates).await?;
            for update in failed {
                tracing::warn!(plugin = name, id = update.container_id, "NRI: update of a container failed");
            }
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for plugin in self.plugins().iter() {
            plugin.close();
        }
    }
}

impl Nri {
    /// Starts the plugins of the directory, all at once, and listens for others. A plugin that does not start is
    /// left out. With `disable` there are no plugins and every hook does nothing.
    ///
    /// # Errors
    /// What listing the plugins and making the socket fails with.
    pub async fn start(config: Config, callbacks: Arc<dyn RuntimeCallbacks>) -> Result<Self> {
        let inner = Arc::new(Inner {
            config,
            callbacks,
            plugins: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            sync: Arc::default(),
            tasks: Mutex::default(),
        });
        if inner.config.disable {
            return Ok(Self(inner));
        }
        let starts = launch::discover(&inner.config)?.into_iter().map(|candidate| {
            let (inner, name) = (inner.clone(), candidate.full_name());
            async move { (name, candidate.start(&inner.config, inner.callbacks.clone()).await) }
        });
        for (name, started) in futures::future::join_all(starts).await {
            let admitted = match started {
                Ok(plugin) => inner.admit(plugin).await,
                Err(error) => Err(error),
            };
            if let Err(error) = admitted {
                tracing::warn!(plugin = name, %error, "NRI: plugin is left out");
            }
        }
        if !inner.config.disable_connections {
            listen::listen(&inner)?;
        }
        Ok(Self(inner))
    }

    /// Whether anything looks at hooks; when not, they cost next to nothing.
    pub fn active(&self) -> bool {
        self.0.config.default_validator.enable && !self.0.config.disable || !self.0.plugins().is_empty()
    }

    /// Keeps plugins from joining while the guard is held: held from before a pod or container can be listed until
    /// its hook is done, every plugin learns of it exactly once.
    pub async fn block_sync(&self) -> SyncBlock {
        SyncBlock(self.0.sync.clone().read_owned().await)
    }

    /// Tells plugins that the runtime goes down, and lets them go.
    pub async fn stop(&self) {
        let plugins = std::mem::take(&mut *self.0.plugins());
        self.0.tasks().abort_all();
        futures::future::join_all(plugins.iter().map(|plugin| plugin.shutdown())).await;
    }

    /// The plugins, in order; those that are gone are dropped.
    fn plugins(&self) -> Vec<Arc<Plugin>> {
        let mut plugins = self.0.plugins();
        plugins.retain(|plugin| !plugin.is_closed());
        plugins.clone()
    }

    /// The plugins that want an event, in order.
    fn wanting(&self, event: Event) -> Vec<Arc<Plugin>> {
        self.plugins().into_iter().filter(|plugin| plugin.wants(event)).collect()
    }
}

/// What the plugin of the daemon is: the configuration, with which the CRI starts NRI once there is something to see.
#[derive(Clone, Debug)]
pub struct Factory {
    config: Config,
}

impl Factory {
    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Starts NRI; see [`Nri::start`].
    ///
    /// # Errors
    /// Those of [`Nri::start`].
    pub async fn start(&self, callbacks: Arc<dyn RuntimeCallbacks>) -> Result<Nri> {
        Nri::start(self.config.clone(), callbacks).await
    }
}

/// The plugin `io.containerd.nri.v1.nri`; its instance is a [`Factory`].
pub fn registration() -> Registration {
    let init = |context: InitContext| async move {
        let config: Config = context.config()?;
        Ok(Instance::new(Factory { config }))
    };
    Registration::new(types::NRI, "nri", init).config(&Config::default())
}
