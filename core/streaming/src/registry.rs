use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use core_types::{Error, Namespace, Result};
use tokio::sync::Notify;

use crate::Stream;

/// The longest name of a stream, in bytes.
const MAX_NAME: usize = 256;
/// The most streams that wait for a user, over all namespaces.
const MAX_STREAMS: usize = 4096;

type Key = (Namespace, String);

#[derive(Default)]
struct Shared {
    streams: Mutex<HashMap<Key, Entry>>,
    changed: Notify,
}

struct Entry {
    id: u64,
    stream: Option<Arc<dyn Stream>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Streams by namespace and name. Cheap to clone.
#[derive(Clone, Default)]
pub struct Streams {
    shared: Arc<Shared>,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").field("registered", &self.shared.lock().len()).finish()
    }
}

impl Streams {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Offers a stream under a name until the registration is dropped.
    ///
    /// # Errors
    /// AlreadyExists for a name in use, InvalidArgument for an empty or overlong one, ResourceExhausted when too
    /// many streams are open.
    pub fn register(&self, namespace: &Namespace, name: &str, stream: Arc<dyn Stream>) -> Result<Registration> {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(Error::invalid_argument(format!("a stream's name must have 1 to {MAX_NAME} bytes")));
        }
        let key = (namespace.clone(), name.to_owned());
        let mut streams = self.shared.lock();
        if streams.contains_key(&key) {
            return Err(Error::already_exists(format!("stream {name:?} is open already")));
        }
        if streams.len() >= MAX_STREAMS {
            return Err(Error::resource_exhausted(format!("more than {MAX_STREAMS} streams are open")));
        }
        let id = next_id();
        streams.insert(key.clone(), Entry { id, stream: Some(stream) });
        drop(streams);
        self.shared.changed.notify_waiters();
        Ok(Registration { shared: Arc::clone(&self.shared), key, id })
    }

    /// Takes the stream of that name, waiting up to `patience` for it to be registered. A stream is taken once.
    ///
    /// # Errors
    /// NotFound when it does not come in time, FailedPrecondition when another request has taken it.
    pub async fn get(&self, namespace: &Namespace, name: &str, patience: Duration) -> Result<Arc<dyn Stream>> {
        let key = (namespace.clone(), name.to_owned());
        let wait = async {
            loop {
                let changed = self.shared.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if let Some(entry) = self.shared.lock().get_mut(&key) {
                    return entry.stream.take().ok_or_else(|| {
                        Error::failed_precondition(format!("stream {name:?} is used by another request"))
                    });
                }
                changed.await;
            }
        };
        tokio::time::timeout(patience, wait)
            .await
            .unwrap_or_else(|_| Err(Error::not_found(format!("stream {name:?} was not opened within {patience:?}"))))
    }
}

fn next_id() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Keeps a stream's name; dropping it frees the name. Who has taken the stream keeps it.
pub struct Registration {
    shared: Arc<Shared>,
    key: Key,
    id: u64,
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registration").field(&self.key).finish()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut streams = self.shared.lock();
        if streams.get(&self.key).is_some_and(|entry| entry.id == self.id) {
            streams.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair;

    #[tokio::test]
    async fn a_late_registration_is_waited_for_and_taken_once() {
        let (streams, namespace) = (Streams::new(), Namespace::new("a").unwrap());
        let waiter = {
            let (streams, namespace) = (streams.clone(), namespace.clone());
            tokio::spawn(async move { streams.get(&namespace, "s", Duration::from_secs(30)).await.map(|_| ()) })
        };
        tokio::task::yield_now().await;
        let registration = streams.register(&namespace, "s", Arc::new(pair(1).0)).unwrap();
        waiter.await.unwrap().unwrap();
        let again = streams.get(&namespace, "s", Duration::from_secs(30)).await.err().unwrap();
        assert_eq!(again.kind(), core_types::ErrorKind::FailedPrecondition);
        let taken = streams.register(&namespace, "s", Arc::new(pair(1).0)).unwrap_err();
        assert!(taken.is_already_exists());
        drop(registration);
        let _free = streams.register(&namespace, "s", Arc::new(pair(1).0)).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn names_belong_to_their_namespace() {
        let streams = Streams::new();
        let _kept = streams.register(&Namespace::new("a").unwrap(), "s", Arc::new(pair(1).0)).unwrap();
        let other = streams.get(&Namespace::new("b").unwrap(), "s", Duration::from_secs(5)).await;
        assert!(other.err().unwrap().is_not_found());
    }
}
