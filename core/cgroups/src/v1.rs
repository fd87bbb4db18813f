//! Statistics of version 1 hierarchies, shaped like `io.containerd.cgroups.v1.Metrics`.

use std::{io, path::Path};

use crate::{
    Cgroup, RdmaEntry,
    files::{self, counters},
};

/// What is known about a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Huge pages, by page size.
    pub hugetlb: Vec<Hugetlb>,
    /// Tasks.
    pub pids: Option<Pids>,
    /// Processor time.
    pub cpu: Option<Cpu>,
    /// Memory.
    pub memory: Option<Memory>,
    /// Block devices.
    pub blkio: Option<Blkio>,
    /// RDMA: current and limit.
    pub rdma: Option<(Vec<RdmaEntry>, Vec<RdmaEntry>)>,
    /// Out of memory.
    pub oom: Option<OomControl>,
}

/// Huge pages of one size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hugetlb {
    /// Bytes in use.
    pub usage: u64,
    /// Most bytes ever in use.
    pub max: u64,
    /// Refusals.
    pub failcnt: u64,
    /// Size, as `2MB`.
    pub pagesize: String,
}

/// Tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pids {
    /// Now.
    pub current: u64,
    /// Allowed; 0 is no limit.
    pub limit: u64,
}

/// Processor time, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// All of it.
    pub total: u64,
    /// In the kernel.
    pub kernel: u64,
    /// In programs.
    pub user: u64,
    /// By processor.
    pub per_cpu: Vec<u64>,
    /// Throttling.
    pub throttling: Throttle,
}

counters! {
    /// `cpu.stat`.
    Throttle { periods = "nr_periods", throttled_periods = "nr_throttled", throttled_time = "throttled_time" }
}

counters! {
    /// `memory.oom_control`.
    OomControl { oom_kill_disable = "oom_kill_disable", under_oom = "under_oom", oom_kill = "oom_kill" }
}

counters! {
    /// `memory.stat`, in bytes where it speaks of memory.
    MemoryStat {
        cache = "cache", rss = "rss", rss_huge = "rss_huge", mapped_file = "mapped_file", dirty = "dirty",
        writeback = "writeback", pg_pg_in = "pgpgin", pg_pg_out = "pgpgout", pg_fault = "pgfault",
        pg_maj_fault = "pgmajfault", inactive_anon = "inactive_anon", active_anon = "active_anon",
        inactive_file = "inactive_file", active_file = "active_file", unevictable = "unevictable",
        hierarchical_memory_limit = "hierarchical_memory_limit",
        hierarchical_swap_limit = "hierarchical_memsw_limit",
        total_cache = "total_cache", total_rss = "total_rss", total_rss_huge = "total_rss_huge",
        total_mapped_file = "total_mapped_file", total_dirty = "total_dirty", total_writeback = "total_writeback",
        total_pg_pg_in = "total_pgpgin", total_pg_pg_out = "total_pgpgout", total_pg_fault = "total_pgfault",
        total_pg_maj_fault = "total_pgmajfault", total_inactive_anon = "total_inactive_anon",
        total_active_anon = "total_active_anon", total_inactive_file = "total_inactive_file",
        total_active_file = "total_active_file", total_unevictable = "total_unevictable",
    }
}

/// Memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// `memory.stat`.
    pub stat: MemoryStat,
    /// Memory.
    pub usage: Option<MemoryEntry>,
    /// Memory and swap.
    pub swap: Option<MemoryEntry>,
    /// Kernel memory.
    pub kernel: Option<MemoryEntry>,
    /// Kernel TCP buffers.
    pub kernel_tcp: Option<MemoryEntry>,
}

/// One kind of memory, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryEntry {
    /// Allowed.
    pub limit: u64,
    /// Now.
    pub usage: u64,
    /// Most ever.
    pub max: u64,
    /// Times the limit was hit.
    pub failcnt: u64,
}

/// Block device counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blkio {
    /// Bytes.
    pub service_bytes: Vec<BlkioEntry>,
    /// Requests.
    pub serviced: Vec<BlkioEntry>,
    /// Requests in the queue.
    pub queued: Vec<BlkioEntry>,
    /// Nanoseconds served.
    pub service_time: Vec<BlkioEntry>,
    /// Nanoseconds waited.
    pub wait_time: Vec<BlkioEntry>,
    /// Requests merged.
    pub merged: Vec<BlkioEntry>,
    /// Milliseconds of disk time.
    pub time: Vec<BlkioEntry>,
    /// Sectors.
    pub sectors: Vec<BlkioEntry>,
}

/// One counter of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlkioEntry {
    /// `Read`, `Write`, `Sync` …; empty where the file has one number for each device.
    pub op: String,
    /// Major number.
    pub major: u64,
    /// Minor number.
    pub minor: u64,
    /// Count.
    pub value: u64,
}

/// Nanoseconds of a clock tick: user and kernel time come in hundredths of a second.
const TICK: u64 = 10_000_000;

impl Metrics {
    pub(crate) fn read(group: &Cgroup) -> io::Result<Self> {
        let each = |controller: &str| group.dir(controller);
        Ok(Self {
            hugetlb: each("hugetlb").map(hugetlb).transpose()?.unwrap_or_default(),
            pids: each("pids").map(pids).transpose()?,
            cpu: each("cpuacct").or_else(|| each("cpu")).map(cpu).transpose()?,
            memory: each("memory").map(memory).transpose()?,
            blkio: each("blkio").map(blkio).transpose()?,
            rdma: each("rdma").map(rdma).transpose()?,
            oom: match each("memory") {
                None => None,
                Some(dir) => files::text(dir, "memory.oom_control")?.map(|text| OomControl::parse(&text)),
            },
        })
    }
}

fn number(dir: &Path, name: &str) -> io::Result<u64> {
    Ok(files::number(dir, name)?.unwrap_or(0))
}

fn hugetlb(dir: &Path) -> io::Result<Vec<Hugetlb>> {
    let sizes = files::huge_page_sizes(dir, "usage_in_bytes")?;
    let one = |pagesize: String| {
        Ok(Hugetlb {
            usage: number(dir, &format!("hugetlb.{pagesize}.usage_in_bytes"))?,
            max: number(dir, &format!("hugetlb.{pagesize}.max_usage_in_bytes"))?,
            failcnt: number(dir, &format!("hugetlb.{pagesize}.failcnt"))?,
            pagesize,
        })
    };
    sizes.into_iter().map(one).collect()
}

fn pids(dir: &Path) -> io::Result<Pids> {
    let limit = match number(dir, "pids.max")? {
        u64::MAX => 0,
        limit => limit,
    };
    Ok(Pids { current: number(dir, "pids.current")?, limit })
}

fn cpu(dir: &Path) -> io::Result<Cpu> {
    let times = files::text(dir, "cpuacct.stat")?.unwrap_or_default();
    let time = |key| files::pairs(&times).find(|(name, _)| *name == key).map_or(0, |(_, ticks)| ticks * TICK);
    let per_cpu = files::text(dir, "cpuacct.usage_percpu")?.unwrap_or_default();
    Ok(Cpu {
        total: number(dir, "cpuacct.usage")?,
        kernel: time("system"),
        user: time("user"),
        per_cpu: per_cpu.split_whitespace().map(files::value).collect(),
        throttling: Throttle::parse(&files::text(dir, "cpu.stat")?.unwrap_or_default()),
    })
}

fn memory(dir: &Path) -> io::Result<Memory> {
    let entry = |kind: &str| -> io::Result<Option<MemoryEntry>> {
        let Some(usage) = files::number(dir, &format!("memory{kind}.usage_in_bytes"))? else { return Ok(None) };
        Ok(Some(MemoryEntry {
            usage,
            limit: number(dir, &format!("memory{kind}.limit_in_bytes"))?,
            max: number(dir, &format!("memory{kind}.max_usage_in_bytes"))?,
            failcnt: number(dir, &format!("memory{kind}.failcnt"))?,
        }))
    };
    Ok(Memory {
        stat: MemoryStat::parse(&files::text(dir, "memory.stat")?.unwrap_or_default()),
        usage: entry("")?,
        swap: entry(".memsw")?,
        kernel: entry(".kmem")?,
        kernel_tcp: entry(".kmem.tcp")?,
    })
}

fn blkio(dir: &Path) -> io::Result<Blkio> {
    let entries = |names: &[&str]| -> io::Result<Vec<BlkioEntry>> {
        for name in names {
            if let Some(text) = files::text(dir, &format!("blkio.{name}"))? {
                let found = blkio_entries(&text);
                if !found.is_empty() {
                    return Ok(found);
                }
            }
        }
        Ok(Vec::new())
    };
    Ok(Blkio {
        service_bytes: entries(&[
            "io_service_bytes_recursive",
            "bfq.io_service_bytes_recursive",
            "throttle.io_service_bytes_recursive",
            "throttle.io_service_bytes",
        ])?,
        serviced: entries(&[
            "io_serviced_recursive",
            "bfq.io_serviced_recursive",
            "throttle.io_serviced_recursive",
            "throttle.io_serviced",
        ])?,
        queued: entries(&["io_queued_recursive", "bfq.io_queued_recursive"])?,
        service_time: entries(&["io_service_time_recursive", "bfq.io_service_time_recursive"])?,
        wait_time: entries(&["io_wait_time_recursive", "bfq.io_wait_time_recursive"])?,
        merged: entries(&["io_merged_recursive", "bfq.io_merged_recursive"])?,
        time: entries(&["time_recursive", "bfq.time_recursive"])?,
        sectors: entries(&["sectors_recursive", "bfq.sectors_recursive"])?,
    })
}

fn blkio_entries(text: &str) -> Vec<BlkioEntry> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        // "Total 4096" closes the file.
        let (major, minor) = files::device(words.next()?)?;
        let (op, value) = match (words.next()?, words.next()) {
            (op, Some(value)) => (op.to_owned(), value),
            (value, None) => (String::new(), value),
        };
        Some(BlkioEntry { op, major, minor, value: files::value(value) })
    };
    text.lines().filter_map(line).collect()
}

fn rdma(dir: &Path) -> io::Result<(Vec<RdmaEntry>, Vec<RdmaEntry>)> {
    let list = |name| io::Result::Ok(files::text(dir, name)?.map(|text| files::rdma(&text)).unwrap_or_default());
    Ok((list("rdma.current")?, list("rdma.max")?))
}
