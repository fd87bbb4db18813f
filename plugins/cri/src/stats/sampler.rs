use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use containerd_api_cri::v1::ContainerState;
use core_cgroups::Cgroup;

use crate::{cri::Cri, store::Sandbox};

/// Between two samples when the configuration says nothing.
const PERIOD: Duration = Duration::from_secs(1);
/// Samples that are closer together say little.
const CLOSE: Duration = Duration::from_millis(100);

/// CPU use of pods and containers over time, and where their cgroups are.
#[derive(Default)]
pub(crate) struct Sampler(Mutex<HashMap<String, Entry>>);

struct Entry {
    pid: u32,
    cgroup: Arc<Cgroup>,
    last: Option<(Instant, u64)>,
    nano_cores: Option<u64>,
}

impl Sampler {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cgroup of a container whose first process is `pid`; None when it does not run.
    pub(super) fn cgroup(&self, id: &str, pid: u32) -> Option<Arc<Cgroup>> {
        self.located(id, pid, || Cgroup::of_process(pid).ok())
    }

    /// The cgroup of a whole pod: the one that was asked for, else that of its first process.
    pub(super) fn pod_cgroup(&self, sandbox: &Sandbox) -> Option<Arc<Cgroup>> {
        let pid = sandbox.state().pid;
        let linux = sandbox.facts.config.linux.as_ref();
        let parent = linux.map(|linux| linux.cgroup_parent.clone()).filter(|parent| parent.starts_with('/'));
        self.located(sandbox.id(), pid, || match parent {
            // A slice of systemd is not a path; the process knows it.
            Some(parent) if !parent.ends_with(".slice") => Cgroup::existing(&parent).ok(),
            _ => Cgroup::of_process(pid).ok(),
        })
    }

    fn located(&self, id: &str, pid: u32, find: impl FnOnce() -> Option<Cgroup>) -> Option<Arc<Cgroup>> {
        if pid == 0 {
            return None;
        }
        if let Some(entry) = self.lock().get(id).filter(|entry| entry.pid == pid) {
            return Some(Arc::clone(&entry.cgroup));
        }
        let cgroup = Arc::new(find()?);
        let entry = Entry { pid, cgroup: Arc::clone(&cgroup), last: None, nano_cores: None };
        self.lock().insert(id.to_owned(), entry);
        Some(cgroup)
    }

    /// CPU use of a pod or container, in billionths of a CPU, over the last period.
    pub(super) fn nano_cores(&self, id: &str) -> Option<u64> {
        self.lock().get(id)?.nano_cores
    }

    fn sample(&self, cri: &Cri) {
        let mut alive = Vec::new();
        for sandbox in cri.sandboxes.list().iter().filter(|sandbox| sandbox.is_ready()) {
            if let Some(cgroup) = self.pod_cgroup(sandbox) {
                self.note(sandbox.id(), &cgroup);
                alive.push(sandbox.id().to_owned());
            }
        }
        for container in cri.containers.list() {
            if container.state() != ContainerState::ContainerRunning {
                continue;
            }
            if let Some(cgroup) = self.cgroup(container.id(), container.status().pid) {
                self.note(container.id(), &cgroup);
                alive.push(container.id().to_owned());
            }
        }
        let alive: std::collections::HashSet<String> = alive.into_iter().collect();
        self.lock().retain(|id, _| alive.contains(id));
    }

    fn note(&self, id: &str, cgroup: &Cgroup) {
        let Some(total) = cgroup.cpu_nanoseconds() else { return };
        let at = Instant::now();
        if let Some(entry) = self.lock().get_mut(id) {
            entry.add(at, total);
        }
    }
}

impl Entry {
    fn add(&mut self, at: Instant, total: u64) {
        if let Some((before, used)) = self.last {
            let passed = at.saturating_duration_since(before);
            if passed < CLOSE {
                return;
            }
            let cores = u128::from(total.saturating_sub(used)) * 1_000_000_000 / passed.as_nanos().max(1);
            self.nano_cores = Some(u64::try_from(cores).unwrap_or(u64::MAX));
        }
        self.last = Some((at, total));
    }
}

/// Samples for as long as the service lives.
pub(crate) fn start(cri: &Arc<Cri>) {
    let text = cri.config.stats_collect_period.as_str();
    let period = core_types::duration::parse(text).filter(|period| !period.is_zero()).unwrap_or(PERIOD);
    let cri = Arc::downgrade(cri);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(period).await;
            let Some(cri) = cri.upgrade() else { return };
            // Nothing to sample, no thread to borrow.
            if cri.sandboxes.is_empty() {
                continue;
            }
            let _ = tokio::task::spawn_blocking(move || cri.sampler.sample(&cri)).await;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_is_what_was_used_since_the_last_sample() {
        let start = Instant::now();
        let mut entry = Entry { pid: 1, cgroup: Arc::new(Cgroup::V2("/nowhere".into())), last: None, nano_cores: None };
        entry.add(start, 1_000_000_000);
        assert_eq!(entry.nano_cores, None);
        entry.add(start + Duration::from_secs(2), 2_000_000_000);
        assert_eq!(entry.nano_cores, Some(500_000_000));
        entry.add(start + Duration::from_millis(2050), 9_000_000_000);
        assert_eq!(entry.nano_cores, Some(500_000_000), "too close to say anything");
        entry.add(start + Duration::from_secs(3), 1_000_000_000);
        assert_eq!(entry.nano_cores, Some(0), "counters that go back");
    }
}
