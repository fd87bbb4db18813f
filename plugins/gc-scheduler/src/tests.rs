use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use core_types::Error;

use super::{Config, Scheduler};

/// A scheduler whose collections are counted and take 10 ms; time is virtual.
struct Counted {
    scheduler: Scheduler,
    count: Arc<AtomicUsize>,
    fail: Arc<AtomicBool>,
}

impl Counted {
    fn new(config: Config) -> Self {
        let (count, fail) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counting, failing) = (Arc::clone(&count), Arc::clone(&fail));
        let scheduler = Scheduler::new(config, move || {
            counting.fetch_add(1, Ordering::SeqCst);
            let fails = failing.load(Ordering::SeqCst);
            async move { if fails { Err(Error::unavailable("no")) } else { Ok(Duration::from_millis(10)) } }
        });
        Self { scheduler, count, fail }
    }

    async fn after(&self, wait: Duration) -> usize {
        tokio::time::sleep(wait).await;
        self.count.load(Ordering::SeqCst)
    }
}

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn the_first_comes_after_the_start_and_then_none_while_nothing_changes() {
    let counted = Counted::new(Config::default());
    assert_eq!(counted.after(50 * MS).await, 0);
    assert_eq!(counted.after(100 * MS).await, 1);
    assert_eq!(counted.after(Duration::from_secs(3600)).await, 1);
}

#[tokio::test(start_paused = true)]
async fn deletions_are_collected_within_the_share_of_time() {
    let counted = Counted::new(Config { startup_delay: Duration::ZERO, ..Config::default() });
    counted.scheduler.mutated(true);
    assert_eq!(counted.after(MS).await, 1, "nothing was collected before, so at once");
    counted.scheduler.mutated(true);
    // 10 ms may be 2 % of the time, so 490 ms have to pass.
    assert_eq!(counted.after(400 * MS).await, 1);
    assert_eq!(counted.after(100 * MS).await, 2);
    for _ in 0..99 {
        counted.scheduler.mutated(false);
    }
    assert_eq!(counted.after(Duration::from_secs(60)).await, 2);
    counted.scheduler.mutated(false);
    assert_eq!(counted.after(MS).await, 3, "the hundredth change of any kind");
}

#[tokio::test(start_paused = true)]
async fn enough_deletions_do_not_wait_for_the_share() {
    let config = Config { deletion_threshold: 3, schedule_delay: 20 * MS, ..Config::default() };
    let counted = Counted::new(config);
    assert_eq!(counted.after(150 * MS).await, 1);
    counted.scheduler.mutated(true);
    counted.scheduler.mutated(true);
    assert_eq!(counted.after(100 * MS).await, 1);
    counted.scheduler.mutated(true);
    assert_eq!(counted.after(10 * MS).await, 1);
    assert_eq!(counted.after(20 * MS).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_tried_again_and_a_closed_scheduler_ends() {
    let counted = Counted::new(Config::default());
    counted.fail.store(true, Ordering::SeqCst);
    assert_eq!(counted.after(150 * MS).await, 1);
    counted.fail.store(false, Ordering::SeqCst);
    assert_eq!(counted.after(Duration::from_secs(5)).await, 2);
    counted.scheduler.close();
    counted.scheduler.mutated(true);
    assert_eq!(counted.after(Duration::from_secs(60)).await, 2);
}
