use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use core_types::{Error, Result};

use crate::Controller;

/// The controllers that a daemon has, by the names that sandboxes give as their `sandboxer`. A handle: all clones are
/// the same.
#[derive(Clone, Default)]
pub struct Controllers(Arc<RwLock<BTreeMap<String, Arc<dyn Controller>>>>);

impl Controllers {
    /// Adds a controller.
    ///
    /// # Errors
    /// AlreadyExists when there is one of that name.
    pub fn add(&self, name: &str, controller: Arc<dyn Controller>) -> Result<()> {
        let mut controllers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if controllers.contains_key(name) {
            return Err(Error::already_exists(format!("sandbox controller {name:?}")));
        }
        controllers.insert(name.to_owned(), controller);
        Ok(())
    }

    /// The controller of a name.
    ///
    /// # Errors
    /// InvalidArgument for an empty name, NotFound that lists those that there are.
    pub fn get(&self, name: &str) -> Result<Arc<dyn Controller>> {
        if name.is_empty() {
            return Err(Error::invalid_argument("the name of the sandbox controller (sandboxer) cannot be empty"));
        }
        let controllers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        controllers.get(name).cloned().ok_or_else(|| {
            let names: Vec<_> = controllers.keys().map(String::as_str).collect();
            Error::not_found(format!("no sandbox controller {name:?}; there are: {}", names.join(", ")))
        })
    }

    /// The names, sorted.
    pub fn names(&self) -> Vec<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }
}

impl fmt::Debug for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Controllers").field(&self.names()).finish()
    }
}
