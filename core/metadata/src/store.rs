//! Reading and writing records within a transaction.

use std::{
    io,
    path::Path,
    sync::{RwLock, atomic::AtomicU64},
};

use core_types::{Error, ErrorKind, Result, ResultExt};
use heed::{RoTxn, RwTxn, WithoutTls};

use crate::{
    codec::{Decoder, Encoder},
    env::{self, Environment, Table},
    error::from_heed,
    journal::Journal,
    key::{self, Key},
    record::Record,
};

/// The layout of keys and records as a whole; a database of a newer one is refused.
const SCHEMA: u64 = 1;

/// Kinds of change in the journal; 0 is its end.
const PUT: u64 = 1;
const DELETE: u64 = 2;

/// The open database, below namespaces.
pub(crate) struct Store {
    pub(crate) environment: Environment,
    /// Shared by whoever has a transaction open, alone for whoever makes the map larger.
    pub(crate) gate: RwLock<()>,
    /// How often the writer waited for the disk.
    pub(crate) syncs: AtomicU64,
}

/// The journal, and the hold on the checkpoint that it begins with.
pub(crate) struct Log {
    pub(crate) journal: Journal,
    /// Keeps LMDB from overwriting pages of the checkpoint.
    held: Option<RoTxn<'static, WithoutTls>>,
}

impl Log {
    fn begin(environment: &Environment, journal: Journal) -> Result<Self> {
        let mut log = Self { journal, held: None };
        log.checkpoint(environment)?;
        Ok(log)
    }

    /// Makes all of LMDB's file durable, and begins the journal anew. No transaction may write meanwhile.
    pub(crate) fn checkpoint(&mut self, environment: &Environment) -> Result<()> {
        let roots = environment.synced_roots()?;
        let held = environment.env.clone().static_read_txn().map_err(from_heed)?;
        self.journal.begin(&roots).doing("begin the metadata journal")?;
        self.held = Some(held);
        Ok(())
    }

    /// Makes the map larger; the caller holds the gate alone.
    pub(crate) fn grow(&mut self, environment: &Environment) -> Result<usize> {
        self.checkpoint(environment)?;
        self.held = None;
        let size = environment.grow();
        // Nothing was written since, so this holds the same checkpoint.
        self.held = Some(environment.env.clone().static_read_txn().map_err(from_heed)?);
        size
    }
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
    /// The changes, for the journal.
    pub(crate) changes: Encoder,
    /// Whether a record did not fit into the map.
    pub(crate) full: bool,
}

impl Store {
    /// Opens the database after mending what a crash left, and refuses one of a newer schema.
    pub(crate) fn open(path: &Path, map_size: Option<usize>) -> Result<(Self, Log)> {
        env::make_directory(path)?;
        let (journal, recovery) = Journal::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => {
                Error::failed_precondition(format!("metadata database {} is open already", path.display()))
            }
            _ => Error::io(format_args!("open the journal in {}", path.display()), error),
        })?;
        if let Some(recovery) = &recovery {
            env::restore_roots(path, &recovery.roots)?;
        }
        let store = Self { environment: env::open(path, map_size)?, gate: RwLock::new(()), syncs: AtomicU64::new(0) };
        if let Some(recovery) = recovery {
            let changes = &recovery.changes;
            tracing::info!(commits = changes.len(), "the metadata database was not closed; its journal is applied");
            store.replay(changes)?;
        }
        let mut log = Log::begin(&store.environment, journal)?;
        let schema: Option<u64> = store.read(|view| view.get(&key::meta("schema")))?;
        match schema {
            None => {
                let mut transaction = store.environment.env.write_txn().map_err(from_heed)?;
                Tx::new(&mut transaction, store.environment.table).put(&key::meta("schema"), &SCHEMA)?;
                transaction.commit().map_err(from_heed)?;
                log.checkpoint(&store.environment)?;
            }
            Some(SCHEMA) => {}
            Some(other) => {
                return Err(Error::failed_precondition(format!(
                    "metadata database {} has schema {other}, this version knows {SCHEMA}: start the newer version again",
                    path.display()
                )));
            }
        }
        Ok((store, log))
    }

    /// Applies what the journal has.
    fn replay(&self, changes: &[Vec<u8>]) -> Result<()> {
        let environment = &self.environment;
        loop {
            let mut transaction = environment.env.write_txn().map_err(from_heed)?;
            let mut tx = Tx::new(&mut transaction, environment.table);
            let done = changes.iter().try_for_each(|changes| tx.replay(changes));
            match done.and_then(|()| transaction.commit().map_err(from_heed)) {
                Err(error) if error.kind() == ErrorKind::ResourceExhausted => drop(environment.grow()?),
                outcome => return outcome,
            }
        }
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
        Self { transaction, table, written: Vec::new(), changes: Encoder::default(), full: false }
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
        self.written.push(key.to_vec());
        let value = record.to_bytes();
        self.changes.number(PUT).bytes(key).bytes(&value);
        let result = self.table.put(self.transaction, key, &value);
        self.noted(result)
    }

    /// Does what a record of the journal says.
    fn replay(&mut self, changes: &[u8]) -> Result<()> {
        let mut changes = Decoder::new(changes);
        loop {
            match changes.number()? {
                0 => return Ok(()),
                PUT => self.table.put(self.transaction, changes.bytes()?, changes.bytes()?).map_err(from_heed)?,
                DELETE => drop(self.table.delete(self.transaction, changes.bytes()?).map_err(from_heed)?),
                other => return Err(Error::data_loss(format!("the metadata journal has a change of kind {other}"))),
            }
        }
    }

    /// Removes a record; false when it was not there.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<bool> {
        let result = self.table.delete(self.transaction, key);
        let found = self.noted(result)?;
        if found {
            self.changes.number(DELETE).bytes(key);
        }
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
