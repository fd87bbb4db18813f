use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use containerd_test::Output;

/// How long the kernel may take to let go of what ended.
const PATIENCE: Duration = Duration::from_secs(20);

/// Network namespaces, addresses, devices, rules and cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine(BTreeSet<String>);

impl Machine {
    /// What there is. Cgroups are those of one parent, since others' come and go.
    pub(crate) fn of(cgroup_parent: &str) -> Self {
        let mut all = BTreeSet::new();
        for dir in ["/run/netns", "/var/lib/cni"] {
            walk(Path::new(dir), &mut all);
        }
        // Which address was given last.
        all.retain(|path| !path.contains("last_reserved_ip"));
        let devices = Output::of(Command::new("ip").args(["-o", "link"])).ok();
        let device =
            |line: &str| line.split(": ").nth(1).unwrap_or_default().split('@').next().unwrap_or("").to_owned();
        all.extend(devices.lines().map(|line| format!("device: {}", device(line))));
        for table in ["nat", "filter"] {
            let rules = Output::of(Command::new("iptables").args(["-t", table, "-S"])).ok();
            all.extend(rules.lines().map(|line| format!("{table}: {line}")));
        }
        let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
        for hierarchy in hierarchies.chain(["/sys/fs/cgroup".into()]) {
            let mut inside = BTreeSet::new();
            walk(&hierarchy.join(&cgroup_parent[1..]), &mut inside);
            all.extend(inside.into_iter().filter(|path| Path::new(path).is_dir()));
        }
        Self(all)
    }

    /// Waits until it is so again.
    pub(crate) fn is_back(&self, cgroup_parent: &str, what: &str) {
        let start = Instant::now();
        let mut now = Self::of(cgroup_parent);
        while now != *self && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(100));
            now = Self::of(cgroup_parent);
        }
        let left: Vec<_> = now.0.difference(&self.0).collect();
        let missing: Vec<_> = self.0.difference(&now.0).collect();
        assert!(left.is_empty() && missing.is_empty(), "{what}\nleft behind: {left:#?}\nmissing: {missing:#?}");
    }
}

fn walk(dir: &Path, all: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        all.insert(entry.path().display().to_string());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&entry.path(), all);
        }
    }
}

/// What a process has open, and how often.
pub(crate) fn open_files(pid: u32) -> BTreeMap<String, usize> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let target = target.display().to_string();
        // Sockets, pipes and the like have a number of their own.
        let kind = target.split(":[").next().unwrap_or_default().to_owned();
        *files.entry(kind).or_default() += 1;
    }
    files
}

/// Waits until a process has no more open than before.
pub(crate) fn files_are_closed(pid: u32, before: &BTreeMap<String, usize>) {
    let start = Instant::now();
    loop {
        let now = open_files(pid);
        let more: Vec<_> =
            now.iter().filter(|(file, count)| **count > before.get(*file).copied().unwrap_or(0)).collect();
        // A connection that idles is closed after a while.
        if more.is_empty() {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "open now: {more:?}, before: {before:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
