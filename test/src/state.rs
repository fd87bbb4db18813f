use std::{collections::BTreeSet, fs, path::Path};

use crate::{Daemon, World, eventually, unique};

/// Everything that a request may leave behind in a daemon and on its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State(BTreeSet<String>);

impl State {
    /// What there is once everything unneeded was collected.
    pub fn of(world: &World, daemon: &Daemon) -> Self {
        let lease = unique("collect");
        daemon.go_ctr(&["leases", "create", "--id", &lease]).ok();
        // Collects before it answers.
        daemon.go_ctr(&["leases", "delete", "--sync", &lease]).ok();
        let mut all = BTreeSet::new();
        let commands: [&[&str]; 9] = [
            &["namespaces", "ls", "-q"],
            &["images", "ls", "-q"],
            &["content", "ls", "-q"],
            &["content", "active"],
            &["snapshots", "ls"],
            &["snapshots", "--snapshotter", "native", "ls"],
            &["leases", "ls", "-q"],
            &["containers", "ls", "-q"],
            &["tasks", "ls", "-q"],
        ];
        for args in commands {
            let listed = daemon.go_ctr(args).ok();
            // The age of an ingest changes from look to look.
            let first = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
            all.extend(listed.lines().map(|line| format!("{}: {}", args.join(" "), first(line))));
        }
        all.extend(world.mounts_below(world.dir()).iter().map(|path| format!("mount: {}", path.display())));
        all.extend(
            world.mounts_below("/run/containerd".as_ref()).iter().map(|path| format!("mount: {}", path.display())),
        );
        all.extend(world.command_lines().into_iter().map(|line| format!("process: {line}")));
        for dir in [daemon.root(), daemon.state()] {
            walk(&dir, 0, &mut all);
        }
        Self(all)
    }

    /// Without downloads that were interrupted, which may be resumed.
    #[must_use]
    pub fn without_ingests(mut self) -> Self {
        self.0.retain(|line| !line.starts_with("content active") && !line.contains("/ingest/"));
        self
    }

    /// Waits until it is so again, since processes and mounts end in the background.
    ///
    /// # Panics
    /// When something is left after a minute.
    #[track_caller]
    pub fn is_back(&self, what: &str, now: impl Fn() -> Self) {
        let mut last = None;
        let start = std::time::Instant::now();
        eventually(what, || {
            let now = now();
            if now == *self || start.elapsed() > std::time::Duration::from_secs(20) {
                last = Some(now);
                return Some(());
            }
            None
        });
        let now = last.unwrap_or_else(|| self.clone());
        let left: Vec<_> = now.0.difference(&self.0).collect();
        let gone: Vec<_> = self.0.difference(&now.0).collect();
        assert!(left.is_empty() && gone.is_empty(), "{what}\nleft behind: {left:#?}\nmissing: {gone:#?}");
    }
}

/// The names of directories and files down to those of blobs, ingests, snapshots and bundles.
fn walk(dir: &Path, depth: usize, all: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        // Empty directories that are made when first needed are no state.
        if !is_dir || depth >= 2 && !path.ends_with("blobs/sha256") {
            all.insert(format!("path: {}", path.display()));
        }
        if is_dir && depth < 3 {
            walk(&path, depth + 1, all);
        }
    }
}
