//! Statistics as API messages: the fields have the same names on both sides.

// One macro serves messages that it fills wholly and those that it does not.
#![allow(clippy::needless_update)]

use containerd_api::{any, cgroups};
use core_cgroups::{RdmaEntry, Stats, v1, v2};
use prost_types::Any;

/// Statistics as the daemon takes them.
pub(crate) fn pack(stats: Stats) -> Any {
    match stats {
        Stats::V1(stats) => any::pack("io.containerd.cgroups.v1.Metrics", &version_1(*stats)),
        Stats::V2(stats) => any::pack("io.containerd.cgroups.v2.Metrics", &version_2(*stats)),
    }
}

/// Makes a message of a struct whose fields have the same names.
macro_rules! same {
    ($from:expr => $($message:ident)::+ { $($field:ident),* $(,)? $(; $($extra:ident: $value:expr),*)? }) => {{
        let from = $from;
        $($message)::+ { $($field: from.$field,)* $($($extra: $value,)*)? ..Default::default() }
    }};
}

fn version_1(stats: v1::Metrics) -> cgroups::v1::Metrics {
    use cgroups::v1 as api;
    let rdma = |list: Vec<RdmaEntry>| -> Vec<api::RdmaEntry> {
        list.into_iter().map(|entry| same!(entry => api::RdmaEntry { device, hca_handles, hca_objects })).collect()
    };
    api::Metrics {
        hugetlb: stats
            .hugetlb
            .into_iter()
            .map(|size| same!(size => api::HugetlbStat { usage, max, failcnt, pagesize }))
            .collect(),
        pids: stats.pids.map(|pids| same!(pids => api::PidsStat { current, limit })),
        cpu: stats.cpu.map(|cpu| api::CpuStat {
            throttling: Some(same!(&cpu.throttling => api::Throttle { periods, throttled_periods, throttled_time })),
            usage: Some(same!(cpu => api::CpuUsage { total, kernel, user, per_cpu })),
        }),
        memory: stats.memory.map(memory_1),
        blkio: stats.blkio.map(blkio),
        rdma: stats.rdma.map(|(current, limit)| api::RdmaStat { current: rdma(current), limit: rdma(limit) }),
        memory_oom_control: stats
            .oom
            .map(|oom| same!(oom => api::MemoryOomControl { oom_kill_disable, under_oom, oom_kill })),
        ..Default::default()
    }
}

fn memory_1(memory: v1::Memory) -> cgroups::v1::MemoryStat {
    use cgroups::v1 as api;
    let entry = |entry: v1::MemoryEntry| same!(entry => api::MemoryEntry { limit, usage, max, failcnt });
    same!(memory.stat => api::MemoryStat {
        cache, rss, rss_huge, mapped_file, dirty, writeback, pg_pg_in, pg_pg_out, pg_fault, pg_maj_fault,
        inactive_anon, active_anon, inactive_file, active_file, unevictable, hierarchical_memory_limit,
        hierarchical_swap_limit, total_cache, total_rss, total_rss_huge, total_mapped_file, total_dirty,
        total_writeback, total_pg_pg_in, total_pg_pg_out, total_pg_fault, total_pg_maj_fault,
        total_inactive_anon, total_active_anon, total_inactive_file, total_active_file, total_unevictable;
        usage: memory.usage.map(entry), swap: memory.swap.map(entry), kernel: memory.kernel.map(entry),
        kernel_tcp: memory.kernel_tcp.map(entry)
    })
}

fn blkio(blkio: v1::Blkio) -> cgroups::v1::BlkIoStat {
    use cgroups::v1 as api;
    let list = |list: Vec<v1::BlkioEntry>| -> Vec<api::BlkIoEntry> {
        list.into_iter().map(|entry| same!(entry => api::BlkIoEntry { op, major, minor, value })).collect()
    };
    api::BlkIoStat {
        io_service_bytes_recursive: list(blkio.service_bytes),
        io_serviced_recursive: list(blkio.serviced),
        io_queued_recursive: list(blkio.queued),
        io_service_time_recursive: list(blkio.service_time),
        io_wait_time_recursive: list(blkio.wait_time),
        io_merged_recursive: list(blkio.merged),
        io_time_recursive: list(blkio.time),
        sectors_recursive: list(blkio.sectors),
    }
}

fn version_2(stats: v2::Metrics) -> cgroups::v2::Metrics {
    use cgroups::v2 as api;
    let rdma = |list: Vec<RdmaEntry>| -> Vec<api::RdmaEntry> {
        list.into_iter().map(|entry| same!(entry => api::RdmaEntry { device, hca_handles, hca_objects })).collect()
    };
    let usage = &stats.memory_usage;
    let memory = same!(&stats.memory => api::MemoryStat {
        anon, file, kernel_stack, slab, sock, shmem, file_mapped, file_dirty, file_writeback, anon_thp,
        inactive_anon, active_anon, inactive_file, active_file, unevictable, slab_reclaimable,
        slab_unreclaimable, pgfault, pgmajfault, workingset_nodereclaim, pgrefill,
        pgscan, pgsteal, pgactivate, pgdeactivate, pglazyfree, pglazyfreed, thp_fault_alloc, thp_collapse_alloc,
        workingset_refault_anon, workingset_refault_file, workingset_activate_anon, workingset_activate_file;
        usage: usage.usage, usage_limit: usage.limit, swap_usage: usage.swap, swap_limit: usage.swap_limit,
        max_usage: usage.max, swap_max_usage: usage.swap_max, psi: stats.memory_pressure.as_ref().map(pressure)
    });
    #[allow(deprecated)]
    let memory = api::MemoryStat {
        workingset_refault: stats.memory.workingset_refault,
        workingset_activate: stats.memory.workingset_activate,
        ..memory
    };
    api::Metrics {
        pids: Some(same!(stats.pids => api::PidsStat { current, limit })),
        cpu: Some(same!(stats.cpu => api::CpuStat {
            usage_usec, user_usec, system_usec, nr_periods, nr_throttled, throttled_usec, nr_bursts, burst_usec;
            psi: stats.cpu_pressure.as_ref().map(pressure)
        })),
        memory: Some(memory),
        rdma: Some(api::RdmaStat { current: rdma(stats.rdma.0), limit: rdma(stats.rdma.1) }),
        io: Some(api::IoStat {
            usage: stats
                .io
                .into_iter()
                .map(|entry| same!(entry => api::IoEntry { major, minor, rbytes, wbytes, rios, wios }))
                .collect(),
            psi: stats.io_pressure.as_ref().map(pressure),
        }),
        hugetlb: stats
            .hugetlb
            .into_iter()
            .map(|size| same!(size => api::HugeTlbStat { current, max, pagesize, failcnt }))
            .collect(),
        memory_events: stats
            .memory_events
            .map(|events| same!(events => api::MemoryEvents { low, high, max, oom, oom_kill, oom_group_kill })),
        ..Default::default()
    }
}

fn pressure(from: &v2::Pressure) -> cgroups::v2::PsiStats {
    use cgroups::v2 as api;
    let stall = |stall: &v2::Stall| same!(stall => api::PsiData { avg10, avg60, avg300, total });
    api::PsiStats { some: Some(stall(&from.some)), full: Some(stall(&from.full)) }
}
