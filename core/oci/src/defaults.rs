use core_types::Namespace;
use serde_json::{Value, json};

use crate::{DEFAULT_CAPABILITIES, OCI_VERSION, Spec};

/// Kernel interfaces that a container must not see.
const MASKED_PATHS: [&str; 11] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
    "/proc/scsi",
];

/// Kernel interfaces that a container may only read.
const READONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

impl Spec {
    /// The specification that a Linux container `id` in `namespace` starts from: containerd's default, with
    /// new namespaces of every kind but user and cgroup, 14 capabilities, no new privileges and no devices.
    pub fn linux(namespace: &Namespace, id: &str) -> Self {
        let capabilities = json!(DEFAULT_CAPABILITIES);
        let value = json!({
            "ociVersion": OCI_VERSION,
            "process": {
                "user": {"uid": 0, "gid": 0},
                "cwd": "/",
                "capabilities": {
                    "bounding": capabilities,
                    "effective": capabilities,
                    "permitted": capabilities,
                },
                "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
                "noNewPrivileges": true,
            },
            "root": {"path": "rootfs"},
            "mounts": default_mounts(),
            "linux": {
                "resources": {"devices": [{"allow": false, "access": "rwm"}]},
                "cgroupsPath": format!("/{namespace}/{id}"),
                "namespaces": [
                    {"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "network"},
                ],
                "maskedPaths": MASKED_PATHS,
                "readonlyPaths": READONLY_PATHS,
            },
        });
        match value {
            Value::Object(object) => Self(object),
            _ => unreachable!("written as an object above"),
        }
    }
}

fn default_mounts() -> Value {
    let mount = |destination: &str, kind: &str, source: &str, options: &[&str]| json!({"destination": destination, "type": kind, "source": source, "options": options});
    Value::Array(vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        mount("/dev/shm", "tmpfs", "shm", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
        mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        mount("/run", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_containerds() {
        let spec = Spec::linux(&Namespace::new("k8s.io").unwrap(), "web");
        assert_eq!(spec.text("/linux/cgroupsPath"), "/k8s.io/web");
        assert_eq!(spec.get("/process/noNewPrivileges"), Some(&Value::Bool(true)));
        assert_eq!(spec.texts("/process/capabilities/bounding").len(), 14);
        assert!(spec.get("/process/capabilities/inheritable").is_none(), "inheritable stays empty");
        assert!(spec.get("/process/capabilities/ambient").is_none());
        assert_eq!(spec.get("/mounts").unwrap().as_array().unwrap().len(), 7);
        assert!(spec.texts("/linux/maskedPaths").contains(&"/sys/devices/virtual/powercap".to_owned()));
        assert_eq!(spec.get("/linux/resources/devices/0/allow"), Some(&Value::Bool(false)));
        let namespaces: Vec<&str> = spec
            .get("/linux/namespaces")
            .unwrap()
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|entry| entry["type"].as_str())
            .collect();
        assert_eq!(namespaces, ["pid", "ipc", "uts", "mount", "network"]);
    }
}
