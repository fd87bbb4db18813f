//! Operations that outlive the request that asked for them: when a client gives up and asks again, the second request
//! joins the first.

use std::{collections::HashMap, future::Future, hash::Hash, sync::Arc, sync::Mutex};

use core_types::{Error, Result};
use futures::{FutureExt, future::BoxFuture, future::Shared};

/// The outcome of an operation; errors are shared by all who wait for it.
type Outcome<T> = std::result::Result<T, Arc<Error>>;

/// An operation that any number of requests wait for.
type Flight<T> = Shared<BoxFuture<'static, Outcome<T>>>;

/// Running operations by key.
type Table<K, T> = Arc<Mutex<HashMap<K, Flight<T>>>>;

/// Running operations by key.
pub(crate) struct Flights<K, T>(Table<K, T>);

impl<K, T> Default for Flights<K, T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Clone + Eq + Hash + Send + 'static, T: Clone + Send + Sync + 'static> Flights<K, T> {
    /// Waits for the operation of `key`; starts it with `work` when none runs. It goes on when the caller gives up.
    ///
    /// # Errors
    /// The operation's; Internal when it broke off.
    pub(crate) async fn run<F>(&self, key: K, work: impl FnOnce() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let flight = {
            let mut flights = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match flights.get(&key) {
                Some(flight) => flight.clone(),
                None => {
                    let flight = self.start(key.clone(), work());
                    flights.insert(key, flight.clone());
                    flight
                }
            }
        };
        flight.await.map_err(|error| Error::new(error.kind(), error.message()))
    }

    fn start(&self, key: K, work: impl Future<Output = Result<T>> + Send + 'static) -> Flight<T> {
        let flights = Arc::clone(&self.0);
        let task = tokio::spawn(async move {
            let _landed = Landed { flights, key };
            work.await
        });
        let outcome = async move {
            match task.await {
                Ok(result) => result.map_err(Arc::new),
                Err(_) => Err(Arc::new(Error::internal("the operation broke off, see the log"))),
            }
        };
        outcome.boxed().shared()
    }
}

/// Removes a flight when its operation ends, however it ends.
struct Landed<K: Eq + Hash, T> {
    flights: Table<K, T>,
    key: K,
}

impl<K: Eq + Hash, T> Drop for Landed<K, T> {
    fn drop(&mut self) {
        self.flights.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_second_request_joins_the_first_even_when_that_was_given_up() {
        let flights = Flights::<&str, usize>::default();
        let (runs, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Notify::new()));
        let work = || {
            let (runs, gate) = (Arc::clone(&runs), Arc::clone(&gate));
            async move {
                let run = runs.fetch_add(1, Ordering::SeqCst);
                gate.notified().await;
                Ok(run)
            }
        };
        // The first is polled once and given up.
        assert!(flights.run("a", work).now_or_never().is_none());
        let second = flights.run("a", work);
        gate.notify_one();
        assert_eq!(second.await.unwrap(), 0);
        gate.notify_one();
        assert_eq!(flights.run("a", work).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn all_who_wait_get_the_error_and_the_next_starts_anew() {
        let flights = Flights::<u8, ()>::default();
        let failing = || async { Err(Error::not_found("nothing there")) };
        let (one, two) = tokio::join!(flights.run(1, failing), flights.run(1, failing));
        assert!(one.unwrap_err().is_not_found() && two.unwrap_err().is_not_found());
        flights.run(1, || async { Ok(()) }).await.unwrap();
    }
}
