//! Usage of pods and containers, read from their cgroups by the daemon itself: no shim is asked and nothing is run.

/// Reading of a cgroup as the CRI has it.
mod cgroup;
/// Metrics by descriptor.
mod metrics;
/// Counters of network devices.
mod network;
/// CPU use over time.
mod sampler;

use std::sync::Arc;

use containerd_api_cri::v1::{
    ContainerAttributes, ContainerFilter, ContainerState, ContainerStateValue, ContainerStats, ContainerStatsFilter,
    FilesystemIdentifier, FilesystemUsage, LinuxPodSandboxStats, PodSandboxAttributes, PodSandboxFilter,
    PodSandboxState, PodSandboxStateValue, PodSandboxStats, PodSandboxStatsFilter, ProcessUsage, UInt64Value,
};
use core_types::Result;

use crate::{
    blocking, container,
    cri::Cri,
    sandbox,
    store::{Container, Sandbox, now},
};

pub(crate) use metrics::{descriptors, metrics};
pub(crate) use sampler::{Sampler, start};

/// Usage of one container.
///
/// # Errors
/// NotFound.
pub(crate) async fn container(cri: &Arc<Cri>, id: &str) -> Result<ContainerStats> {
    let container = cri.containers.get(id)?;
    let cri = Arc::clone(cri);
    blocking(move || Ok(of_container(&cri, &container))).await
}

/// Usage of the running containers that a filter takes.
///
/// # Errors
/// InvalidArgument for an id that is the start of several.
pub(crate) async fn containers(cri: &Arc<Cri>, filter: Option<&ContainerStatsFilter>) -> Result<Vec<ContainerStats>> {
    let filter = filter.cloned().unwrap_or_default();
    let filter = ContainerFilter {
        id: filter.id,
        pod_sandbox_id: filter.pod_sandbox_id,
        label_selector: filter.label_selector,
        state: Some(ContainerStateValue { state: ContainerState::ContainerRunning as i32 }),
    };
    let running = container::status::select(cri, Some(&filter))?;
    let cri = Arc::clone(cri);
    blocking(move || Ok(running.iter().map(|container| of_container(&cri, container)).collect())).await
}

/// Usage of one pod.
///
/// # Errors
/// NotFound.
pub(crate) async fn sandbox(cri: &Arc<Cri>, id: &str) -> Result<PodSandboxStats> {
    let sandbox = cri.sandboxes.get(id)?;
    let cri = Arc::clone(cri);
    blocking(move || Ok(of_sandbox(&cri, &sandbox))).await
}

/// Usage of the ready pods that a filter takes.
///
/// # Errors
/// InvalidArgument for an id that is the start of several.
pub(crate) async fn sandboxes(cri: &Arc<Cri>, filter: Option<&PodSandboxStatsFilter>) -> Result<Vec<PodSandboxStats>> {
    let filter = filter.cloned().unwrap_or_default();
    let filter = PodSandboxFilter {
        id: filter.id,
        label_selector: filter.label_selector,
        state: Some(PodSandboxStateValue { state: PodSandboxState::SandboxReady as i32 }),
    };
    let ready = sandbox::status::select(cri, Some(&filter))?;
    let cri = Arc::clone(cri);
    blocking(move || Ok(ready.iter().map(|sandbox| of_sandbox(&cri, sandbox)).collect())).await
}

/// What cannot be read is left out, as for a container that does not run.
fn of_container(cri: &Cri, container: &Container) -> ContainerStats {
    let facts = &container.facts;
    let usage = cri.sampler.cgroup(&facts.id, container.status().pid).and_then(|cgroup| cgroup::usage(&cgroup));
    let usage = usage.unwrap_or_default();
    let mut cpu = usage.cpu;
    if let Some(cpu) = &mut cpu {
        cpu.usage_nano_cores = cri.sampler.nano_cores(&facts.id).map(|value| UInt64Value { value });
    }
    ContainerStats {
        attributes: Some(ContainerAttributes {
            id: facts.id.clone(),
            metadata: facts.config.metadata.clone(),
            labels: facts.config.labels.clone(),
            annotations: facts.config.annotations.clone(),
        }),
        cpu,
        memory: usage.memory,
        writable_layer: writable_layer(cri, container),
        swap: usage.swap,
        io: usage.io,
    }
}

/// The disk that a container's own layer uses, as sampled by the image service.
fn writable_layer(cri: &Cri, container: &Container) -> Option<FilesystemUsage> {
    let facts = &container.facts;
    let usage = cri.images.snapshots_usage(&facts.snapshotter, &facts.id);
    let mountpoint = cri.images.snapshotter_root(&facts.snapshotter).unwrap_or_default();
    Some(FilesystemUsage {
        timestamp: usage.as_ref().map_or_else(now, |usage| crate::store::nanoseconds(usage.timestamp)),
        fs_id: Some(FilesystemIdentifier { mountpoint: mountpoint.to_owned() }),
        used_bytes: Some(UInt64Value { value: usage.as_ref().map_or(0, |usage| usage.bytes) }),
        inodes_used: Some(UInt64Value { value: usage.as_ref().map_or(0, |usage| usage.inodes) }),
    })
}

fn of_sandbox(cri: &Cri, sandbox: &Sandbox) -> PodSandboxStats {
    let config = &sandbox.facts.config;
    let pid = sandbox.state().pid;
    let inside = sandbox::stop::containers(cri, sandbox.id());
    let containers: Vec<ContainerStats> = inside
        .iter()
        .filter(|container| container.state() == ContainerState::ContainerRunning)
        .map(|container| of_container(cri, container))
        .collect();
    // The cgroup of the whole pod is the one above that of its first container.
    let usage = cri.sampler.pod_cgroup(sandbox).and_then(|cgroup| cgroup::usage(&cgroup)).unwrap_or_default();
    let mut cpu = usage.cpu;
    if let Some(cpu) = &mut cpu {
        cpu.usage_nano_cores = cri.sampler.nano_cores(sandbox.id()).map(|value| UInt64Value { value });
    }
    PodSandboxStats {
        attributes: Some(PodSandboxAttributes {
            id: sandbox.id().to_owned(),
            metadata: config.metadata.clone(),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
        }),
        linux: Some(LinuxPodSandboxStats {
            cpu,
            memory: usage.memory,
            network: if sandbox.facts.host_network() { None } else { network::usage(pid) },
            process: usage
                .processes
                .map(|count| ProcessUsage { timestamp: now(), process_count: Some(UInt64Value { value: count }) }),
            containers,
            io: usage.io,
        }),
        windows: None,
    }
}
