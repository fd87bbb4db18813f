use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use core_types::{Error, Result};

use crate::record::Record;

/// How long a request waits for another that changes the same snapshot.
const WAIT: Duration = Duration::from_secs(60);
/// More parents than any image has; a bound for damaged records.
const MAX_CHAIN: usize = 4096;

/// The records in memory. Locked only for moments, never while the disk works.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) records: BTreeMap<String, Record>,
    /// Parent and child.
    pub(crate) children: BTreeSet<(u64, u64)>,
    /// Ids given out whose records are not there yet.
    pub(crate) pending: HashSet<u64>,
    pub(crate) next: u64,
    busy: HashSet<String>,
}

#[derive(Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    freed: Condvar,
}

/// Names that one request changes; others that want them wait.
pub(crate) struct Claim {
    shared: Arc<Shared>,
    names: Vec<String>,
}

impl State {
    /// Ids of `parent` and all below it, nearest first. Empty for no parent.
    pub(crate) fn chain(&self, parent: &str) -> Result<Vec<u64>> {
        let mut ids = Vec::new();
        let mut parent = parent;
        while !parent.is_empty() {
            let record = self
                .records
                .get(parent)
                .ok_or_else(|| Error::not_found(format!("parent snapshot {parent} does not exist")))?;
            ids.push(record.id);
            if ids.len() > MAX_CHAIN {
                return Err(Error::data_loss(format!("snapshot {parent} has more than {MAX_CHAIN} parents")));
            }
            parent = &record.parent;
        }
        Ok(ids)
    }

    pub(crate) fn has_children(&self, id: u64) -> bool {
        self.children.range((id, 0)..=(id, u64::MAX)).next().is_some()
    }

    pub(crate) fn get(&self, key: &str) -> Result<&Record> {
        self.records.get(key).ok_or_else(|| Error::not_found(format!("snapshot {key} does not exist")))
    }

    /// Adds a record with its link to the parent.
    pub(crate) fn insert(&mut self, record: Record) {
        if let Some(parent) = self.records.get(&record.parent) {
            self.children.insert((parent.id, record.id));
        }
        self.next = self.next.max(record.id + 1);
        self.pending.remove(&record.id);
        self.records.insert(record.name.clone(), record);
    }

    /// Takes a record out with its link to the parent.
    pub(crate) fn take(&mut self, key: &str) -> Option<Record> {
        let record = self.records.remove(key)?;
        if let Some(parent) = self.records.get(&record.parent) {
            self.children.remove(&(parent.id, record.id));
        }
        Some(record)
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims names, once nobody else has any of them. Blocks, for a bounded time.
    pub(crate) fn claim(self: &Arc<Self>, names: &[&str]) -> Result<Claim> {
        let deadline = Instant::now() + WAIT;
        let mut state = self.lock();
        while let Some(name) = names.iter().find(|name| state.busy.contains(**name)) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::unavailable(format!(
                    "snapshot {name} has been in use by another request for {WAIT:?}"
                )));
            }
            state = self.freed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        state.busy.extend(names.iter().cloned());
        Ok(Claim { shared: Arc::clone(self), names })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        for name in &self.names {
            state.busy.remove(name);
        }
        self.shared.freed.notify_all();
    }
}
