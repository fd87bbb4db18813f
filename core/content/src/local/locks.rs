//! One writer for each reference.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use core_types::{Error, Result};
use tokio::sync::Semaphore;

/// How long a new writer waits for one that is just being closed.
const CLOSING: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(super) struct Locks(Mutex<HashMap<String, Arc<Entry>>>);

struct Entry {
    since: SystemTime,
    offset: AtomicU64,
    closing: AtomicBool,
    /// Never has a permit; closed at release, which wakes all that wait.
    released: Semaphore,
}

/// Holds a reference until dropped.
pub(super) struct Lock {
    locks: Arc<Locks>,
    reference: String,
    entry: Arc<Entry>,
}

impl Locks {
    fn entries(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Entry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(self: &Arc<Self>, reference: &str) -> Result<Lock, Arc<Entry>> {
        let mut entries = self.entries();
        if let Some(entry) = entries.get(reference) {
            return Err(Arc::clone(entry));
        }
        let entry = Arc::new(Entry {
            since: SystemTime::now(),
            offset: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            released: Semaphore::new(0),
        });
        entries.insert(reference.to_owned(), Arc::clone(&entry));
        Ok(Lock { locks: Arc::clone(self), reference: reference.to_owned(), entry })
    }

    /// Takes `reference`; waits only for a writer that has been dropped and still flushes.
    pub(super) async fn lock(self: &Arc<Self>, reference: &str) -> Result<Lock> {
        loop {
            let entry = match self.try_lock(reference) {
                Ok(lock) => return Ok(lock),
                Err(entry) => entry,
            };
            let closing = entry.closing.load(Ordering::Acquire);
            if closing && tokio::time::timeout(CLOSING, entry.released.acquire()).await.is_ok() {
                continue;
            }
            let held = entry.since.elapsed().unwrap_or_default();
            let since = time::OffsetDateTime::from(entry.since);
            return Err(Error::unavailable(format!("ref {reference} locked for {held:?} (since {since})")));
        }
    }

    /// Bytes that the open writer of `reference` has taken, when there is one.
    pub(super) fn offset(&self, reference: &str) -> Option<u64> {
        self.entries().get(reference).map(|entry| entry.offset.load(Ordering::Relaxed))
    }
}

impl Lock {
    pub(super) fn set_offset(&self, offset: u64) {
        self.entry.offset.store(offset, Ordering::Relaxed);
    }

    pub(super) fn set_closing(&self) {
        self.entry.closing.store(true, Ordering::Release);
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.locks.entries().remove(&self.reference);
        self.entry.released.close();
    }
}
