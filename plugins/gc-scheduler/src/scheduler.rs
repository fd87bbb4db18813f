use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use core_metadata::Database;
use core_types::Result;
use tokio::{sync::Notify, task::JoinHandle, time::Instant};

use crate::Config;

/// The least time that a collection is taken to need; keeps collections apart however fast they are.
const LEAST: Duration = Duration::from_millis(5);
/// Between collections when no share of time is set.
const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Default)]
struct News {
    deletions: AtomicU64,
    mutations: AtomicU64,
    wake: Notify,
}

struct Inner {
    news: Arc<News>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// Collects garbage when it is due, until it is closed or dropped.
#[derive(Clone)]
pub struct Scheduler(Arc<Inner>);

impl Scheduler {
    /// Collects the garbage of a database.
    pub fn over(database: &Database, config: Config) -> Self {
        let collecting = database.clone();
        let scheduler = Self::new(config, move || {
            let database = collecting.clone();
            async move { database.collect().await.map(|stats| stats.elapsed) }
        });
        let news = Arc::clone(&scheduler.0.news);
        database.on_mutation(move |dirty| news.note(dirty));
        scheduler
    }

    /// Calls `collect`, which answers how long it took, when [`mutated`](Self::mutated) tells of enough changes.
    pub fn new<F, R>(config: Config, collect: F) -> Self
    where
        F: Fn() -> R + Send + 'static,
        R: Future<Output = Result<Duration>> + Send + 'static,
    {
        let news = Arc::new(News::default());
        let task = tokio::spawn(run(config, Arc::clone(&news), collect));
        Self(Arc::new(Inner { news, task: Mutex::new(Some(task)) }))
    }

    /// Tells of a change; `dirty` when it may have left garbage.
    pub fn mutated(&self, dirty: bool) {
        self.0.news.note(dirty);
    }

    /// Ends the scheduling; a collection that runs goes on.
    pub fn close(&self) {
        if let Some(task) = self.0.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

impl News {
    fn note(&self, dirty: bool) {
        if dirty {
            self.deletions.fetch_add(1, Ordering::SeqCst);
        }
        self.mutations.fetch_add(1, Ordering::SeqCst);
        self.wake.notify_one();
    }
}

/// When the next collection may be, and when it is.
struct Plan {
    config: Config,
    /// Not earlier than this, unless it is urgent.
    earliest: Instant,
    next: Option<Instant>,
    total: Duration,
    collections: u32,
}

impl Plan {
    fn new(config: Config) -> Self {
        let now = Instant::now();
        let first = (!config.startup_delay.is_zero()).then(|| now + config.startup_delay);
        Self { config, earliest: now, next: first, total: Duration::ZERO, collections: 0 }
    }

    /// Takes the counts into account.
    fn consider(&mut self, news: &News) {
        let deletions = news.deletions.load(Ordering::SeqCst);
        let mutations = news.mutations.load(Ordering::SeqCst);
        let over = |count: u64, threshold: u64| threshold > 0 && count >= threshold;
        let soon = Instant::now() + self.config.schedule_delay;
        let at = if over(deletions, self.config.deletion_threshold) {
            soon
        } else if deletions > 0 || over(mutations, self.config.mutation_threshold) {
            soon.max(self.earliest)
        } else {
            return;
        };
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// How long to leave between collections, so that they take no more than their share.
    fn interval(&self) -> Duration {
        let share = self.config.pause_threshold.clamp(0.0, 0.5);
        if share <= 0.0 || self.collections == 0 {
            return INTERVAL;
        }
        let average = (self.total / self.collections).max(LEAST);
        average.mul_f64((1.0 / share - 1.0).min(1e6))
    }

    fn collected(&mut self, took: Duration) {
        self.total += took;
        self.collections += 1;
        self.earliest = Instant::now() + self.interval();
        self.next = None;
    }

    fn failed(&mut self) {
        self.earliest = Instant::now() + self.interval() + INTERVAL;
        self.next = Some(self.earliest);
    }
}

async fn run<F, R>(config: Config, news: Arc<News>, collect: F)
where
    F: Fn() -> R + Send + 'static,
    R: Future<Output = Result<Duration>> + Send + 'static,
{
    let mut plan = Plan::new(config);
    loop {
        let due = async {
            match plan.next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = news.wake.notified() => {
                plan.consider(&news);
                continue;
            }
        }
        let before = (news.deletions.swap(0, Ordering::SeqCst), news.mutations.swap(0, Ordering::SeqCst));
        match collect().await {
            Ok(took) => plan.collected(took),
            Err(error) => {
                tracing::error!(%error, "garbage collection failed");
                news.deletions.fetch_add(before.0, Ordering::SeqCst);
                news.mutations.fetch_add(before.1, Ordering::SeqCst);
                plan.failed();
            }
        }
        plan.consider(&news);
    }
}
