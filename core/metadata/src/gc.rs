//! Garbage collection: mark on a consistent view, remove in small transactions, then clean the backends.

mod clean;
mod mark;
mod sweep;
mod verify;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use core_types::{Error, Result};

pub use self::verify::Dangling;
use crate::{database::Database, snapshots::Turns, store::View};

/// How long a collection waits for the backends to remove their part; they go on after it.
const BACKEND_BOUND: Duration = Duration::from_secs(30);

/// What a collection did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionStats {
    /// Time from its beginning until no record was left to remove: marking and removing, without the backends.
    pub elapsed: Duration,
    /// Time for which the mark read the database. Nobody waits for it.
    pub mark: Duration,
    /// Blobs that namespaces lost.
    pub blobs: usize,
    /// Snapshots that namespaces lost.
    pub snapshots: usize,
    /// Expired images that were removed.
    pub images: usize,
    /// Expired leases that were removed.
    pub leases: usize,
    /// Stale ingests that were removed.
    pub ingests: usize,
}

/// The state of collections.
#[derive(Default)]
pub(crate) struct Collector {
    alone: Arc<tokio::sync::Mutex<()>>,
    begun: AtomicU64,
    last: Mutex<Option<(u64, CollectionStats)>>,
    cleaning: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// Commits of snapshots, by name.
    pub(crate) turns: Turns,
}

impl Database {
    /// Collects garbage. One collection runs at a time; who asks while one runs gets the next, together with all
    /// others who ask meanwhile. It goes on when the caller does not wait for it.
    ///
    /// # Errors
    /// What the database says. A backend that cannot remove something only keeps it until the next collection.
    pub async fn collect(&self) -> Result<CollectionStats> {
        let asked = self.inner.collector.begun.load(Ordering::SeqCst);
        let this = self.clone();
        let done = tokio::spawn(async move {
            let _alone = Arc::clone(&this.inner.collector.alone).lock_owned().await;
            let last = this.inner.collector.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some((number, stats)) = last.filter(|(number, _)| *number > asked) {
                tracing::trace!(number, "joined a collection that began later");
                return Ok(stats);
            }
            let number = this.inner.collector.begun.fetch_add(1, Ordering::SeqCst) + 1;
            let stats = this.collect_records().await;
            this.inner.roots.end();
            let stats = stats?;
            this.clean_backends().await?;
            *this.inner.collector.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((number, stats.clone()));
            Ok(stats)
        });
        done.await.map_err(|error| Error::internal(format!("garbage collection: {error}")))?
    }

    async fn collect_records(&self) -> Result<CollectionStats> {
        let start = Instant::now();
        let held = self.inner.roots.begin();
        let store = Arc::clone(&self.inner.store);
        let marked = tokio::task::spawn_blocking(move || {
            store.read(|view: &View<'_>| {
                let mut marker = mark::Marker::default();
                let candidates = marker.mark_all(view, held)?;
                Ok((marker, candidates))
            })
        });
        let (marker, garbage) = marked.await.map_err(|error| Error::internal(error.to_string()))??;
        let mut stats = CollectionStats { mark: start.elapsed(), ..CollectionStats::default() };
        self.sweep(marker, garbage, &mut stats).await?;
        stats.elapsed = start.elapsed();
        tracing::debug!(?stats, "garbage collected");
        Ok(stats)
    }

    async fn clean_backends(&self) -> Result<()> {
        // What removals were about must not come back after a power cut, when the data is gone.
        self.flush().await?;
        let this = self.clone();
        let cleaned = tokio::time::timeout(BACKEND_BOUND, tokio::spawn(async move { this.clean().await }));
        if cleaned.await.is_err() {
            tracing::warn!(after = ?BACKEND_BOUND, "backends are still removing; the collection does not wait longer");
        }
        Ok(())
    }

    /// The lock of one backend's cleaning.
    fn cleaning(&self, backend: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut all = self.inner.collector.cleaning.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(backend.to_owned()).or_default())
    }
}
