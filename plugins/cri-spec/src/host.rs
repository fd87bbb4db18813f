use std::{
    fs, io,
    path::{Path, PathBuf},
};

use core_mount::MountInfo;
use core_oci::{CdiRegistry, DeviceNode, current_capabilities};
use core_types::{Error, Result};

use crate::SelinuxDefaults;

/// Largest seccomp profile that is read.
const MAX_PROFILE: u64 = 4 << 20;
/// Where AppArmor shows itself.
const APPARMOR: &str = "/sys/kernel/security/apparmor";

/// What the host can do. It hardly changes: detect it once.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Whether cgroups are those of version 2 alone.
    pub cgroup_v2: bool,
    /// Whether AppArmor is there and to be used.
    pub apparmor: bool,
    /// Whether the kernel filters system calls.
    pub seccomp: bool,
    /// Labels of containers, when SELinux is there and to be used.
    pub selinux: Option<SelinuxDefaults>,
    /// Whether swap can be limited.
    pub swap_controller: bool,
    /// Whether huge pages can be limited.
    pub hugetlb_controller: bool,
    /// Whether the daemon itself runs in a user namespace.
    pub in_user_namespace: bool,
    /// OOM score adjustment of the daemon.
    pub oom_score_adj: i32,
    /// Name of the host.
    pub hostname: String,
    /// Capabilities of the daemon, as `CAP_CHOWN`: what "all" means.
    pub capabilities: Vec<String>,
}

impl Host {
    /// Finds out about this host. `selinux` and `apparmor` say whether the configuration wants them used.
    ///
    /// # Errors
    /// PermissionDenied when the daemon's own capabilities cannot be read.
    pub fn detect(selinux: bool, apparmor: bool) -> Result<Self> {
        let cgroup_v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let swap = match cgroup_v2 {
            true => can_limit_swap(Path::new("/sys/fs/cgroup"), &read("/proc/self/cgroup")),
            false => Path::new("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists(),
        };
        let hugetlb = match cgroup_v2 {
            true => read("/sys/fs/cgroup/cgroup.controllers").split_whitespace().any(|name| name == "hugetlb"),
            false => Path::new("/sys/fs/cgroup/hugetlb").is_dir(),
        };
        Ok(Self {
            cgroup_v2,
            apparmor: apparmor && has_apparmor(),
            seccomp: Path::new("/proc/sys/kernel/seccomp/actions_avail").exists(),
            selinux: if selinux { SelinuxDefaults::detect() } else { None },
            swap_controller: swap,
            hugetlb_controller: hugetlb,
            in_user_namespace: !is_initial_user_namespace(&read("/proc/self/uid_map")),
            oom_score_adj: read("/proc/self/oom_score_adj").trim().parse().unwrap_or(0),
            hostname: read("/proc/sys/kernel/hostname").trim().to_owned(),
            capabilities: current_capabilities()?,
        })
    }
}

/// Whether cgroups of version 2 have the file for swap. The root has none, so a daemon that is in it looks at those
/// below.
fn can_limit_swap(root: &Path, own: &str) -> bool {
    let has = |path: &Path| path.join("memory.swap.max").exists();
    let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").trim_matches('/');
    let below = || fs::read_dir(root).into_iter().flatten().flatten().any(|entry| has(&entry.path()));
    has(&root.join(own)) || own.is_empty() && below()
}

/// AppArmor is used when the kernel has it on and its parser is there to load profiles.
fn has_apparmor() -> bool {
    let on = fs::read("/sys/module/apparmor/parameters/enabled").is_ok_and(|value| value.first() == Some(&b'Y'));
    on && Path::new(APPARMOR).is_dir() && Path::new("/sbin/apparmor_parser").exists()
}

/// Whether a `uid_map` maps every id to itself.
fn is_initial_user_namespace(map: &str) -> bool {
    let numbers: Vec<u64> = map.split_whitespace().filter_map(|part| part.parse().ok()).collect();
    map.trim().is_empty() || numbers == [0, 0, u64::from(u32::MAX)]
}

/// What is looked up on the host while a specification is made.
pub trait HostFiles {
    /// The path to mount from for `path` of a request: links resolved, and a directory made where nothing is.
    ///
    /// # Errors
    /// What looking and making say.
    fn mount_source(&self, path: &Path) -> Result<PathBuf>;

    /// The device at a path after links, or all below a directory; their paths start with the one asked for.
    ///
    /// # Errors
    /// NotFound when nothing is there, InvalidArgument for what is no device.
    fn devices(&self, path: &Path) -> Result<Vec<DeviceNode>>;

    /// The text of a seccomp profile.
    ///
    /// # Errors
    /// NotFound, or what reading says.
    fn seccomp_profile(&self, path: &Path) -> Result<Vec<u8>>;

    /// Whether an AppArmor profile is loaded.
    ///
    /// # Errors
    /// What reading the list says.
    fn has_apparmor_profile(&self, name: &str) -> Result<bool>;

    /// The mounts of the host.
    ///
    /// # Errors
    /// What reading the table says.
    fn mounts(&self) -> Result<Vec<MountInfo>>;

    /// The CDI devices that the specifications in `directories` describe.
    fn cdi(&self, directories: &[PathBuf]) -> CdiRegistry;
}

/// The host that this process runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalHost;

impl HostFiles for LocalHost {
    fn mount_source(&self, path: &Path) -> Result<PathBuf> {
        let failed = |error| Error::io(format!("mount source {}", path.display()), error);
        match fs::canonicalize(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(path).map_err(failed)?;
                fs::canonicalize(path).map_err(failed)
            }
            other => other.map_err(failed),
        }
    }

    fn devices(&self, path: &Path) -> Result<Vec<DeviceNode>> {
        let real = fs::canonicalize(path).map_err(|error| Error::io(format!("device {}", path.display()), error))?;
        let mut found = DeviceNode::find(&real)?;
        for device in &mut found {
            if let Ok(rest) = Path::new(&device.path).strip_prefix(&real) {
                let asked = if rest.as_os_str().is_empty() { path.to_owned() } else { path.join(rest) };
                device.path = asked.to_string_lossy().into_owned();
            }
        }
        Ok(found)
    }

    fn seccomp_profile(&self, path: &Path) -> Result<Vec<u8>> {
        let failed = |error| Error::io(format!("seccomp profile {}", path.display()), error);
        let metadata = fs::metadata(path).map_err(failed)?;
        if !metadata.is_file() || metadata.len() > MAX_PROFILE {
            return Err(Error::invalid_argument(format!(
                "seccomp profile {} is not a file of at most {MAX_PROFILE} bytes",
                path.display()
            )));
        }
        fs::read(path).map_err(failed)
    }

    fn has_apparmor_profile(&self, name: &str) -> Result<bool> {
        core_oci::apparmor::is_loaded(name)
    }

    fn mounts(&self) -> Result<Vec<MountInfo>> {
        core_mount::read_mounts()
    }

    fn cdi(&self, directories: &[PathBuf]) -> CdiRegistry {
        CdiRegistry::load(directories)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_is_looked_for_where_it_can_be() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("system.slice/daemon")).unwrap();
        assert!(!can_limit_swap(root.path(), "0::/\n"));
        fs::write(root.path().join("system.slice/memory.swap.max"), "max").unwrap();
        assert!(can_limit_swap(root.path(), "0::/\n"), "from the root, which has no such file");
        assert!(can_limit_swap(root.path(), "0::/system.slice\n"));
        assert!(!can_limit_swap(root.path(), "0::/system.slice/daemon\n"));
    }

    #[test]
    fn mount_sources_are_made_and_their_links_resolved() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        let missing = root.join("a/b");
        assert_eq!(LocalHost.mount_source(&missing).unwrap(), missing);
        assert!(missing.is_dir());
        std::os::unix::fs::symlink("a/b", root.join("link")).unwrap();
        assert_eq!(LocalHost.mount_source(&root.join("link")).unwrap(), missing);
    }

    #[test]
    fn devices_keep_the_path_that_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        let found = LocalHost.devices(&link).unwrap();
        assert_eq!((found[0].path.as_str(), found[0].minor), (link.to_str().unwrap(), 3));
        assert!(LocalHost.devices(dir.path()).unwrap().is_empty(), "links in a directory are no devices");
        assert!(LocalHost.devices(Path::new("/no/such")).unwrap_err().is_not_found());
    }

    #[test]
    fn this_host_is_described() {
        let host = Host::detect(false, false).unwrap();
        assert!(!host.hostname.is_empty() && host.selinux.is_none() && !host.apparmor);
        assert!(is_initial_user_namespace("         0          0 4294967295\n"));
        assert!(!is_initial_user_namespace("0 1000 1\n"));
    }
}
