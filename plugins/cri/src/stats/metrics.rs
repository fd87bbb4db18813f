use std::sync::Arc;

use containerd_api_cri::v1::{
    ContainerMetrics, ContainerState, Metric, MetricDescriptor, MetricType, PodSandboxMetrics, UInt64Value,
};
use core_cgroups::{Stats, v1, v2};
use core_types::Result;

use super::network::{self, Device};
use crate::{
    blocking,
    cri::Cri,
    sandbox::stop::containers,
    store::{Container, Sandbox, now},
};

/// Labels of every metric, as cAdvisor has them.
const LABELS: [&str; 6] = ["id", "name", "image", "namespace", "pod", "container"];

/// One metric: its name, what it says, its further labels, and whether it only grows.
struct Kind(&'static str, &'static str, &'static [&'static str], MetricType);

use MetricType::{Counter, Gauge};

const CPU_TOTAL: Kind = Kind("container_cpu_usage_seconds_total", "CPU time used, seconds", &["cpu"], Counter);
const CPU_USER: Kind = Kind("container_cpu_user_seconds_total", "CPU time used in user mode, seconds", &[], Counter);
const CPU_SYSTEM: Kind =
    Kind("container_cpu_system_seconds_total", "CPU time used in the kernel, seconds", &[], Counter);
const CFS_PERIODS: Kind = Kind("container_cpu_cfs_periods_total", "Periods of the CPU limit", &[], Counter);
const CFS_THROTTLED: Kind =
    Kind("container_cpu_cfs_throttled_periods_total", "Periods in which the CPU limit was reached", &[], Counter);
const CFS_SECONDS: Kind = Kind("container_cpu_cfs_throttled_seconds_total", "Time held back, seconds", &[], Counter);
const MEMORY: Kind = Kind("container_memory_usage_bytes", "Memory in use, all kinds", &[], Gauge);
const MEMORY_MAX: Kind = Kind("container_memory_max_usage_bytes", "Most memory ever in use", &[], Gauge);
const WORKING_SET: Kind = Kind("container_memory_working_set_bytes", "Memory that cannot be dropped", &[], Gauge);
const RSS: Kind = Kind("container_memory_rss", "Anonymous memory", &[], Gauge);
const CACHE: Kind = Kind("container_memory_cache", "Page cache", &[], Gauge);
const MAPPED: Kind = Kind("container_memory_mapped_file", "Mapped files", &[], Gauge);
const SWAP: Kind = Kind("container_memory_swap", "Swap in use", &[], Gauge);
const FAILCNT: Kind = Kind("container_memory_failcnt", "How often the memory limit was reached", &[], Counter);
const ACTIVE: Kind = Kind("container_memory_total_active_file_bytes", "Active page cache", &[], Gauge);
const INACTIVE: Kind = Kind("container_memory_total_inactive_file_bytes", "Inactive page cache", &[], Gauge);
const FAULTS: Kind = Kind("container_memory_failures_total", "Page faults", &["failure_type", "scope"], Counter);
const OOM: Kind = Kind("container_oom_events_total", "Out-of-memory kills", &[], Counter);
const PROCESSES: Kind = Kind("container_processes", "Processes and threads", &[], Gauge);
const RX_BYTES: Kind = Kind("container_network_receive_bytes_total", "Bytes received", &["interface"], Counter);
const RX_PACKETS: Kind = Kind("container_network_receive_packets_total", "Packets received", &["interface"], Counter);
const RX_DROPPED: Kind =
    Kind("container_network_receive_packets_dropped_total", "Packets dropped on receipt", &["interface"], Counter);
const RX_ERRORS: Kind = Kind("container_network_receive_errors_total", "Errors on receipt", &["interface"], Counter);
const TX_BYTES: Kind = Kind("container_network_transmit_bytes_total", "Bytes sent", &["interface"], Counter);
const TX_PACKETS: Kind = Kind("container_network_transmit_packets_total", "Packets sent", &["interface"], Counter);
const TX_DROPPED: Kind =
    Kind("container_network_transmit_packets_dropped_total", "Packets dropped on sending", &["interface"], Counter);
const TX_ERRORS: Kind = Kind("container_network_transmit_errors_total", "Errors on sending", &["interface"], Counter);
const STARTED: Kind = Kind("container_start_time_seconds", "Start, seconds since 1970", &[], Gauge);
const SEEN: Kind = Kind("container_last_seen", "When this was read, seconds since 1970", &[], Gauge);

const ALL: [&Kind; 29] = [
    &CPU_TOTAL,
    &CPU_USER,
    &CPU_SYSTEM,
    &CFS_PERIODS,
    &CFS_THROTTLED,
    &CFS_SECONDS,
    &MEMORY,
    &MEMORY_MAX,
    &WORKING_SET,
    &RSS,
    &CACHE,
    &MAPPED,
    &SWAP,
    &FAILCNT,
    &ACTIVE,
    &INACTIVE,
    &FAULTS,
    &OOM,
    &PROCESSES,
    &RX_BYTES,
    &RX_PACKETS,
    &RX_DROPPED,
    &RX_ERRORS,
    &TX_BYTES,
    &TX_PACKETS,
    &TX_DROPPED,
    &TX_ERRORS,
    &STARTED,
    &SEEN,
];

/// Which metrics there are.
pub(crate) fn descriptors() -> Vec<MetricDescriptor> {
    let describe = |kind: &&Kind| MetricDescriptor {
        name: kind.0.into(),
        help: kind.1.into(),
        label_keys: LABELS.iter().chain(kind.2).map(|label| (*label).to_owned()).collect(),
    };
    ALL.iter().map(describe).collect()
}

/// Metrics of all ready pods and their running containers.
///
/// # Errors
/// When the work breaks off.
pub(crate) async fn metrics(cri: &Arc<Cri>) -> Result<Vec<PodSandboxMetrics>> {
    let cri = Arc::clone(cri);
    blocking(move || {
        let ready = cri.sandboxes.list();
        Ok(ready.iter().filter(|sandbox| sandbox.is_ready()).map(|sandbox| of_pod(&cri, sandbox)).collect())
    })
    .await
}

/// Collects the metrics of one pod or container.
struct Collector {
    labels: Vec<String>,
    at: i64,
    metrics: Vec<Metric>,
}

impl Collector {
    fn add(&mut self, kind: &Kind, value: u64) {
        self.add_labelled(kind, &[], value);
    }

    fn add_labelled(&mut self, kind: &Kind, more: &[&str], value: u64) {
        let labels = self.labels.iter().cloned().chain(more.iter().map(|label| (*label).to_owned()));
        self.metrics.push(Metric {
            name: kind.0.into(),
            timestamp: self.at,
            metric_type: kind.3 as i32,
            label_values: labels.collect(),
            value: Some(UInt64Value { value }),
        });
    }
}

fn of_pod(cri: &Cri, sandbox: &Sandbox) -> PodSandboxMetrics {
    let metadata = sandbox.facts.config.metadata.clone().unwrap_or_default();
    let labels = ["", "", "", &metadata.namespace, &metadata.name, ""].map(str::to_owned).to_vec();
    let mut pod = Collector { labels, at: now(), metrics: Vec::new() };
    pod.labels[0] = sandbox.id().to_owned();
    if !sandbox.facts.host_network() {
        for device in network::devices(sandbox.state().pid).unwrap_or_default() {
            network_metrics(&mut pod, &device);
        }
    }
    let inside = containers(cri, sandbox.id());
    let running = inside.iter().filter(|container| container.state() == ContainerState::ContainerRunning);
    let container_metrics = running.map(|container| of_container(cri, container, &pod.labels)).collect();
    PodSandboxMetrics { pod_sandbox_id: sandbox.id().to_owned(), metrics: pod.metrics, container_metrics }
}

fn network_metrics(pod: &mut Collector, device: &Device) {
    for (kind, value) in [
        (&RX_BYTES, device.rx_bytes),
        (&RX_PACKETS, device.rx_packets),
        (&RX_DROPPED, device.rx_dropped),
        (&RX_ERRORS, device.rx_errors),
        (&TX_BYTES, device.tx_bytes),
        (&TX_PACKETS, device.tx_packets),
        (&TX_DROPPED, device.tx_dropped),
        (&TX_ERRORS, device.tx_errors),
    ] {
        pod.add_labelled(kind, &[&device.name], value);
    }
}

fn of_container(cri: &Cri, container: &Container, pod: &[String]) -> ContainerMetrics {
    let facts = &container.facts;
    let name = facts.config.metadata.clone().unwrap_or_default().name;
    let image = facts.config.image.clone().unwrap_or_default().image;
    let labels = vec![facts.id.clone(), facts.name.clone(), image, pod[3].clone(), pod[4].clone(), name];
    let status = container.status();
    let mut own = Collector { labels, at: now(), metrics: Vec::new() };
    let cgroup = cri.sampler.cgroup(&facts.id, status.pid);
    match cgroup.as_ref().and_then(|cgroup| cgroup.stats().ok()) {
        Some(Stats::V1(stats)) => version_1(&mut own, &stats),
        Some(Stats::V2(stats)) => version_2(&mut own, &stats),
        None => {}
    }
    own.add(&OOM, cgroup.and_then(|cgroup| cgroup.oom_kills()).unwrap_or(0));
    let seconds = |at: i64| u64::try_from(at / 1_000_000_000).unwrap_or(0);
    own.add(&STARTED, seconds(status.started_at));
    own.add(&SEEN, seconds(own.at));
    ContainerMetrics { container_id: facts.id.clone(), metrics: own.metrics }
}

/// Nanoseconds as whole seconds: the CRI has no fractions.
fn whole(nanoseconds: u64) -> u64 {
    nanoseconds / 1_000_000_000
}

fn version_1(own: &mut Collector, stats: &v1::Metrics) {
    if let Some(cpu) = &stats.cpu {
        own.add_labelled(&CPU_TOTAL, &["total"], whole(cpu.total));
        own.add(&CPU_USER, whole(cpu.user));
        own.add(&CPU_SYSTEM, whole(cpu.kernel));
        own.add(&CFS_PERIODS, cpu.throttling.periods);
        own.add(&CFS_THROTTLED, cpu.throttling.throttled_periods);
        own.add(&CFS_SECONDS, whole(cpu.throttling.throttled_time));
    }
    if let Some(memory) = &stats.memory {
        let usage = memory.usage.clone().unwrap_or_default();
        let stat = &memory.stat;
        own.add(&MEMORY, usage.usage);
        own.add(&MEMORY_MAX, usage.max);
        own.add(&FAILCNT, usage.failcnt);
        own.add(&WORKING_SET, usage.usage.saturating_sub(stat.total_inactive_file));
        own.add(&RSS, stat.total_rss);
        own.add(&CACHE, stat.total_cache);
        own.add(&MAPPED, stat.total_mapped_file);
        own.add(&ACTIVE, stat.total_active_file);
        own.add(&INACTIVE, stat.total_inactive_file);
        own.add(&SWAP, memory.swap.as_ref().map_or(0, |both| both.usage.saturating_sub(usage.usage)));
        own.add_labelled(&FAULTS, &["pgfault", "hierarchy"], stat.total_pg_fault);
        own.add_labelled(&FAULTS, &["pgmajfault", "hierarchy"], stat.total_pg_maj_fault);
    }
    if let Some(pids) = &stats.pids {
        own.add(&PROCESSES, pids.current);
    }
}

fn version_2(own: &mut Collector, stats: &v2::Metrics) {
    own.add_labelled(&CPU_TOTAL, &["total"], stats.cpu.usage_usec / 1_000_000);
    own.add(&CPU_USER, stats.cpu.user_usec / 1_000_000);
    own.add(&CPU_SYSTEM, stats.cpu.system_usec / 1_000_000);
    own.add(&CFS_PERIODS, stats.cpu.nr_periods);
    own.add(&CFS_THROTTLED, stats.cpu.nr_throttled);
    own.add(&CFS_SECONDS, stats.cpu.throttled_usec / 1_000_000);
    let (usage, stat) = (&stats.memory_usage, &stats.memory);
    own.add(&MEMORY, usage.usage);
    own.add(&MEMORY_MAX, usage.max);
    own.add(&FAILCNT, stats.memory_events.as_ref().map_or(0, |events| events.max));
    own.add(&WORKING_SET, usage.usage.saturating_sub(stat.inactive_file));
    own.add(&RSS, stat.anon);
    own.add(&CACHE, stat.file);
    own.add(&MAPPED, stat.file_mapped);
    own.add(&ACTIVE, stat.active_file);
    own.add(&INACTIVE, stat.inactive_file);
    own.add(&SWAP, usage.swap);
    own.add_labelled(&FAULTS, &["pgfault", "hierarchy"], stat.pgfault);
    own.add_labelled(&FAULTS, &["pgmajfault", "hierarchy"], stat.pgmajfault);
    own.add(&PROCESSES, stats.pids.current);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_the_labels_that_its_descriptor_names() {
        let mut own = Collector { labels: vec![String::new(); LABELS.len()], at: 1, metrics: Vec::new() };
        version_1(
            &mut own,
            &v1::Metrics { cpu: Some(Default::default()), memory: Some(Default::default()), ..Default::default() },
        );
        version_2(&mut own, &v2::Metrics::default());
        network_metrics(&mut own, &Device::default());
        let descriptors = descriptors();
        for metric in &own.metrics {
            let described = descriptors.iter().find(|descriptor| descriptor.name == metric.name).unwrap();
            assert_eq!(described.label_keys.len(), metric.label_values.len(), "{}", metric.name);
        }
    }
}
