//! What runs, in memory: sandboxes and containers by id or a unique prefix of it.

/// A container and its state.
mod container;
/// What is written beside the records.
mod persist;
/// A sandbox and its state.
mod sandbox;
/// State of a container, on disk and in memory.
mod status;

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, PoisonError, RwLock},
};

use core_types::{Error, Result};

pub(crate) use container::{Container, ContainerFacts};
pub(crate) use persist::{ContainerRecord, SandboxRecord, records};
pub(crate) use sandbox::namespaces;
pub(crate) use sandbox::{Sandbox, SandboxFacts, SandboxState};
pub(crate) use status::{Phase, Status, nanoseconds, now};

/// Something that has an id.
pub(crate) trait Identified {
    /// What it is, for messages.
    const KIND: &'static str;
}

/// Everything of one kind, by id.
pub(crate) struct Table<T>(RwLock<BTreeMap<String, Arc<T>>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T: Identified> Table<T> {
    /// Adds one.
    pub(crate) fn insert(&self, id: &str, item: Arc<T>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), item);
    }

    /// Takes one out.
    pub(crate) fn remove(&self, id: &str) -> Option<Arc<T>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(id)
    }

    /// The one with an id, or the only one whose id starts so.
    ///
    /// # Errors
    /// NotFound; InvalidArgument for an empty id or a prefix of several.
    pub(crate) fn get(&self, id: &str) -> Result<Arc<T>> {
        if id.is_empty() {
            return Err(Error::invalid_argument(format!("{} id must not be empty", T::KIND)));
        }
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(item) = table.get(id) {
            return Ok(Arc::clone(item));
        }
        let mut matching = table
            .range::<str, _>((Bound::Included(id), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(id))
            .map(|(_, item)| item);
        match (matching.next(), matching.next()) {
            (Some(item), None) => Ok(Arc::clone(item)),
            (None, _) => Err(Error::not_found(format!("{} {id:?} is not there", T::KIND))),
            (Some(_), Some(_)) => {
                Err(Error::invalid_argument(format!("{} id {id:?} is the start of several ids", T::KIND)))
            }
        }
    }

    /// The one with an id, None when there is none.
    ///
    /// # Errors
    /// InvalidArgument for an empty id or a prefix of several.
    pub(crate) fn find(&self, id: &str) -> Result<Option<Arc<T>>> {
        match self.get(id) {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(Some),
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// All, by id.
    pub(crate) fn list(&self) -> Vec<Arc<T>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing(&'static str);

    impl Identified for Thing {
        const KIND: &'static str = "thing";
    }

    #[test]
    fn ids_are_found_by_a_unique_prefix() {
        let table = Table::default();
        for id in ["abc1", "abc2", "abd", "ab"] {
            table.insert(id, Arc::new(Thing(id)));
        }
        let found = |id: &str| table.get(id).map(|thing| thing.0).map_err(|error| error.kind());
        assert_eq!(found("abc1"), Ok("abc1"));
        assert_eq!(found("abd"), Ok("abd"));
        assert_eq!(found("ab"), Ok("ab"), "an id that is the prefix of others is found");
        assert_eq!(found("abc"), Err(core_types::ErrorKind::InvalidArgument));
        assert_eq!(found("x"), Err(core_types::ErrorKind::NotFound));
        assert_eq!(found(""), Err(core_types::ErrorKind::InvalidArgument));
        assert!(table.find("x").unwrap().is_none());
        assert_eq!(table.list().len(), 4);
    }
}
