//! Statistics of the version 2 hierarchy, shaped like `io.containerd.cgroups.v2.Metrics`.

use std::{io, path::Path};

use crate::{
    RdmaEntry,
    files::{self, counters},
};

/// What is known about a cgroup.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Tasks.
    pub pids: Pids,
    /// Processor time.
    pub cpu: CpuStat,
    /// Stalls on the processor.
    pub cpu_pressure: Option<Pressure>,
    /// `memory.stat`.
    pub memory: MemoryStat,
    /// Memory and swap, now and allowed.
    pub memory_usage: MemoryUsage,
    /// Stalls on memory.
    pub memory_pressure: Option<Pressure>,
    /// `memory.events`; none where the kernel has no such file (the root).
    pub memory_events: Option<MemoryEvents>,
    /// RDMA: current and limit.
    pub rdma: (Vec<RdmaEntry>, Vec<RdmaEntry>),
    /// Block devices.
    pub io: Vec<IoEntry>,
    /// Stalls on block devices.
    pub io_pressure: Option<Pressure>,
    /// Huge pages, by page size.
    pub hugetlb: Vec<Hugetlb>,
}

/// Tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pids {
    /// Now.
    pub current: u64,
    /// Allowed; the largest number is no limit.
    pub limit: u64,
}

counters! {
    /// `cpu.stat`, in microseconds where it speaks of time.
    CpuStat {
        usage_usec = "usage_usec", user_usec = "user_usec", system_usec = "system_usec",
        nr_periods = "nr_periods", nr_throttled = "nr_throttled", throttled_usec = "throttled_usec",
        nr_bursts = "nr_bursts", burst_usec = "burst_usec",
    }
}

counters! {
    /// `memory.stat`, in bytes where it speaks of memory.
    MemoryStat {
        anon = "anon", file = "file", kernel_stack = "kernel_stack", slab = "slab", sock = "sock", shmem = "shmem",
        file_mapped = "file_mapped", file_dirty = "file_dirty", file_writeback = "file_writeback",
        anon_thp = "anon_thp", inactive_anon = "inactive_anon", active_anon = "active_anon",
        inactive_file = "inactive_file", active_file = "active_file", unevictable = "unevictable",
        slab_reclaimable = "slab_reclaimable", slab_unreclaimable = "slab_unreclaimable", pgfault = "pgfault",
        pgmajfault = "pgmajfault", workingset_refault = "workingset_refault",
        workingset_activate = "workingset_activate", workingset_nodereclaim = "workingset_nodereclaim",
        pgrefill = "pgrefill", pgscan = "pgscan", pgsteal = "pgsteal", pgactivate = "pgactivate",
        pgdeactivate = "pgdeactivate", pglazyfree = "pglazyfree", pglazyfreed = "pglazyfreed",
        thp_fault_alloc = "thp_fault_alloc", thp_collapse_alloc = "thp_collapse_alloc",
        workingset_refault_anon = "workingset_refault_anon", workingset_refault_file = "workingset_refault_file",
        workingset_activate_anon = "workingset_activate_anon",
        workingset_activate_file = "workingset_activate_file",
    }
}

counters! {
    /// `memory.events`.
    MemoryEvents {
        low = "low", high = "high", max = "max", oom = "oom", oom_kill = "oom_kill",
        oom_group_kill = "oom_group_kill",
    }
}

/// Memory and swap in bytes; the largest number is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Memory now.
    pub usage: u64,
    /// Memory allowed.
    pub limit: u64,
    /// Most memory ever.
    pub max: u64,
    /// Swap now.
    pub swap: u64,
    /// Swap allowed.
    pub swap_limit: u64,
    /// Most swap ever.
    pub swap_max: u64,
}

/// One line of a pressure file: share of time stalled, in percent, and the total in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stall {
    /// Over 10 seconds.
    pub avg10: f64,
    /// Over a minute.
    pub avg60: f64,
    /// Over five minutes.
    pub avg300: f64,
    /// Microseconds in all.
    pub total: u64,
}

/// A pressure file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Some tasks stalled.
    pub some: Stall,
    /// All tasks stalled.
    pub full: Stall,
}

/// Counters of one block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoEntry {
    /// Major number.
    pub major: u64,
    /// Minor number.
    pub minor: u64,
    /// Bytes read.
    pub rbytes: u64,
    /// Bytes written.
    pub wbytes: u64,
    /// Reads.
    pub rios: u64,
    /// Writes.
    pub wios: u64,
}

/// Huge pages of one size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hugetlb {
    /// Bytes in use.
    pub current: u64,
    /// Bytes allowed.
    pub max: u64,
    /// Times the limit was hit.
    pub failcnt: u64,
    /// Size, as `2MB`.
    pub pagesize: String,
}

impl Metrics {
    pub(crate) fn read(dir: &Path) -> io::Result<Self> {
        if !dir.is_dir() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let number = |name: &str| io::Result::Ok(files::number(dir, name)?.unwrap_or(0));
        let text = |name: &str| io::Result::Ok(files::text(dir, name)?.unwrap_or_default());
        let mut memory = MemoryStat::parse(&text("memory.stat")?);
        // Kernels from 5.9 on count the two kinds of page apart; the sum keeps older readers right.
        memory.workingset_refault =
            memory.workingset_refault.max(memory.workingset_refault_anon + memory.workingset_refault_file);
        memory.workingset_activate =
            memory.workingset_activate.max(memory.workingset_activate_anon + memory.workingset_activate_file);
        Ok(Self {
            pids: Pids { current: number("pids.current")?, limit: number("pids.max")? },
            cpu: CpuStat::parse(&text("cpu.stat")?),
            cpu_pressure: pressure(dir, "cpu.pressure")?,
            memory,
            memory_usage: MemoryUsage {
                usage: number("memory.current")?,
                limit: number("memory.max")?,
                max: number("memory.peak")?,
                swap: number("memory.swap.current")?,
                swap_limit: number("memory.swap.max")?,
                swap_max: number("memory.swap.peak")?,
            },
            memory_pressure: pressure(dir, "memory.pressure")?,
            memory_events: files::text(dir, "memory.events")?.map(|text| MemoryEvents::parse(&text)),
            rdma: (files::rdma(&text("rdma.current")?), files::rdma(&text("rdma.max")?)),
            io: text("io.stat")?.lines().filter_map(io_entry).collect(),
            io_pressure: pressure(dir, "io.pressure")?,
            hugetlb: hugetlb(dir)?,
        })
    }
}

fn io_entry(line: &str) -> Option<IoEntry> {
    let mut words = line.split_whitespace();
    let (major, minor) = files::device(words.next()?)?;
    let mut entry = IoEntry { major, minor, ..IoEntry::default() };
    for (key, word) in words.filter_map(|word| word.split_once('=')) {
        let value = files::value(word);
        match key {
            "rbytes" => entry.rbytes = value,
            "wbytes" => entry.wbytes = value,
            "rios" => entry.rios = value,
            "wios" => entry.wios = value,
            _ => {}
        }
    }
    Some(entry)
}

fn pressure(dir: &Path, name: &str) -> io::Result<Option<Pressure>> {
    let Some(text) = files::text(dir, name)? else { return Ok(None) };
    let mut found = Pressure::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let stall = match words.next() {
            Some("some") => &mut found.some,
            Some("full") => &mut found.full,
            _ => continue,
        };
        for (key, word) in words.filter_map(|word| word.split_once('=')) {
            match key {
                "avg10" => stall.avg10 = word.parse().unwrap_or(0.0),
                "avg60" => stall.avg60 = word.parse().unwrap_or(0.0),
                "avg300" => stall.avg300 = word.parse().unwrap_or(0.0),
                "total" => stall.total = files::value(word),
                _ => {}
            }
        }
    }
    Ok(Some(found))
}

fn hugetlb(dir: &Path) -> io::Result<Vec<Hugetlb>> {
    let one = |pagesize: String| {
        let number = |what| io::Result::Ok(files::number(dir, &format!("hugetlb.{pagesize}.{what}"))?.unwrap_or(0));
        let events = files::text(dir, &format!("hugetlb.{pagesize}.events"))?.unwrap_or_default();
        let failcnt = files::pairs(&events).find(|(key, _)| *key == "max").map_or(0, |(_, count)| count);
        let (current, max) = (number("current")?, number("max")?);
        Ok(Hugetlb { current, max, failcnt, pagesize })
    };
    files::huge_page_sizes(dir, "current")?.into_iter().filter(|size| !size.ends_with(".rsvd")).map(one).collect()
}
