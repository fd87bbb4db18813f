use std::{
    any::Any,
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use core_types::{Error, ErrorKind, Platform, Result};

use crate::{InitError, Instance, Offer, Registration, instance::Hook};

/// What introspection shows of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginInfo {
    /// Its type.
    pub kind: String,
    /// Its id.
    pub id: String,
    /// Types it requires.
    pub requires: Vec<String>,
    /// Platforms it serves.
    pub platforms: Vec<Platform>,
    /// What it can do.
    pub capabilities: Vec<String>,
    /// What it tells others.
    pub exports: BTreeMap<String, String>,
    /// Why it did not start, when it did not.
    pub error: Option<(ErrorKind, String)>,
    /// Whether it had nothing to do: `error` says why, and is no fault.
    pub skipped: bool,
}

impl PluginInfo {
    /// Type and id in one.
    pub fn uri(&self) -> String {
        format!("{}.{}", self.kind, self.id)
    }
}

struct Entry {
    info: PluginInfo,
    value: Option<Arc<dyn Any + Send + Sync>>,
    serving: Option<Hook>,
    closing: Option<Hook>,
}

/// The plugins that were started, or tried, in that order.
#[derive(Default)]
pub struct PluginSet {
    entries: Mutex<Vec<Entry>>,
    offers: Mutex<Vec<Offer>>,
}

impl PluginSet {
    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of how a plugin started.
    pub(crate) fn record(&self, registration: &Registration, result: Result<Instance, InitError>) {
        let mut info = PluginInfo {
            kind: registration.kind.clone(),
            id: registration.id.clone(),
            requires: registration.requires.iter().map(|one| one.kind.clone()).collect(),
            platforms: Vec::new(),
            capabilities: Vec::new(),
            exports: BTreeMap::new(),
            error: None,
            skipped: false,
        };
        let mut entry = match result {
            Ok(instance) => {
                info.platforms = instance.platforms;
                info.capabilities = instance.capabilities;
                info.exports = instance.exports;
                self.offers.lock().unwrap_or_else(PoisonError::into_inner).extend(instance.offers);
                Entry { info, value: Some(instance.value), serving: instance.serving, closing: instance.closing }
            }
            Err(error) => {
                info.skipped = error.is_skip();
                let kind = match &error {
                    InitError::Skip(_) => ErrorKind::Unimplemented,
                    InitError::Failed(error) => error.kind(),
                };
                info.error = Some((kind, error.to_string()));
                Entry { info, value: None, serving: None, closing: None }
            }
        };
        entry.info.requires.dedup();
        self.lock().push(entry);
    }

    /// The instance of one plugin.
    ///
    /// # Errors
    /// NotFound when there is none, its own error when it failed, Internal when it is no `T`.
    pub fn get<T: Any + Clone>(&self, kind: &str, id: &str) -> Result<T> {
        let entries = self.lock();
        let entry = entries
            .iter()
            .find(|entry| entry.info.kind == kind && entry.info.id == id)
            .ok_or_else(|| Error::not_found(format!("no plugin {kind}.{id} (not registered, or disabled)")))?;
        if let Some((kind, message)) = &entry.info.error {
            return Err(Error::new(*kind, format!("plugin {} did not start: {message}", entry.info.uri())));
        }
        entry.downcast()
    }

    /// The instances of a type that started, with their ids, in the order of starting.
    ///
    /// # Errors
    /// Internal when one is no `T`.
    pub fn all<T: Any + Clone>(&self, kind: &str) -> Result<Vec<(String, T)>> {
        self.lock()
            .iter()
            .filter(|entry| entry.info.kind == kind && entry.value.is_some())
            .map(|entry| Ok((entry.info.id.clone(), entry.downcast()?)))
            .collect()
    }

    /// What is known of each plugin, in the order of starting.
    pub fn infos(&self) -> Vec<PluginInfo> {
        self.lock().iter().map(|entry| entry.info.clone()).collect()
    }

    /// The services offered by those that started; each is handed out once.
    pub fn take_offers(&self) -> Vec<Offer> {
        std::mem::take(&mut *self.offers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs what plugins left for when the sockets accept, in the order of starting.
    pub async fn serving(&self) {
        let hooks: Vec<Hook> = self.lock().iter_mut().filter_map(|entry| entry.serving.take()).collect();
        for hook in hooks {
            hook().await;
        }
    }

    /// Ends the plugins, the last one first.
    pub async fn close(&self) {
        let hooks: Vec<Hook> = self.lock().iter_mut().rev().filter_map(|entry| entry.closing.take()).collect();
        for hook in hooks {
            hook().await;
        }
    }
}

impl Entry {
    fn downcast<T: Any + Clone>(&self) -> Result<T> {
        self.value
            .as_ref()
            .and_then(|value| value.downcast_ref::<T>())
            .cloned()
            .ok_or_else(|| Error::internal(format!("plugin {} is no {}", self.info.uri(), std::any::type_name::<T>())))
    }
}
