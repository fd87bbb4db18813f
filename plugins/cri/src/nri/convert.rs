//! Pods and containers as NRI plugins see them.

use containerd_api_cri::v1::LinuxContainerResources;
use containerd_api_nri::v1alpha1 as nri;
use core_oci::Spec;
use serde_json::Value;

use crate::{
    sandbox::status,
    store::{Container, ContainerFacts, Sandbox, Status},
};

/// A pod.
pub(crate) fn pod(sandbox: &Sandbox) -> nri::PodSandbox {
    let (facts, state) = (&sandbox.facts, sandbox.state());
    let metadata = facts.config.metadata.clone().unwrap_or_default();
    let linux = facts.config.linux.clone().unwrap_or_default();
    let namespace = |kind: &str, path: String| nri::LinuxNamespace { r#type: kind.into(), path };
    let mut namespaces = Vec::new();
    if let Some(netns) = &state.netns {
        namespaces.push(namespace("network", netns.to_string_lossy().into_owned()));
    }
    nri::PodSandbox {
        id: facts.id.clone(),
        name: metadata.name,
        uid: metadata.uid,
        namespace: metadata.namespace,
        labels: facts.config.labels.clone(),
        annotations: facts.config.annotations.clone(),
        runtime_handler: facts.handler.clone(),
        linux: Some(nri::LinuxPodSandbox {
            pod_overhead: linux.overhead.as_ref().map(resources),
            pod_resources: linux.resources.as_ref().map(resources),
            cgroup_parent: linux.cgroup_parent,
            namespaces,
            ..nri::LinuxPodSandbox::default()
        }),
        pid: state.pid,
        ips: status::status(sandbox).network.map(ips).unwrap_or_default(),
    }
}

fn ips(network: containerd_api_cri::v1::PodSandboxNetworkStatus) -> Vec<String> {
    let first = Some(network.ip).filter(|ip| !ip.is_empty());
    first.into_iter().chain(network.additional_ips.into_iter().map(|ip| ip.ip)).collect()
}

/// A container that is being made: its specification is all there is.
pub(crate) fn planned(facts: &ContainerFacts, spec: &Spec) -> nri::Container {
    let user = crate::container::spec::user(spec);
    let id = |value: i64| u32::try_from(value).unwrap_or_default();
    let annotations = spec.get("/annotations").and_then(Value::as_object);
    nri::Container {
        id: facts.id.clone(),
        pod_sandbox_id: facts.sandbox_id.clone(),
        name: facts.config.metadata.as_ref().map(|metadata| metadata.name.clone()).unwrap_or_default(),
        state: nri::ContainerState::ContainerUnknown as i32,
        labels: facts.config.labels.clone(),
        annotations: annotations
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
        args: spec.texts("/process/args"),
        env: spec.texts("/process/env"),
        mounts: each(spec, "/mounts", mount),
        linux: Some(linux(spec)),
        rlimits: each(spec, "/process/rlimits", |limit| nri::PosixRlimit {
            r#type: text(limit, "type"),
            hard: limit.get("hard").and_then(Value::as_u64).unwrap_or_default(),
            soft: limit.get("soft").and_then(Value::as_u64).unwrap_or_default(),
        }),
        user: user.map(|(uid, gid, groups)| nri::User {
            uid: id(uid),
            gid: id(gid),
            additional_gids: groups.into_iter().map(id).collect(),
        }),
        ..nri::Container::default()
    }
}

/// The items of a list in a specification.
fn each<T>(spec: &Spec, pointer: &str, convert: impl Fn(&Value) -> T) -> Vec<T> {
    spec.get(pointer).and_then(Value::as_array).into_iter().flatten().map(convert).collect()
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn mount(mount: &Value) -> nri::Mount {
    let options = mount.get("options").and_then(Value::as_array);
    nri::Mount {
        destination: text(mount, "destination"),
        r#type: text(mount, "type"),
        source: text(mount, "source"),
        options: options.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
    }
}

fn linux(spec: &Spec) -> nri::LinuxContainer {
    let number = |value: &Value, key: &str| value.get(key).and_then(Value::as_i64).unwrap_or_default();
    let oom_score = spec.get("/process/oomScoreAdj").and_then(Value::as_i64);
    nri::LinuxContainer {
        namespaces: each(spec, "/linux/namespaces", |namespace| nri::LinuxNamespace {
            r#type: text(namespace, "type"),
            path: text(namespace, "path"),
        }),
        devices: each(spec, "/linux/devices", |device| nri::LinuxDevice {
            path: text(device, "path"),
            r#type: text(device, "type"),
            major: number(device, "major"),
            minor: number(device, "minor"),
            ..nri::LinuxDevice::default()
        }),
        resources: Some(resources(&crate::container::spec::resources(spec))),
        oom_score_adj: oom_score.map(|value| nri::OptionalInt { value }),
        cgroups_path: spec.text("/linux/cgroupsPath").to_owned(),
        ..nri::LinuxContainer::default()
    }
}

/// A container that is there.
pub(crate) fn container(container: &Container, spec: Option<&Spec>) -> nri::Container {
    let status = container.status();
    let mut seen = match spec {
        Some(spec) => planned(&container.facts, spec),
        None => nri::Container {
            id: container.facts.id.clone(),
            pod_sandbox_id: container.facts.sandbox_id.clone(),
            name: container.facts.config.metadata.clone().unwrap_or_default().name,
            labels: container.facts.config.labels.clone(),
            annotations: container.facts.config.annotations.clone(),
            ..nri::Container::default()
        },
    };
    fill_status(&mut seen, &status);
    seen
}

fn fill_status(seen: &mut nri::Container, status: &Status) {
    use containerd_api_cri::v1::ContainerState;
    let state = match status.state() {
        ContainerState::ContainerCreated => nri::ContainerState::ContainerCreated,
        ContainerState::ContainerRunning => nri::ContainerState::ContainerRunning,
        ContainerState::ContainerExited => nri::ContainerState::ContainerStopped,
        ContainerState::ContainerUnknown => nri::ContainerState::ContainerUnknown,
    };
    seen.state = state as i32;
    seen.pid = status.pid;
    seen.created_at = status.created_at;
    seen.started_at = status.started_at;
    seen.finished_at = status.finished_at;
    seen.exit_code = status.exit_code;
    seen.status_reason.clone_from(&status.reason);
    seen.status_message.clone_from(&status.message);
}

/// Limits, the CRI's as NRI's.
pub(crate) fn resources(limits: &LinuxContainerResources) -> nri::LinuxResources {
    let signed = |value: i64| (value != 0).then_some(nri::OptionalInt64 { value });
    let unsigned =
        |value: i64| u64::try_from(value).ok().filter(|v| *v != 0).map(|value| nri::OptionalUInt64 { value });
    let pages = limits.hugepage_limits.iter();
    nri::LinuxResources {
        memory: Some(nri::LinuxMemory {
            limit: signed(limits.memory_limit_in_bytes),
            swap: signed(limits.memory_swap_limit_in_bytes),
            ..nri::LinuxMemory::default()
        }),
        cpu: Some(nri::LinuxCpu {
            shares: unsigned(limits.cpu_shares),
            quota: signed(limits.cpu_quota),
            period: unsigned(limits.cpu_period),
            cpus: limits.cpuset_cpus.clone(),
            mems: limits.cpuset_mems.clone(),
            ..nri::LinuxCpu::default()
        }),
        hugepage_limits: pages
            .map(|page| nri::HugepageLimit { page_size: page.page_size.clone(), limit: page.limit })
            .collect(),
        unified: limits.unified.clone(),
        ..nri::LinuxResources::default()
    }
}

/// Limits, NRI's laid over the CRI's.
pub(crate) fn overlay(limits: &mut LinuxContainerResources, by: &nri::LinuxResources) {
    let set = |field: &mut i64, value: Option<i64>| *field = value.unwrap_or(*field);
    if let Some(memory) = &by.memory {
        set(&mut limits.memory_limit_in_bytes, memory.limit.map(|limit| limit.value));
        set(&mut limits.memory_swap_limit_in_bytes, memory.swap.map(|swap| swap.value));
    }
    if let Some(cpu) = &by.cpu {
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        set(&mut limits.cpu_shares, cpu.shares.map(|shares| signed(shares.value)));
        set(&mut limits.cpu_quota, cpu.quota.map(|quota| quota.value));
        set(&mut limits.cpu_period, cpu.period.map(|period| signed(period.value)));
        for (field, value) in [(&mut limits.cpuset_cpus, &cpu.cpus), (&mut limits.cpuset_mems, &cpu.mems)] {
            if !value.is_empty() {
                field.clone_from(value);
            }
        }
    }
    limits.unified.extend(by.unified.clone());
}
