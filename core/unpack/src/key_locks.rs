use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Locks by name; a name that nobody holds costs nothing.
#[derive(Debug, Default)]
pub(crate) struct KeyLocks {
    known: Mutex<HashMap<String, Weak<AsyncMutex<()>>>>,
}

impl KeyLocks {
    /// Waits until the name is free and takes it.
    pub(crate) async fn lock(&self, key: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            match known.get(key).and_then(Weak::upgrade) {
                Some(lock) => lock,
                None => {
                    known.retain(|_, lock| lock.strong_count() > 0);
                    let lock = Arc::new(AsyncMutex::new(()));
                    known.insert(key.to_owned(), Arc::downgrade(&lock));
                    lock
                }
            }
        };
        lock.lock_owned().await
    }
}
