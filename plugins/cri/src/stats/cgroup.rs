use containerd_api_cri::v1::{CpuUsage, IoUsage, MemoryUsage, PsiData, PsiStats, SwapUsage, UInt64Value};
use core_cgroups::{Cgroup, Stats, v1, v2};

use crate::store::now;

/// Version 1 has no word for "no limit": it says the largest number of pages.
const UNLIMITED: u64 = i64::MAX as u64 - 65_536;

/// What a cgroup uses.
#[derive(Default)]
pub(super) struct Usage {
    pub(super) cpu: Option<CpuUsage>,
    pub(super) memory: Option<MemoryUsage>,
    pub(super) swap: Option<SwapUsage>,
    pub(super) io: Option<IoUsage>,
    pub(super) processes: Option<u64>,
}

/// Reads a cgroup; None when it is gone.
pub(super) fn usage(cgroup: &Cgroup) -> Option<Usage> {
    let at = now();
    Some(match cgroup.stats().ok()? {
        Stats::V1(stats) => version_1(&stats, at),
        Stats::V2(stats) => version_2(&stats, at),
    })
}

fn number(value: u64) -> Option<UInt64Value> {
    Some(UInt64Value { value })
}

fn available(limit: u64, used: u64) -> Option<UInt64Value> {
    number(if limit == 0 || limit >= UNLIMITED { 0 } else { limit.saturating_sub(used) })
}

fn version_1(stats: &v1::Metrics, at: i64) -> Usage {
    let cpu = stats.cpu.as_ref().map(|cpu| CpuUsage {
        timestamp: at,
        usage_core_nano_seconds: number(cpu.total),
        ..CpuUsage::default()
    });
    let entry = stats.memory.as_ref().and_then(|memory| Some((memory, memory.usage.as_ref()?)));
    let memory = entry.map(|(memory, usage)| {
        let working_set = usage.usage.saturating_sub(memory.stat.total_inactive_file);
        MemoryUsage {
            timestamp: at,
            working_set_bytes: number(working_set),
            available_bytes: available(usage.limit, working_set),
            usage_bytes: number(usage.usage),
            rss_bytes: number(memory.stat.total_rss),
            page_faults: number(memory.stat.total_pg_fault),
            major_page_faults: number(memory.stat.total_pg_maj_fault),
            psi: None,
        }
    });
    // Version 1 counts memory and swap together.
    let swap = entry.and_then(|(memory, usage)| {
        let both = memory.swap.as_ref()?;
        let used = both.usage.saturating_sub(usage.usage);
        Some(SwapUsage {
            timestamp: at,
            swap_available_bytes: available(both.limit, both.usage),
            swap_usage_bytes: number(used),
        })
    });
    let processes = stats.pids.as_ref().map(|pids| pids.current);
    Usage { cpu, memory, swap, io: None, processes }
}

fn version_2(stats: &v2::Metrics, at: i64) -> Usage {
    let memory = &stats.memory_usage;
    let working_set = memory.usage.saturating_sub(stats.memory.inactive_file);
    Usage {
        cpu: Some(CpuUsage {
            timestamp: at,
            usage_core_nano_seconds: number(stats.cpu.usage_usec.saturating_mul(1000)),
            usage_nano_cores: None,
            psi: pressure(stats.cpu_pressure.as_ref()),
        }),
        memory: Some(MemoryUsage {
            timestamp: at,
            working_set_bytes: number(working_set),
            available_bytes: available(memory.limit, working_set),
            usage_bytes: number(memory.usage),
            rss_bytes: number(stats.memory.anon),
            page_faults: number(stats.memory.pgfault),
            major_page_faults: number(stats.memory.pgmajfault),
            psi: pressure(stats.memory_pressure.as_ref()),
        }),
        swap: Some(SwapUsage {
            timestamp: at,
            swap_available_bytes: available(memory.swap_limit, memory.swap),
            swap_usage_bytes: number(memory.swap),
        }),
        io: stats.io_pressure.as_ref().map(|io| IoUsage { timestamp: at, psi: pressure(Some(io)) }),
        processes: Some(stats.pids.current),
    }
}

fn pressure(pressure: Option<&v2::Pressure>) -> Option<PsiStats> {
    let data = |stall: &v2::Stall| PsiData {
        total: stall.total,
        avg10: stall.avg10,
        avg60: stall.avg60,
        avg300: stall.avg300,
    };
    pressure.map(|pressure| PsiStats { full: Some(data(&pressure.full)), some: Some(data(&pressure.some)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_working_set_leaves_out_what_can_be_dropped() {
        let mut stats = v1::Metrics::default();
        let mut memory = v1::Memory::default();
        memory.stat.total_inactive_file = 30;
        memory.usage = Some(v1::MemoryEntry { usage: 100, limit: 500, ..Default::default() });
        memory.swap = Some(v1::MemoryEntry { usage: 120, limit: u64::MAX, ..Default::default() });
        stats.memory = Some(memory);
        let usage = version_1(&stats, 1);
        let memory = usage.memory.unwrap();
        assert_eq!((memory.working_set_bytes, memory.available_bytes), (number(70), number(430)));
        let swap = usage.swap.unwrap();
        assert_eq!((swap.swap_usage_bytes, swap.swap_available_bytes), (number(20), number(0)));

        let mut stats = v2::Metrics::default();
        stats.memory_usage.usage = 100;
        stats.memory_usage.limit = u64::MAX;
        stats.memory.inactive_file = 200;
        stats.cpu.usage_usec = 5;
        let usage = version_2(&stats, 1);
        assert_eq!(usage.memory.unwrap().working_set_bytes, number(0));
        assert_eq!(usage.cpu.unwrap().usage_core_nano_seconds, number(5000));
    }
}
