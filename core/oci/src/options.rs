use core_types::{Error, Labels, Result};
use serde_json::{Value, json};

use crate::{BindMount, Spec, current_capabilities, env};

/// The kinds of namespace that a specification may name.
pub const NAMESPACE_TYPES: [&str; 7] = ["pid", "network", "uts", "mount", "user", "ipc", "cgroup"];

/// A range of ids in a user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMapping {
    /// First id in the container.
    pub container: u32,
    /// First id on the host.
    pub host: u32,
    /// How many.
    pub size: u32,
}

impl IdMapping {
    /// Reads `container:host:size`.
    ///
    /// # Errors
    /// InvalidArgument for another form or numbers over 32 bits.
    pub fn parse(text: &str) -> Result<Self> {
        let form = "user namespace mappings require the format `container-id:host-id:size`";
        let parts: Vec<&str> = text.split(':').collect();
        let [container, host, size] = parts[..] else {
            return Err(Error::invalid_argument(form));
        };
        let number = |part: &str| {
            part.parse::<u32>().map_err(|error| Error::invalid_argument(format!("{form}: {part:?}: {error}")))
        };
        Ok(Self { container: number(container)?, host: number(host)?, size: number(size)? })
    }

    /// As the runtime specification has it.
    pub fn to_json(self) -> Value {
        json!({"containerID": self.container, "hostID": self.host, "size": self.size})
    }
}

/// The process and its surroundings.
impl Spec {
    /// Sets the command line.
    pub fn set_args<I: IntoIterator<Item: Into<String>>>(&mut self, args: I) {
        let args: Vec<String> = args.into_iter().map(Into::into).collect();
        self.object(&["process"]).insert("args".into(), json!(args));
    }

    /// Sets the whole environment.
    pub fn set_env(&mut self, variables: impl IntoIterator<Item = String>) {
        let variables: Vec<String> = variables.into_iter().collect();
        self.object(&["process"]).insert("env".into(), json!(variables));
    }

    /// Changes the environment, see [`env::merge`].
    pub fn add_env(&mut self, variables: &[String]) {
        let merged = env::merge(&self.texts("/process/env"), variables);
        self.set_env(merged);
    }

    /// Sets the working directory.
    pub fn set_cwd(&mut self, directory: &str) {
        self.object(&["process"]).insert("cwd".into(), json!(directory));
    }

    /// Gives the process a terminal, and says so in its environment.
    pub fn set_terminal(&mut self) {
        self.object(&["process"]).insert("terminal".into(), json!(true));
        self.add_env(&["TERM=xterm".to_owned()]);
    }

    /// Allows or forbids the process to gain privileges by running a file.
    pub fn set_no_new_privileges(&mut self, forbidden: bool) {
        self.object(&["process"]).insert("noNewPrivileges".into(), json!(forbidden));
    }

    /// Sets how readily the kernel kills the process when memory runs out (-1000 to 1000).
    pub fn set_oom_score_adj(&mut self, score: i32) {
        self.object(&["process"]).insert("oomScoreAdj".into(), json!(score));
    }

    /// Sets a resource limit such as `RLIMIT_NOFILE`; one of that type is replaced.
    pub fn set_rlimit(&mut self, kind: &str, soft: u64, hard: u64) {
        let list = self.list(&["process"], "rlimits");
        list.retain(|have| have["type"].as_str() != Some(kind));
        list.push(json!({"type": kind, "hard": hard, "soft": soft}));
    }

    /// Sets the AppArmor profile.
    pub fn set_apparmor_profile(&mut self, profile: &str) {
        self.object(&["process"]).insert("apparmorProfile".into(), json!(profile));
    }

    /// Sets the host name.
    pub fn set_hostname(&mut self, name: &str) {
        self.0.insert("hostname".into(), json!(name));
    }

    /// Adds annotations.
    pub fn add_annotations(&mut self, annotations: &Labels) {
        if annotations.is_empty() {
            return;
        }
        let object = self.object(&["annotations"]);
        for (key, value) in annotations {
            object.insert(key.clone(), json!(value));
        }
    }

    /// Sets the root file system: a path of the host, absolute.
    pub fn set_root_path(&mut self, path: &str) {
        self.object(&["root"]).insert("path".into(), json!(path));
    }

    /// Makes the root file system read-only.
    pub fn set_root_readonly(&mut self) {
        self.object(&["root"]).insert("readonly".into(), json!(true));
    }

    /// Sets the propagation of the root mount (`rprivate`, `rslave`, `rshared` …).
    pub fn set_rootfs_propagation(&mut self, mode: &str) {
        self.object(&["linux"]).insert("rootfsPropagation".into(), json!(mode));
    }

    /// Sets the cgroup's path; empty for none of its own.
    pub fn set_cgroups_path(&mut self, path: &str) {
        self.object(&["linux"]).insert("cgroupsPath".into(), json!(path));
    }
}

/// Namespaces.
impl Spec {
    /// Leaves the container in the host's namespace of this kind.
    pub fn use_host_namespace(&mut self, kind: &str) {
        self.list(&["linux"], "namespaces").retain(|have| have["type"].as_str() != Some(kind));
    }

    /// Gives a namespace of this kind; with `path`, an existing one.
    ///
    /// # Errors
    /// InvalidArgument for an unknown kind.
    pub fn set_namespace(&mut self, kind: &str, path: Option<&str>) -> Result<()> {
        if !NAMESPACE_TYPES.contains(&kind) {
            return Err(Error::invalid_argument(format!(
                "the Linux namespace type {kind:?} is not one of {}",
                NAMESPACE_TYPES.join(", ")
            )));
        }
        let entry = match path {
            Some(path) => json!({"type": kind, "path": path}),
            None => json!({"type": kind}),
        };
        let list = self.list(&["linux"], "namespaces");
        match list.iter_mut().find(|have| have["type"].as_str() == Some(kind)) {
            Some(have) => *have = entry,
            None => list.push(entry),
        }
        Ok(())
    }

    /// Runs in a user namespace with these ids.
    ///
    /// # Errors
    /// None in practice; the kind is known.
    pub fn set_user_namespace(&mut self, uids: &[IdMapping], gids: &[IdMapping]) -> Result<()> {
        self.set_namespace("user", None)?;
        let to_json = |maps: &[IdMapping]| maps.iter().map(|map| map.to_json()).collect::<Vec<_>>();
        let linux = self.object(&["linux"]);
        linux.insert("uidMappings".into(), json!(to_json(uids)));
        linux.insert("gidMappings".into(), json!(to_json(gids)));
        Ok(())
    }

    /// Uses the host's network, with its `hosts` and `resolv.conf`, and names it in `HOSTNAME`.
    pub fn use_host_network(&mut self, hostname: &str) {
        self.use_host_namespace("network");
        self.add_mounts([BindMount::of_host_file("/etc/hosts"), BindMount::of_host_file("/etc/resolv.conf")]);
        self.add_env(&[format!("HOSTNAME={hostname}")]);
    }

    /// Lifts what confines a container: all capabilities of this process, nothing masked or read-only,
    /// writable `/sys` and cgroups, no seccomp, AppArmor or SELinux.
    ///
    /// # Errors
    /// PermissionDenied when the kernel does not tell this process's capabilities.
    pub fn set_privileged(&mut self) -> Result<()> {
        let all = current_capabilities()?;
        self.lift_confinement(&all);
        Ok(())
    }

    /// [`Spec::set_privileged`] with the capabilities that are given.
    pub fn lift_confinement(&mut self, capabilities: &[String]) {
        self.set_capabilities(capabilities);
        self.make_writable("sysfs");
        self.make_writable("cgroup");
        let linux = self.object(&["linux"]);
        for key in ["maskedPaths", "readonlyPaths", "seccomp"] {
            linux.shift_remove(key);
        }
        let process = self.object(&["process"]);
        for key in ["selinuxLabel", "apparmorProfile"] {
            process.shift_remove(key);
        }
    }
}

/// Limits.
impl Spec {
    /// Limits memory, in bytes.
    pub fn set_memory_limit(&mut self, bytes: u64) {
        self.object(&["linux", "resources", "memory"]).insert("limit".into(), json!(bytes));
    }

    /// Sets the CPU weight.
    pub fn set_cpu_shares(&mut self, shares: u64) {
        self.object(&["linux", "resources", "cpu"]).insert("shares".into(), json!(shares));
    }

    /// Limits CPU time to `quota` of every `period`, both in microseconds.
    pub fn set_cpu_quota(&mut self, quota: i64, period: u64) {
        let cpu = self.object(&["linux", "resources", "cpu"]);
        cpu.insert("quota".into(), json!(quota));
        cpu.insert("period".into(), json!(period));
    }

    /// Limits CPU time to this many processors.
    pub fn set_cpus(&mut self, cpus: f64) {
        const PERIOD: u64 = 100_000;
        // Fractions of a microsecond are lost on purpose.
        #[allow(clippy::cast_possible_truncation)]
        self.set_cpu_quota((cpus * 100_000.0) as i64, PERIOD);
    }

    /// Sets how far over its quota the container may go after a time of rest, in microseconds.
    pub fn set_cpu_burst(&mut self, burst: u64) {
        self.object(&["linux", "resources", "cpu"]).insert("burst".into(), json!(burst));
    }

    /// Binds to processors, as `1-2,4`.
    pub fn set_cpuset_cpus(&mut self, set: &str) {
        self.object(&["linux", "resources", "cpu"]).insert("cpus".into(), json!(set));
    }

    /// Binds to memory nodes, as `0-1`.
    pub fn set_cpuset_mems(&mut self, set: &str) {
        self.object(&["linux", "resources", "cpu"]).insert("mems".into(), json!(set));
    }
}

#[cfg(test)]
mod tests {
    use core_types::Namespace;

    use super::*;

    fn spec() -> Spec {
        Spec::linux(&Namespace::new("default").unwrap(), "c")
    }

    #[test]
    fn host_network_takes_the_namespace_away_and_brings_the_resolver() {
        let mut spec = spec();
        spec.use_host_network("box");
        let text = serde_json::to_string(spec.get("/linux/namespaces").unwrap()).unwrap();
        assert!(!text.contains("network"));
        assert!(serde_json::to_string(spec.get("/mounts").unwrap()).unwrap().contains("/etc/resolv.conf"));
        assert!(spec.texts("/process/env").contains(&"HOSTNAME=box".to_owned()));
    }

    #[test]
    fn joining_a_namespace_replaces_the_new_one() {
        let mut spec = spec();
        spec.set_namespace("network", Some("/proc/1/ns/net")).unwrap();
        spec.set_namespace("cgroup", None).unwrap();
        assert_eq!(spec.get("/linux/namespaces/4/path").unwrap(), "/proc/1/ns/net");
        assert_eq!(spec.get("/linux/namespaces/5/type").unwrap(), "cgroup");
        assert!(spec.set_namespace("time machine", None).is_err());
    }

    #[test]
    fn limits_share_one_object() {
        let mut spec = spec();
        spec.set_cpus(1.5);
        spec.set_cpu_shares(512);
        spec.set_memory_limit(64 << 20);
        assert_eq!(spec.get("/linux/resources/cpu/quota").unwrap(), 150_000);
        assert_eq!(spec.get("/linux/resources/cpu/shares").unwrap(), 512);
        assert_eq!(spec.get("/linux/resources/memory/limit").unwrap(), 64 << 20);
        assert_eq!(spec.get("/linux/resources/devices/0/access").unwrap(), "rwm");
    }

    #[test]
    fn privileged_masks_nothing() {
        let mut spec = spec();
        spec.set_default_seccomp();
        spec.set_privileged().unwrap();
        for gone in ["/linux/maskedPaths", "/linux/readonlyPaths", "/linux/seccomp"] {
            assert!(spec.get(gone).is_none(), "{gone}");
        }
        let mounts = serde_json::to_string(spec.get("/mounts").unwrap()).unwrap();
        assert!(!mounts.contains(r#""ro""#));
    }

    #[test]
    fn id_mappings_need_three_numbers() {
        assert_eq!(IdMapping::parse("0:100000:65536").unwrap(), IdMapping { container: 0, host: 100_000, size: 65536 });
        for bad in ["0:1", "0:1:2:3", "a:1:2", "0:1:4294967296", "-1:0:1"] {
            assert!(IdMapping::parse(bad).is_err(), "{bad}");
        }
    }
}
