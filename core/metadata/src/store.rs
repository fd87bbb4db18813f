//! Reading and writing records within a transaction.

use std::{path::Path, sync::RwLock};

use core_types::{Error, Result};
use heed::{RoTxn, RwTxn};

use crate::{
    env::{self, Environment, Table},
    error::from_heed,
    key::{self, Key},
    record::Record,
};

/// The layout of keys and records as a whole; a database of a newer one is refused.
const SCHEMA: u64 = 1;

/// The open database, below namespaces.
pub(crate) struct Store {
    pub(crate) environment: Environment,
    /// Shared by whoever has a transaction open, alone for whoever makes the map larger.
    pub(crate) gate: RwLock<()>,
}

/// A consistent view of the records.
pub(crate) struct View<'a> {
    transaction: &'a RoTxn<'a>,
    table: Table,
}

/// A transaction that writes; it is one of many that are committed together.
pub(crate) struct Tx<'a, 'p> {
    transaction: &'a mut RwTxn<'p>,
    table: Table,
    /// Keys that were written: news for a collection that runs.
    pub(crate) written: Vec<Key>,
    /// Whether anything changed.
    pub(crate) changed: bool,
    /// Whether a record did not fit into the map.
    pub(crate) full: bool,
}

impl Store {
    /// Opens the database, and refuses one of a newer schema.
    pub(crate) fn open(path: &Path, map_size: Option<usize>) -> Result<Self> {
        let store = Self { environment: env::open(path, map_size)?, gate: RwLock::new(()) };
        let schema: Option<u64> = store.read(|view| view.get(&key::meta("schema")))?;
        match schema {
            None => {
                let mut transaction = store.environment.env.write_txn().map_err(from_heed)?;
                Tx::new(&mut transaction, store.environment.table).put(&key::meta("schema"), &SCHEMA)?;
                transaction.commit().map_err(from_heed)?;
            }
            Some(SCHEMA) => {}
            Some(other) => {
                return Err(Error::failed_precondition(format!(
                    "metadata database {} has schema {other}, this version knows {SCHEMA}: start the newer version again",
                    path.display()
                )));
            }
        }
        store.environment.extend()?;
        Ok(store)
    }

    /// Reads. Never waits for a writer.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&View<'_>) -> Result<T>) -> Result<T> {
        let _open = self.gate.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let transaction = self.environment.env.read_txn().map_err(from_heed)?;
        read(&View { transaction: &transaction, table: self.environment.table })
    }
}

impl View<'_> {
    /// A record, none when it is not there.
    pub(crate) fn get<R: Record>(&self, key: &[u8]) -> Result<Option<R>> {
        let found = self.table.get(self.transaction, key).map_err(from_heed)?;
        found.map(R::from_bytes).transpose()
    }

    /// Whether there is a record.
    pub(crate) fn has(&self, key: &[u8]) -> Result<bool> {
        Ok(self.table.get(self.transaction, key).map_err(from_heed)?.is_some())
    }

    /// The records below a prefix, in order, with their keys.
    pub(crate) fn scan<R: Record>(&self, prefix: &[u8], mut each: impl FnMut(&[u8], R) -> Result<()>) -> Result<()> {
        for item in self.table.prefix_iter(self.transaction, prefix).map_err(from_heed)? {
            let (key, value) = item.map_err(from_heed)?;
            each(key, R::from_bytes(value)?)?;
        }
        Ok(())
    }

    /// The keys below a prefix, in order.
    pub(crate) fn keys(&self, prefix: &[u8], mut each: impl FnMut(&[u8])) -> Result<()> {
        for item in self.table.prefix_iter(self.transaction, prefix).map_err(from_heed)? {
            each(item.map_err(from_heed)?.0);
        }
        Ok(())
    }

    /// Whether anything lies below a prefix.
    pub(crate) fn any(&self, prefix: &[u8]) -> Result<bool> {
        let first = self.table.prefix_iter(self.transaction, prefix).map_err(from_heed)?.next();
        Ok(first.transpose().map_err(from_heed)?.is_some())
    }
}

impl<'a, 'p> Tx<'a, 'p> {
    pub(crate) fn new(transaction: &'a mut RwTxn<'p>, table: Table) -> Self {
        Self { transaction, table, written: Vec::new(), changed: false, full: false }
    }

    /// What the transaction sees, its own writes among it.
    pub(crate) fn view(&self) -> View<'_> {
        View { transaction: self.transaction, table: self.table }
    }

    /// A record, none when it is not there.
    pub(crate) fn get<R: Record>(&self, key: &[u8]) -> Result<Option<R>> {
        self.view().get(key)
    }

    /// Whether there is a record.
    pub(crate) fn has(&self, key: &[u8]) -> Result<bool> {
        self.view().has(key)
    }

    fn noted<T>(&mut self, result: heed::Result<T>) -> Result<T> {
        if let Err(heed::Error::Mdb(heed::MdbError::MapFull)) = &result {
            self.full = true;
        }
        result.map_err(from_heed)
    }

    /// Writes a record.
    pub(crate) fn put<R: Record>(&mut self, key: &[u8], record: &R) -> Result<()> {
        self.changed = true;
        self.written.push(key.to_vec());
        let result = self.table.put(self.transaction, key, &record.to_bytes());
        self.noted(result)
    }

    /// Removes a record; false when it was not there.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<bool> {
        let result = self.table.delete(self.transaction, key);
        let found = self.noted(result)?;
        self.changed |= found;
        Ok(found)
    }

    /// Removes everything below a prefix.
    pub(crate) fn delete_below(&mut self, prefix: &[u8]) -> Result<()> {
        let mut keys = Vec::new();
        self.view().keys(prefix, |key| keys.push(key.to_vec()))?;
        keys.iter().try_for_each(|key| self.delete(key).map(drop))
    }

    /// Makes sure that a namespace has a record.
    pub(crate) fn ensure_namespace(&mut self, name: &str) -> Result<()> {
        let key = key::namespace(name);
        if self.has(&key)? {
            return Ok(());
        }
        self.put(&key, &crate::record::NamespaceRecord { name: name.to_owned(), ..Default::default() })
    }
}
