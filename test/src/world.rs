use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// How long a test waits for what should happen soon, on a machine however busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again until there is an answer.
///
/// # Panics
/// When there is none after a minute.
pub fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A name that no other test uses.
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Whether the test cannot run here, after saying why: it needs root, a mount namespace and these programs.
pub fn skip_without(programs: &[&str]) -> bool {
    let why = if !nix::unistd::geteuid().is_root() {
        Some("needs root".to_owned())
    } else if let Some(missing) = programs.iter().find(|program| !on_path(program)) {
        Some(format!("{missing} is not installed"))
    } else if programs.contains(&"runc") && !runc_works() {
        Some("runc cannot run a container on this machine".to_owned())
    } else {
        None
    };
    if let Some(why) = &why {
        eprintln!("skipped: {why}");
    }
    why.is_some()
}

/// Runs a container with runc alone, so that a test of ours fails for our faults only.
fn runc_works() -> bool {
    let Ok(dir) = tempfile::tempdir() else { return false };
    let bundle = dir.path();
    let root = bundle.join("rootfs/bin");
    if fs::create_dir_all(&root).is_err() || fs::copy("/bin/busybox", root.join("busybox")).is_err() {
        return false;
    }
    let quiet = |command: &mut Command| {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
    };
    if !quiet(Command::new("runc").arg("spec").current_dir(bundle)) {
        return false;
    }
    let Ok(spec) = fs::read_to_string(bundle.join("config.json")) else { return false };
    let spec =
        spec.replace("\"terminal\": true", "\"terminal\": false").replace("\"sh\"", "\"/bin/busybox\", \"true\"");
    fs::write(bundle.join("config.json"), spec).is_ok()
        && quiet(
            Command::new("runc")
                .arg("--root")
                .arg(bundle.join("state"))
                .args(["run", &unique("probe")])
                .current_dir(bundle),
        )
}

/// The private namespace of a test. Dropping it kills every process that was started in it.
pub struct World {
    dir: tempfile::TempDir,
}

impl World {
    /// Enters a mount namespace with an empty `/run/containerd`; for the calling thread and what it starts.
    ///
    /// # Panics
    /// When the namespace cannot be made; ask [`skip_without`] first.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace");
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private mounts");
        for dir in ["/run/containerd", "/run/runc", "/run/nri"] {
            fs::create_dir_all(dir).expect("a mount point");
            mount(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), none).expect("a tmpfs");
        }
        Self { dir: tempfile::Builder::new().prefix("ctrd-test-").tempdir().expect("a directory") }
    }

    /// The same with a network of its own, in which only the loopback device is, and a `/run/netns` and `/var/lib/cni` of
    /// its own.
    ///
    /// # Panics
    /// When the namespaces cannot be made; ask [`skip_without`] first, for `ip` too.
    pub fn with_network() -> Self {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        let world = Self::new();
        crate::Output::of(Command::new("ip").args(["link", "set", "lo", "up"])).ok();
        for dir in ["/run/netns", "/var/lib/cni"] {
            fs::create_dir_all(dir).expect("a mount point");
            mount(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), None::<&str>).expect("a tmpfs");
        }
        world
    }

    /// A directory of the test's own.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Pids of the processes of this world, but for the test itself: those in its mount namespace and their
    /// descendants.
    pub fn processes(&self) -> Vec<i32> {
        let ours = fs::read_link("/proc/thread-self/ns/mnt").ok();
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        let mut todo = Vec::new();
        let me = std::process::id() as i32;
        for pid in all_pids() {
            let Some(parent) = parent_of(pid) else { continue };
            children.entry(parent).or_default().push(pid);
            let theirs = fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
            if pid == me || theirs.is_some() && theirs == ours {
                todo.push(pid);
            }
        }
        let mut found = std::collections::BTreeSet::new();
        while let Some(pid) = todo.pop() {
            if found.insert(pid) {
                todo.extend(children.get(&pid).into_iter().flatten());
            }
        }
        found.remove(&me);
        found.into_iter().collect()
    }

    /// Command lines of the processes of this world.
    pub fn command_lines(&self) -> Vec<String> {
        let line = |pid: i32| {
            let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned())
        };
        self.processes().into_iter().filter_map(line).collect()
    }

    /// Mount points of this world at or below `path`.
    pub fn mounts_below(&self, path: &Path) -> Vec<PathBuf> {
        let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        points.filter(|point| point.starts_with(path)).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for _ in 0..50 {
            let processes = self.processes();
            if processes.is_empty() {
                break;
            }
            for pid in processes {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut mounts = self.mounts_below(self.dir.path());
        mounts.reverse();
        for point in mounts {
            let _ = nix::mount::umount2(&point, nix::mount::MntFlags::MNT_DETACH);
        }
    }
}

fn all_pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    (fields.next()? != "Z").then_some(())?;
    fields.next()?.parse().ok()
}
