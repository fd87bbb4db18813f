#![allow(clippy::unwrap_used, clippy::panic)]

use std::{fs, path::Path};

use super::*;

/// A directory of small files, removed at the end.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let dir = std::env::temp_dir().join(format!("cgroups-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(dir)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const V1: &[(&str, &str)] = &[
    ("memory/a/memory.stat", "cache 10\nrss 20\ntotal_rss 30\npgpgin 4\nhierarchical_memsw_limit 9\n"),
    ("memory/a/memory.usage_in_bytes", "4096\n"),
    ("memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
    ("memory/a/memory.max_usage_in_bytes", "8192\n"),
    ("memory/a/memory.failcnt", "3\n"),
    ("memory/a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
    ("cpu,cpuacct/a/cpuacct.usage", "123\n"),
    ("cpu,cpuacct/a/cpuacct.stat", "user 2\nsystem 3\n"),
    ("cpu,cpuacct/a/cpuacct.usage_percpu", "100 23 \n"),
    ("cpu,cpuacct/a/cpu.stat", "nr_periods 5\nnr_throttled 1\nthrottled_time 77\n"),
    ("pids/a/pids.current", "7\n"),
    ("pids/a/pids.max", "max\n"),
    ("pids/a/cgroup.procs", "30\n10\n"),
    ("pids/a/sub/cgroup.procs", "20\n"),
    ("blkio/a/blkio.throttle.io_service_bytes", "8:16 Read 10\n8:16 Write 20\nTotal 30\n"),
    ("blkio/a/blkio.sectors_recursive", "8:0 5\n"),
    ("hugetlb/a/hugetlb.2MB.usage_in_bytes", "2097152\n"),
    ("hugetlb/a/hugetlb.2MB.rsvd.usage_in_bytes", "1\n"),
    ("hugetlb/a/hugetlb.2MB.failcnt", "1\n"),
    ("rdma/a/rdma.current", "mlx4_0 hca_handle=2 hca_object=max\n"),
];

fn v1_group(tree: &Tree) -> Cgroup {
    std::os::unix::fs::symlink("cpu,cpuacct", tree.0.join("cpu")).unwrap();
    std::os::unix::fs::symlink("cpu,cpuacct", tree.0.join("cpuacct")).unwrap();
    let text =
        "9:memory:/a\n8:cpu,cpuacct:/a\n7:pids:/a\n6:blkio:/a\n5:hugetlb:/a\n4:rdma:/a\n1:name=systemd:/a\n0::/a\n";
    Cgroup::locate(&tree.0, text, false).unwrap()
}

#[test]
fn version_1_statistics_are_read_from_every_hierarchy() {
    let tree = Tree::new("v1", V1);
    let group = v1_group(&tree);
    let Stats::V1(stats) = group.stats().unwrap() else { panic!("not version 1") };
    let memory = stats.memory.unwrap();
    assert_eq!((memory.stat.cache, memory.stat.total_rss, memory.stat.pg_pg_in), (10, 30, 4));
    assert_eq!(memory.stat.hierarchical_swap_limit, 9);
    let usage = memory.usage.unwrap();
    assert_eq!((usage.usage, usage.max, usage.failcnt), (4096, 8192, 3));
    assert!(memory.swap.is_none());
    let cpu = stats.cpu.unwrap();
    assert_eq!((cpu.total, cpu.user, cpu.kernel, cpu.per_cpu), (123, 20_000_000, 30_000_000, vec![100, 23]));
    assert_eq!(cpu.throttling.throttled_time, 77);
    assert_eq!(stats.pids.unwrap(), v1::Pids { current: 7, limit: 0 });
    let blkio = stats.blkio.unwrap();
    assert_eq!(blkio.service_bytes.len(), 2);
    let write = &blkio.service_bytes[1];
    assert_eq!((write.op.as_str(), write.major, write.minor, write.value), ("Write", 8, 16, 20));
    assert_eq!((blkio.sectors[0].op.as_str(), blkio.sectors[0].value), ("", 5));
    assert_eq!((stats.hugetlb.len(), stats.hugetlb[0].usage), (1, 2_097_152));
    assert_eq!(stats.rdma.unwrap().0[0].hca_objects, u32::MAX);
    assert_eq!(stats.oom.unwrap().oom_kill, 2);
    assert_eq!(group.oom_kills(), Some(2));
}

#[test]
fn processes_of_cgroups_below_count_too() {
    let tree = Tree::new("pids", V1);
    assert_eq!(v1_group(&tree).processes().unwrap(), [10, 20, 30]);
}

#[test]
fn version_2_statistics() {
    let tree = Tree::new(
        "v2",
        &[
            ("a/cpu.stat", "usage_usec 9\nuser_usec 4\nsystem_usec 5\nnr_bursts 1\n"),
            (
                "a/cpu.pressure",
                "some avg10=1.50 avg60=0.00 avg300=0.00 total=12\nfull avg10=0 avg60=0 avg300=0 total=3\n",
            ),
            ("a/memory.stat", "anon 1\nfile 2\nworkingset_refault_anon 3\nworkingset_refault_file 4\n"),
            ("a/memory.current", "100\n"),
            ("a/memory.max", "max\n"),
            ("a/memory.events", "low 0\nhigh 0\nmax 6\noom 1\noom_kill 4\n"),
            ("a/pids.current", "3\n"),
            ("a/pids.max", "max\n"),
            ("a/io.stat", "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0\n254:1 \n"),
            ("a/hugetlb.2MB.current", "5\n"),
            ("a/hugetlb.2MB.rsvd.current", "5\n"),
            ("a/hugetlb.2MB.max", "max\n"),
            ("a/hugetlb.2MB.events", "max 8\n"),
        ],
    );
    let group = Cgroup::locate(&tree.0, "1:name=systemd:/x\n0::/a\n", true).unwrap();
    let Stats::V2(stats) = group.stats().unwrap() else { panic!("not version 2") };
    assert_eq!((stats.cpu.usage_usec, stats.cpu.nr_bursts), (9, 1));
    let pressure = stats.cpu_pressure.unwrap();
    assert_eq!((pressure.some.avg10, pressure.full.total), (1.5, 3));
    assert!(stats.memory_pressure.is_none());
    assert_eq!((stats.memory.anon, stats.memory.workingset_refault), (1, 7));
    assert_eq!((stats.memory_usage.usage, stats.memory_usage.limit), (100, u64::MAX));
    assert_eq!(stats.memory_events.unwrap().oom_kill, 4);
    assert_eq!(stats.pids, v2::Pids { current: 3, limit: u64::MAX });
    assert_eq!(stats.io.len(), 2);
    assert_eq!((stats.io[0].wios, stats.io[1].major), (4, 254));
    assert_eq!((stats.hugetlb.len(), stats.hugetlb[0].failcnt), (1, 8));
    assert_eq!(group.oom_kills(), Some(4));
}

#[test]
fn a_cgroup_that_is_gone_is_an_error() {
    let gone = Cgroup::V2("/nonexistent/cgroup".into());
    assert_eq!(gone.stats().unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(gone.processes().is_err());
    assert_eq!(gone.oom_kills(), None);
}

#[test]
fn paths_outside_of_the_view_are_not_followed() {
    assert!(Cgroup::locate(Path::new("/tmp"), "0::/../../etc\n", true).is_err());
}

#[test]
fn the_cgroup_of_this_process_can_be_read() {
    match Cgroup::of_process(std::process::id()) {
        Ok(group) => {
            group.stats().unwrap();
        }
        Err(error) => eprintln!("skipped: {error}"),
    }
}

#[test]
fn a_version_2_watch_wakes_on_a_change() {
    let tree = Tree::new("watch", &[("memory.events", "oom_kill 0\n")]);
    let watch = OomWatch::v2(&tree.0).unwrap();
    assert!(watch.drain());
    fs::write(tree.0.join("memory.events"), "oom_kill 1\n").unwrap();
    let mut poll = [rustix::event::PollFd::new(&watch, rustix::event::PollFlags::IN)];
    let limit = rustix::event::Timespec { tv_sec: 30, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut poll, Some(&limit)).unwrap(), 1);
    assert!(watch.drain());
    fs::remove_file(tree.0.join("memory.events")).unwrap();
    assert!(!watch.drain());
}

/// Lines as they are in these files, and worse.
fn file() -> impl proptest::strategy::Strategy<Value = String> {
    let word = "max|-1|[a-z_]{1,9}|[0-9]{1,25}|[0-9]{1,3}:[0-9]{1,25}|(some|full|avg10=|total=|hca_handle=)[0-9.]{0,9}|\\PC{0,6}";
    let line = proptest::collection::vec(word, 0..6).prop_map(|words| words.join(" "));
    proptest::collection::vec(line, 0..6).prop_map(|lines| lines.join("\n"))
}

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn files_of_any_content_are_read(texts in proptest::collection::vec(file(), 24), raw in any::<Vec<u8>>()) {
        let names = [
            "memory.stat", "memory.current", "memory.max", "memory.events", "memory.swap.current", "memory.swap.max",
            "memory.pressure", "cpu.stat", "cpu.pressure", "io.stat", "io.pressure", "pids.current", "pids.max",
            "rdma.current", "rdma.max", "hugetlb.2MB.current", "hugetlb.2MB.max", "hugetlb.2MB.events",
            "cgroup.procs", "memory.peak", "memory.swap.peak", "memory.low", "hugetlb..current", "cpu.max",
        ];
        let files: Vec<_> = names.iter().copied().zip(texts.iter().map(String::as_str)).collect();
        let tree = Tree::new("any", &files);
        let group = Cgroup::V2(tree.0.clone());
        group.stats().unwrap();
        group.processes().unwrap();
        let _ = (group.oom_kills(), group.cpu_nanoseconds());
        // What is no text at all is an error and no more.
        fs::write(tree.0.join("memory.stat"), &raw).unwrap();
        let _ = group.stats();
    }

    #[test]
    fn version_1_files_of_any_content_are_read(texts in proptest::collection::vec(file(), V1.len())) {
        let files: Vec<_> = V1.iter().map(|(name, _)| *name).zip(texts.iter().map(String::as_str)).collect();
        let tree = Tree::new("any1", &files);
        let group = v1_group(&tree);
        group.stats().unwrap();
        group.processes().unwrap();
        let _ = (group.oom_kills(), group.cpu_nanoseconds());
    }

    #[test]
    fn a_group_is_below_the_root(text in "(([0-9]{0,2}:[a-z,=]{0,9}:)?[./a-z]{0,20}\n){0,4}", unified in any::<bool>()) {
        let root = Path::new("/nonexistent/root");
        if let Ok(Cgroup::V2(dir)) = Cgroup::locate(root, &text, unified) {
            prop_assert!(dir.starts_with(root));
            prop_assert!(dir.components().all(|part| part != Component::ParentDir));
        }
    }
}
