use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use core_metadata::Database;
use core_snapshots::Kind;
use core_types::{Result, Scope};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// What a snapshot weighs by itself, without its parents, when it was looked at last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotUsage {
    /// When that was.
    pub timestamp: SystemTime,
    /// Bytes allocated.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

#[derive(Clone, Copy)]
struct Sample {
    kind: Kind,
    usage: SnapshotUsage,
}

/// What a snapshotter's snapshots weigh together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Total {
    /// All snapshots.
    pub(crate) all: SnapshotUsage,
    /// Those that are being written: the layers of containers.
    pub(crate) active: SnapshotUsage,
}

/// Usage of snapshots, looked at every now and then.
#[derive(Default)]
pub(crate) struct Usage {
    /// By snapshotter, then by key.
    samples: RwLock<HashMap<String, HashMap<String, Sample>>>,
}

impl Usage {
    /// The last sample of a snapshot.
    pub(crate) fn of(&self, snapshotter: &str, key: &str) -> Option<SnapshotUsage> {
        let samples = self.samples.read().unwrap_or_else(PoisonError::into_inner);
        Some(samples.get(snapshotter)?.get(key)?.usage)
    }

    /// The last samples of a snapshotter together; none before the first.
    pub(crate) fn total(&self, snapshotter: &str) -> Option<Total> {
        let samples = self.samples.read().unwrap_or_else(PoisonError::into_inner);
        let samples = samples.get(snapshotter)?;
        let sum = |wanted: &dyn Fn(&Sample) -> bool| {
            let none = SnapshotUsage { timestamp: SystemTime::now(), bytes: 0, inodes: 0 };
            samples.values().filter(|sample| wanted(sample)).fold(none, |sum, sample| SnapshotUsage {
                timestamp: sum.timestamp.min(sample.usage.timestamp),
                bytes: sum.bytes.saturating_add(sample.usage.bytes),
                inodes: sum.inodes.saturating_add(sample.usage.inodes),
            })
        };
        Some(Total { all: sum(&|_| true), active: sum(&|sample| sample.kind == Kind::Active) })
    }

    /// Looks at a snapshotter's snapshots. One that is finished is measured once; it does not change.
    ///
    /// # Errors
    /// What the snapshotter says to the list; a snapshot that cannot be measured is left out.
    pub(crate) async fn sample(&self, database: &Database, scope: &Scope, name: &str) -> Result<()> {
        let snapshotter = database.snapshotter(scope, name)?;
        let mut fresh = HashMap::new();
        for info in snapshotter.list(&[]).await? {
            if let Some(known) = self.known(name, &info.name, info.kind) {
                let usage = SnapshotUsage { timestamp: SystemTime::now(), ..known.usage };
                fresh.insert(info.name, Sample { usage, ..known });
                continue;
            }
            match snapshotter.usage(&info.name).await {
                Ok(usage) => {
                    let usage = SnapshotUsage {
                        timestamp: SystemTime::now(),
                        bytes: u64::try_from(usage.size).unwrap_or(0),
                        inodes: u64::try_from(usage.inodes).unwrap_or(0),
                    };
                    fresh.insert(info.name, Sample { kind: info.kind, usage });
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => tracing::warn!(snapshotter = name, key = info.name, %error, "cannot measure a snapshot"),
            }
        }
        self.samples.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), fresh);
        Ok(())
    }

    fn known(&self, snapshotter: &str, key: &str, kind: Kind) -> Option<Sample> {
        let samples = self.samples.read().unwrap_or_else(PoisonError::into_inner);
        let sample = samples.get(snapshotter)?.get(key)?;
        (sample.kind == kind && kind != Kind::Active).then_some(*sample)
    }

    /// Samples until it is told to stop. However long a round takes, half the period is left to others.
    pub(crate) async fn run(
        &self,
        database: &Database,
        scope: &Scope,
        snapshotters: &[String],
        period: Duration,
        stop: CancellationToken,
    ) {
        let round = async {
            loop {
                let begun = Instant::now();
                for name in snapshotters {
                    if let Err(error) = self.sample(database, scope, name).await {
                        tracing::warn!(snapshotter = name, %error, "cannot measure snapshots");
                    }
                }
                sleep(period.saturating_sub(begun.elapsed()).max(period / 2)).await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = round => {}
        }
    }
}
