use containerd_api_nri::v1alpha1::{Field, LinuxCpu, LinuxMemory, LinuxResources};
use core_types::Result;

use crate::owners::Claims;

/// Claims every field that is set.
pub(super) fn claim(limits: &LinuxResources, claims: &mut Claims<'_>) -> Result<()> {
    let memory = limits.memory.unwrap_or_default();
    let cpu = limits.cpu.clone().unwrap_or_default();
    let fields = [
        (memory.limit.is_some(), Field::MemLimit),
        (memory.reservation.is_some(), Field::MemReservation),
        (memory.swap.is_some(), Field::MemSwapLimit),
        (memory.kernel.is_some(), Field::MemKernelLimit),
        (memory.kernel_tcp.is_some(), Field::MemTcpLimit),
        (memory.swappiness.is_some(), Field::MemSwappiness),
        (memory.disable_oom_killer.is_some(), Field::MemDisableOomKiller),
        (memory.use_hierarchy.is_some(), Field::MemUseHierarchy),
        (cpu.shares.is_some(), Field::CpuShares),
        (cpu.quota.is_some(), Field::CpuQuota),
        (cpu.period.is_some(), Field::CpuPeriod),
        (cpu.realtime_runtime.is_some(), Field::CpuRealtimeRuntime),
        (cpu.realtime_period.is_some(), Field::CpuRealtimePeriod),
        (!cpu.cpus.is_empty(), Field::CpuSetCpUs),
        (!cpu.mems.is_empty(), Field::CpuSetMems),
        (limits.blockio_class.is_some(), Field::BlockioClass),
        (limits.rdt_class.is_some(), Field::RdtClass),
        (limits.pids.is_some(), Field::PidsLimit),
    ];
    for (_, field) in fields.into_iter().filter(|(set, _)| *set) {
        claims.field(field)?;
    }
    for page in &limits.hugepage_limits {
        claims.entry(Field::HugepageLimits, &page.page_size)?;
    }
    for key in limits.unified.keys() {
        claims.entry(Field::CgroupsUnified, key)?;
    }
    Ok(())
}

fn set<T: Clone>(from: &Option<T>, to: &mut Option<T>) {
    if from.is_some() {
        to.clone_from(from);
    }
}

/// Lays the fields that are set over others.
pub(super) fn overlay(limits: &LinuxResources, to: &mut LinuxResources) {
    if let Some(from) = &limits.memory {
        memory(from, to.memory.get_or_insert_default());
    }
    if let Some(from) = &limits.cpu {
        cpu(from, to.cpu.get_or_insert_default());
    }
    for page in &limits.hugepage_limits {
        to.hugepage_limits.retain(|have| have.page_size != page.page_size);
        to.hugepage_limits.push(page.clone());
    }
    to.devices.extend_from_slice(&limits.devices);
    to.unified.extend(limits.unified.clone());
    set(&limits.blockio_class, &mut to.blockio_class);
    set(&limits.rdt_class, &mut to.rdt_class);
    set(&limits.pids, &mut to.pids);
}

fn memory(from: &LinuxMemory, to: &mut LinuxMemory) {
    set(&from.limit, &mut to.limit);
    set(&from.reservation, &mut to.reservation);
    set(&from.swap, &mut to.swap);
    set(&from.kernel, &mut to.kernel);
    set(&from.kernel_tcp, &mut to.kernel_tcp);
    set(&from.swappiness, &mut to.swappiness);
    set(&from.disable_oom_killer, &mut to.disable_oom_killer);
    set(&from.use_hierarchy, &mut to.use_hierarchy);
}

fn cpu(from: &LinuxCpu, to: &mut LinuxCpu) {
    set(&from.shares, &mut to.shares);
    set(&from.quota, &mut to.quota);
    set(&from.period, &mut to.period);
    set(&from.realtime_runtime, &mut to.realtime_runtime);
    set(&from.realtime_period, &mut to.realtime_period);
    for (from, to) in [(&from.cpus, &mut to.cpus), (&from.mems, &mut to.mems)] {
        if !from.is_empty() {
            to.clone_from(from);
        }
    }
}
