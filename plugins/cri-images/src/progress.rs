use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use core_transfer::{Progress, ProgressSink};
use tokio::time::{Instant, sleep};

/// How often a pull is looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Watches whether a pull's downloads bring bytes. Time in which nothing is asked of the registry does not count:
/// extracting a large layer is no standstill.
#[derive(Clone)]
pub(crate) struct Watch(Arc<Mutex<State>>);

struct State {
    /// The registry was asked what the name stands for, and has not answered yet.
    resolving: bool,
    /// Bytes of the downloads on their way.
    downloads: HashMap<String, i64>,
    moved: Instant,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(State { resolving: true, downloads: HashMap::new(), moved: Instant::now() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long nothing has come of what was asked for.
    fn idle(&self) -> Duration {
        let mut state = self.state();
        if !state.resolving && state.downloads.is_empty() {
            state.moved = Instant::now();
        }
        state.moved.elapsed()
    }

    /// Returns when nothing has come for `limit`.
    pub(crate) async fn stalled(&self, limit: Duration) {
        let pause = (limit / 4).clamp(Duration::from_millis(10), LOOK_EVERY);
        while self.idle() < limit {
            sleep(pause).await;
        }
    }
}

impl ProgressSink for Watch {
    fn report(&self, progress: Progress) {
        if progress.descriptor.is_none() {
            return;
        }
        let mut state = self.state();
        let moved = match progress.event.as_str() {
            "downloading" => {
                let known = state.downloads.insert(progress.name, progress.progress);
                known.is_none_or(|known| known < progress.progress)
            }
            "complete" => state.downloads.remove(&progress.name).is_some(),
            _ => state.resolving,
        };
        state.resolving = false;
        if moved {
            state.moved = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core_types::{Descriptor, Digest};

    const LIMIT: Duration = Duration::from_secs(60);

    fn report(watch: &Watch, event: &str, bytes: i64) {
        let descriptor = Descriptor::new("layer", Digest::of(b"x"), 100);
        watch.report(Progress {
            event: event.into(),
            name: "layer-x".into(),
            progress: bytes,
            descriptor: Some(descriptor),
            ..Progress::default()
        });
    }

    async fn stalls_within(watch: &Watch, time: Duration) -> bool {
        tokio::time::timeout(time, watch.stalled(LIMIT)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_registry_that_does_not_answer_is_a_standstill() {
        assert!(stalls_within(&Watch::new(), 2 * LIMIT).await);
    }

    #[tokio::test(start_paused = true)]
    async fn only_bytes_count() {
        let watch = Watch::new();
        report(&watch, "fetching image content", 0);
        report(&watch, "downloading", 0);
        for bytes in 1..5 {
            assert!(!stalls_within(&watch, LIMIT * 3 / 4).await);
            report(&watch, "downloading", bytes);
        }
        report(&watch, "downloading", 4);
        assert!(stalls_within(&watch, LIMIT * 3 / 2).await);
    }

    #[tokio::test(start_paused = true)]
    async fn extracting_takes_its_time() {
        let watch = Watch::new();
        report(&watch, "downloading", 0);
        report(&watch, "complete", 100);
        report(&watch, "extracting", 0);
        assert!(!stalls_within(&watch, 10 * LIMIT).await);
    }
}
