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
            true => own_cgroup().is_some_and(|path| path.join("memory.swap.max").exists()),
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

/// The daemon's cgroup of version 2. The file for swap is not in the root cgroup, so it is looked for there.
fn own_cgroup() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/')))
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
