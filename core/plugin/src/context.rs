use std::{
    any::Any,
    collections::BTreeMap,
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use core_types::{Error, Result, ResultExt};
use serde::de::DeserializeOwned;
use toml::Table;

use crate::{PluginSet, config};

/// Where clients and shims reach the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Path of the gRPC socket.
    pub grpc: String,
    /// Path of the ttrpc socket.
    pub ttrpc: String,
}

/// What a plugin is given when it starts.
pub struct InitContext {
    pub(crate) root: PathBuf,
    pub(crate) state: PathBuf,
    pub(crate) addresses: Addresses,
    pub(crate) config: Table,
    pub(crate) timeouts: Arc<BTreeMap<String, Duration>>,
    pub(crate) plugins: Arc<PluginSet>,
}

impl InitContext {
    /// Its directory for what survives a reboot, `<root>/<type>.<id>`. Not made yet.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its directory for what does not, `<state>/<type>.<id>`. Not made yet.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Makes its root directory, for root only.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create_root(&self) -> Result<&Path> {
        create(&self.root)
    }

    /// Makes its state directory, for root only.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create_state(&self) -> Result<&Path> {
        create(&self.state)
    }

    /// Where the daemon is reached.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Its configuration: the file's section over the defaults of the registration.
    ///
    /// # Errors
    /// InvalidArgument that names the key when the section has another shape.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T> {
        config::read(self.config.clone())
    }

    /// A duration of the configuration's `timeouts`, `io.containerd.timeout.shim.load`.
    pub fn timeout(&self, name: &str) -> Option<Duration> {
        self.timeouts.get(name).copied()
    }

    /// The instance of one plugin.
    ///
    /// # Errors
    /// NotFound when there is none, its own error when it failed, Internal when it is no `T`.
    pub fn get<T: Any + Clone>(&self, kind: &str, id: &str) -> Result<T> {
        self.plugins.get(kind, id)
    }

    /// The instance of the only plugin of a type.
    ///
    /// # Errors
    /// NotFound when none started, FailedPrecondition when several did, Internal when it is no `T`.
    pub fn single<T: Any + Clone>(&self, kind: &str) -> Result<T> {
        let mut all = self.all::<T>(kind)?;
        match (all.pop(), all.len()) {
            (Some((_, only)), 0) => Ok(only),
            (None, _) => Err(Error::not_found(format!("no plugin of type {kind} started"))),
            (Some(_), _) => {
                Err(Error::failed_precondition(format!("several plugins of type {kind} started; disable all but one")))
            }
        }
    }

    /// The instances of a type that started, with their ids, in the order of starting.
    ///
    /// # Errors
    /// Internal when one is no `T`.
    pub fn all<T: Any + Clone>(&self, kind: &str) -> Result<Vec<(String, T)>> {
        self.plugins.all(kind)
    }

    /// All plugins, also those that start later: for introspection.
    pub fn plugins(&self) -> Arc<PluginSet> {
        Arc::clone(&self.plugins)
    }
}

fn create(path: &Path) -> Result<&Path> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .doing(format_args!("make directory {}", path.display()))?;
    Ok(path)
}
