use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use core_types::{Error, Result};
use toml::Table;

use crate::{
    Addresses, GraphError, InitContext, InitError, InitResult, Instance, PluginSet, Registration, Requirement, graph,
};

/// How to start the plugins.
#[derive(Clone, Debug, Default)]
pub struct StartOptions {
    /// Directory above the plugins' root directories.
    pub root: PathBuf,
    /// Directory above the plugins' state directories.
    pub state: PathBuf,
    /// Where the daemon is reached.
    pub addresses: Addresses,
    /// Sections of the configuration by plugin (`io.containerd.gc.v1.scheduler`).
    pub config: BTreeMap<String, Table>,
    /// Durations by name.
    pub timeouts: Arc<BTreeMap<String, Duration>>,
    /// Plugins not to start.
    pub disabled: Vec<String>,
    /// Plugins without which the daemon does not start.
    pub required: Vec<String>,
}

/// Why the daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The plugins cannot be ordered.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A required plugin did not start.
    #[error("load required plugin {uri}: {message}")]
    Required {
        /// Which.
        uri: String,
        /// Why.
        message: String,
    },
    /// Required plugins are not there, or disabled.
    #[error("required plugins are not registered, or disabled: {}", .0.join(", "))]
    Missing(Vec<String>),
}

/// Registrations, and starting them.
#[derive(Debug, Default)]
pub struct Registry {
    registrations: Vec<Registration>,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a plugin.
    ///
    /// # Errors
    /// AlreadyExists when there is one of that type and id; InvalidArgument for an empty type or id.
    pub fn register(&mut self, registration: Registration) -> Result<()> {
        if registration.kind.is_empty() || registration.id.is_empty() {
            return Err(Error::invalid_argument("a plugin needs a type and an id"));
        }
        let uri = registration.uri();
        if self.registrations.iter().any(|other| other.uri() == uri) {
            return Err(Error::already_exists(format!("plugin {uri} is registered already")));
        }
        self.registrations.push(registration);
        Ok(())
    }

    /// The registrations, in the order they were added.
    pub fn registrations(&self) -> &[Registration] {
        &self.registrations
    }

    /// The registrations in the order they start, without `disabled` ones.
    ///
    /// # Errors
    /// [`GraphError`] when plugins require each other.
    pub fn ordered(mut self, disabled: &[String]) -> Result<Vec<Registration>, GraphError> {
        self.registrations.retain(|registration| !disabled.contains(&registration.uri()));
        let order = graph::order(&self.registrations)?;
        let mut slots: Vec<Option<Registration>> = self.registrations.into_iter().map(Some).collect();
        Ok(order.into_iter().filter_map(|at| slots[at].take()).collect())
    }

    /// Starts the plugins. One that fails is recorded and the others go on.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(self, options: StartOptions) -> Result<Arc<PluginSet>, StartError> {
        let mut required: BTreeSet<String> = options.required.iter().cloned().collect();
        let ordered = self.ordered(&options.disabled)?;
        let set = Arc::new(PluginSet::default());
        for registration in &ordered {
            let uri = registration.uri();
            let result = start_one(registration, &set, &options).await;
            report(registration, &result);
            if required.remove(&uri)
                && let Err(error) = &result
            {
                set.close().await;
                return Err(StartError::Required { uri, message: error.to_string() });
            }
            set.record(registration, result);
        }
        if !required.is_empty() {
            set.close().await;
            return Err(StartError::Missing(required.into_iter().collect()));
        }
        Ok(set)
    }
}

async fn start_one(registration: &Registration, set: &Arc<PluginSet>, options: &StartOptions) -> InitResult<Instance> {
    let uri = registration.uri();
    for requirement in &registration.requires {
        check(requirement, set)?;
    }
    let section = options.config.get(&uri);
    let config = match &registration.section {
        Ok(Some(shape)) => {
            let whole = shape.with(section);
            let unknown = (shape.unknown)(whole.clone())
                .map_err(|error| error.context(format_args!("configuration [plugins.'{uri}']")))?;
            for key in unknown {
                tracing::warn!(plugin = %uri, %key, "Ignoring unknown key in TOML for plugin");
            }
            whole
        }
        Ok(None) => section.cloned().unwrap_or_default(),
        Err(error) => return Err(Error::new(error.kind(), error.message()).into()),
    };
    let context = InitContext {
        root: options.root.join(&uri),
        state: options.state.join(&uri),
        addresses: options.addresses.clone(),
        config,
        timeouts: Arc::clone(&options.timeouts),
        plugins: Arc::clone(set),
    };
    (registration.init)(context).await
}

/// Whether what a plugin requires has started; the answer names it.
fn check(requirement: &Requirement, set: &PluginSet) -> Result<()> {
    if requirement.optional {
        return Ok(());
    }
    let infos = set.infos();
    let mut failed = None;
    for info in &infos {
        let meant = info.kind == requirement.kind && requirement.id.as_ref().is_none_or(|id| *id == info.id);
        match &info.error {
            _ if !meant => {}
            None => return Ok(()),
            Some((_, message)) => failed = Some(format!("{} did not start: {message}", info.uri())),
        }
    }
    let why = failed.unwrap_or_else(|| "not registered, or disabled".to_owned());
    Err(Error::failed_precondition(format!("requires {requirement}: {why}")))
}

fn report(registration: &Registration, result: &InitResult<Instance>) {
    let (id, kind) = (registration.uri(), registration.kind());
    match result {
        Ok(_) => tracing::info!(id, r#type = kind, "loading plugin"),
        Err(InitError::Skip(why)) => {
            tracing::info!(id, r#type = kind, error = %why, "skip loading plugin")
        }
        Err(error) => tracing::warn!(id, r#type = kind, %error, "failed to load plugin"),
    }
}
