//! The workspace's `ctr` against the workspace's daemon: flags, output, exit codes, and nothing left behind.

// Helpers of a test are tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::{fs, path::Path};

use containerd_test::{Daemon, Registry, World, eventually, skip_without, unique};

/// Blobs, ingests and their labels; snapshots.
#[path = "ctr/content.rs"]
mod content;
/// Images: registry, archive, mounts, labels.
#[path = "ctr/images.rs"]
mod images;
/// What a container gets from the flags of `run`.
#[path = "ctr/run.rs"]
mod run;
/// The server itself: plugins, versions, namespaces, leases, help.
#[path = "ctr/server.rs"]
mod server;
/// Tasks and further processes, events.
#[path = "ctr/tasks.rs"]
mod tasks;

const NEEDED: [&str; 5] = ["runc", "docker-registry", "skopeo", "umoci", "busybox"];

/// A daemon with an image that was pulled by `ctr`.
struct Setup {
    daemon: Daemon,
    registry: Registry,
    name: String,
    world: World,
}

impl Setup {
    /// None where the machine cannot run containers.
    fn new() -> Option<Self> {
        if skip_without(&NEEDED) {
            return None;
        }
        let world = World::new();
        let daemon = Daemon::start(&world);
        let (registry, name) = Registry::with_busybox(&world);
        daemon.ctr(&["images", "pull", "--plain-http", &name]).ok();
        Some(Self { daemon, registry, name, world })
    }

    /// Runs `sh -c script` in a container of its own with these flags; answers its output.
    fn sh(&self, flags: &[&str], script: &str) -> String {
        let id = unique("ctr");
        let mut args = vec!["run", "--rm"];
        args.extend(flags);
        args.extend([self.name.as_str(), &id, "/bin/sh", "-c", script]);
        self.daemon.ctr(&args).ok()
    }

    /// Starts a container that does nothing for long; answers its id.
    fn sleeper(&self) -> String {
        let id = unique("ctr");
        self.daemon.ctr(&["run", "-d", &self.name, &id, "/bin/sleep", "1000"]).ok();
        id
    }

    /// Ends and removes a container of [`sleeper`](Self::sleeper).
    fn remove(&self, id: &str) {
        let ended = self.daemon.ctr(&["tasks", "rm", "-f", id]);
        assert!(ended.code == 0 || ended.code == 137, "{ended:?}");
        self.daemon.ctr(&["containers", "rm", id]).ok();
    }

    /// Fails unless every trace of containers is gone.
    fn nothing_left(&self) {
        assert_eq!(self.daemon.ctr(&["containers", "ls", "-q"]).ok(), "");
        assert_eq!(self.daemon.ctr(&["tasks", "ls", "-q"]).ok(), "");
        assert_eq!(entries(Path::new("/run/containerd/fifo")), Vec::<String>::new());
        eventually("shims are gone", || {
            self.world.command_lines().iter().all(|line| !line.contains("containerd-shim")).then_some(())
        });
        assert!(self.world.mounts_below(&self.daemon.state()).is_empty());
        let tasks = self.daemon.state().join("io.containerd.runtime.v2.task/default");
        assert_eq!(entries(&tasks), Vec::<String>::new());
        let snapshots = self.daemon.ctr(&["snapshots", "ls"]).ok();
        assert!(!snapshots.contains("Active"), "{snapshots}");
        assert_eq!(self.daemon.ctr(&["leases", "ls", "-q"]).ok(), "");
    }
}

/// Names in a directory; none when it is not there.
fn entries(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The cell of a table that is in the row beginning with `first` and below `header`.
fn cell(table: &str, first: &str, header: &str) -> String {
    let mut lines = table.lines();
    let head = lines.next().unwrap_or_default();
    let at = head.split_whitespace().position(|name| name == header).unwrap_or_else(|| panic!("{header} in {table}"));
    let row = lines.find(|line| line.split_whitespace().next() == Some(first));
    let row = row.unwrap_or_else(|| panic!("{first} in {table}"));
    row.split_whitespace().nth(at).unwrap_or_default().to_owned()
}
