//! Finding a process's cgroup, and what is asked of either version.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Component, Path, PathBuf},
};

use crate::{OomWatch, files, v1, v2};

/// Where the hierarchies are mounted.
const ROOT: &str = "/sys/fs/cgroup";
/// How deep below a container's cgroup processes are looked for.
const MAX_DEPTH: usize = 32;

/// Handles and objects of one RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RdmaEntry {
    /// Name of the device.
    pub device: String,
    /// Handles.
    pub hca_handles: u32,
    /// Objects.
    pub hca_objects: u32,
}

/// Statistics of either version.
#[derive(Clone, Debug)]
pub enum Stats {
    /// Of version 1.
    V1(Box<v1::Metrics>),
    /// Of version 2.
    V2(Box<v2::Metrics>),
}

/// One cgroup, in whichever version this host uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cgroup {
    /// A directory in each version 1 hierarchy, by controller.
    V1(BTreeMap<String, PathBuf>),
    /// A directory in the version 2 hierarchy.
    V2(PathBuf),
}

impl Cgroup {
    /// The cgroup that a process is in now.
    ///
    /// # Errors
    /// When the process is gone or no hierarchy is mounted.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
        let unified = Path::new(ROOT).join("cgroup.controllers").exists();
        Self::locate(Path::new(ROOT), &text, unified)
    }

    /// Finds the directories that the text of `/proc/<pid>/cgroup` names below `root`.
    pub(crate) fn locate(root: &Path, text: &str, unified: bool) -> io::Result<Self> {
        let mut found = BTreeMap::new();
        for line in text.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            // A cgroup outside of our namespace's view is shown with "..": it cannot be reached.
            let path = Path::new(path);
            if path.components().any(|part| part == Component::ParentDir) {
                continue;
            }
            let path = path.strip_prefix("/").unwrap_or(path);
            if unified {
                if controllers.is_empty() {
                    return Ok(Self::V2(root.join(path)));
                }
                continue;
            }
            for controller in controllers.split(',').filter(|name| !name.is_empty()) {
                let dir = root.join(controller.trim_start_matches("name=")).join(path);
                if dir.is_dir() {
                    found.insert(controller.trim_start_matches("name=").to_owned(), dir);
                }
            }
        }
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "process has no cgroup that is visible here"));
        }
        Ok(Self::V1(found))
    }

    /// The directory of a controller.
    pub(crate) fn dir(&self, controller: &str) -> Option<&Path> {
        match self {
            Self::V1(dirs) => dirs.get(controller).map(PathBuf::as_path),
            Self::V2(dir) => Some(dir),
        }
    }

    /// Usage and limits. Files that the kernel does not have count as zero.
    ///
    /// # Errors
    /// When the cgroup is gone or cannot be read.
    pub fn stats(&self) -> io::Result<Stats> {
        Ok(match self {
            Self::V1(_) => Stats::V1(Box::new(v1::Metrics::read(self)?)),
            Self::V2(dir) => Stats::V2(Box::new(v2::Metrics::read(dir)?)),
        })
    }

    /// CPU time that the cgroup used so far, in nanoseconds; none when the kernel does not say. One file is read.
    pub fn cpu_nanoseconds(&self) -> Option<u64> {
        match self {
            Self::V1(_) => files::text(self.dir("cpuacct")?, "cpuacct.usage").ok()??.trim().parse().ok(),
            Self::V2(dir) => {
                let text = files::text(dir, "cpu.stat").ok()??;
                let used = files::pairs(&text).find(|(key, _)| *key == "usage_usec");
                used.map(|(_, microseconds)| microseconds.saturating_mul(1000))
            }
        }
    }

    /// Ids of the processes in the cgroup and in those below it, in rising order.
    ///
    /// # Errors
    /// When the cgroup is gone.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        // Some controllers can be disabled, and "pids" is where runtimes always put the processes.
        let dir = ["pids", "freezer", "memory", "cpu", "systemd"]
            .iter()
            .find_map(|name| self.dir(name))
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let mut pids = Vec::new();
        collect(dir, MAX_DEPTH, &mut pids)?;
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// How many processes the kernel has killed in the cgroup for want of memory; none when it does not say.
    pub fn oom_kills(&self) -> Option<u64> {
        let file = match self {
            Self::V1(_) => "memory.oom_control",
            Self::V2(_) => "memory.events",
        };
        let text = files::text(self.dir("memory")?, file).ok()??;
        files::pairs(&text).find(|(key, _)| *key == "oom_kill").map(|(_, count)| count)
    }

    /// Starts to watch for out-of-memory kills.
    ///
    /// # Errors
    /// When the memory controller is not there or the kernel has no such notification.
    pub fn watch_oom(&self) -> io::Result<OomWatch> {
        let dir = self.dir("memory").ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        match self {
            Self::V1(_) => OomWatch::v1(dir),
            Self::V2(_) => OomWatch::v2(dir),
        }
    }

    /// Moves a process into the cgroup.
    ///
    /// # Errors
    /// When a hierarchy refuses it.
    pub fn add_process(&self, pid: u32) -> io::Result<()> {
        let enter = |dir: &Path| fs::write(dir.join("cgroup.procs"), pid.to_string());
        match self {
            Self::V1(dirs) => dirs.values().try_for_each(|dir| enter(dir)),
            Self::V2(dir) => enter(dir),
        }
    }

    /// The existing cgroup called `path`, in every hierarchy that has it.
    ///
    /// # Errors
    /// When no hierarchy has it.
    pub fn existing(path: &str) -> io::Result<Self> {
        let root = Path::new(ROOT);
        if root.join("cgroup.controllers").exists() {
            return Self::locate(root, &format!("0::{path}"), true);
        }
        let mut text = String::new();
        for entry in fs::read_dir(root)? {
            if let Some(name) = entry?.file_name().to_str() {
                text.push_str(&format!("1:{name}:{path}\n"));
            }
        }
        Self::locate(root, &text, false)
    }
}

fn collect(dir: &Path, depth: usize, pids: &mut Vec<u32>) -> io::Result<()> {
    let text = files::text(dir, "cgroup.procs")?.unwrap_or_default();
    pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    if depth == 0 {
        return Ok(());
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            match collect(&entry.path(), depth - 1, pids) {
                // Sub-cgroups come and go.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "cgroup/tests.rs"]
mod tests;
