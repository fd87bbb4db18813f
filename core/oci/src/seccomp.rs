use core_types::{Error, Result};
use serde_json::{Value, json};

use crate::Spec;

mod syscalls;

/// ENOSYS, which makes programs fall back to an older call.
const ENOSYS: u32 = 38;
/// The kernel's crypto sockets; blocked, since they open much kernel code to a container.
const AF_ALG: u32 = 38;
/// Sockets to hypervisors; blocked.
const AF_VSOCK: u32 = 40;
/// Flags of `clone` that make namespaces.
const NAMESPACE_FLAGS: u32 = 0x7e02_0000;

/// Calls that come with a capability.
const BY_CAPABILITY: &[(&str, &[&str])] = &[
    ("CAP_DAC_READ_SEARCH", &["open_by_handle_at"]),
    (
        "CAP_SYS_ADMIN",
        &[
            "bpf",
            "clone",
            "clone3",
            "fanotify_init",
            "fsconfig",
            "fsmount",
            "fsopen",
            "fspick",
            "lookup_dcookie",
            "mount",
            "mount_setattr",
            "move_mount",
            "open_tree",
            "perf_event_open",
            "quotactl",
            "quotactl_fd",
            "setdomainname",
            "sethostname",
            "setns",
            "syslog",
            "umount",
            "umount2",
            "unshare",
        ],
    ),
    ("CAP_SYS_BOOT", &["reboot"]),
    ("CAP_SYS_CHROOT", &["chroot"]),
    ("CAP_SYS_MODULE", &["delete_module", "init_module", "finit_module"]),
    ("CAP_SYS_PACCT", &["acct"]),
    ("CAP_SYS_PTRACE", &["kcmp", "pidfd_getfd", "process_madvise", "process_vm_readv", "process_vm_writev", "ptrace"]),
    ("CAP_SYS_RAWIO", &["iopl", "ioperm"]),
    ("CAP_SYS_TIME", &["settimeofday", "stime", "clock_settime", "clock_settime64"]),
    ("CAP_SYS_TTY_CONFIG", &["vhangup"]),
    ("CAP_SYS_NICE", &["get_mempolicy", "mbind", "set_mempolicy", "set_mempolicy_home_node"]),
    ("CAP_SYSLOG", &["syslog"]),
    ("CAP_BPF", &["bpf"]),
    ("CAP_PERFMON", &["perf_event_open"]),
];

/// Processors that a filter for this host must cover.
fn architectures() -> &'static [&'static str] {
    match std::env::consts::ARCH {
        "x86_64" => &["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "aarch64" => &["SCMP_ARCH_ARM", "SCMP_ARCH_AARCH64"],
        "s390x" => &["SCMP_ARCH_S390", "SCMP_ARCH_S390X"],
        "riscv64" => &["SCMP_ARCH_RISCV64"],
        "loongarch64" => &["SCMP_ARCH_LOONGARCH64"],
        _ => &[],
    }
}

/// Calls that only some processors have.
fn architecture_calls() -> &'static [&'static str] {
    match std::env::consts::ARCH {
        "powerpc64" => &["sync_file_range2", "swapcontext"],
        "arm" | "aarch64" => {
            &["arm_fadvise64_64", "arm_sync_file_range", "sync_file_range2", "breakpoint", "cacheflush", "set_tls"]
        }
        "x86_64" => &["arch_prctl", "modify_ldt"],
        "x86" => &["modify_ldt"],
        "s390x" => &["s390_pci_mmio_read", "s390_pci_mmio_write", "s390_runtime_instr"],
        "riscv64" => &["riscv_flush_icache", "riscv_hwprobe"],
        _ => &[],
    }
}

fn allow(names: &[&str]) -> Value {
    json!({"names": names, "action": "SCMP_ACT_ALLOW"})
}

fn allow_if(name: &str, index: u32, value: u32, op: &str) -> Value {
    json!({
        "names": [name],
        "action": "SCMP_ACT_ALLOW",
        "args": [{"index": index, "value": value, "op": op}],
    })
}

impl Spec {
    /// Sets containerd's default system call filter for the capabilities the process has, so those come first.
    pub fn set_default_seccomp(&mut self) {
        let capabilities = self.texts("/process/capabilities/bounding");
        self.object(&["linux"]).insert("seccomp".into(), default_profile(&capabilities));
    }

    /// Sets a filter from a profile in JSON, as the runtime specification has it.
    ///
    /// # Errors
    /// InvalidArgument when it is no JSON object.
    pub fn set_seccomp_profile(&mut self, profile: &[u8]) -> Result<()> {
        let value: Value = serde_json::from_slice(profile)
            .map_err(|error| Error::invalid_argument(format!("decoding seccomp profile failed: {error}")))?;
        if !value.is_object() {
            return Err(Error::invalid_argument("decoding seccomp profile failed: not an object"));
        }
        self.object(&["linux"]).insert("seccomp".into(), value);
        Ok(())
    }
}

fn default_profile(capabilities: &[String]) -> Value {
    let mut rules = vec![
        allow(syscalls::ALWAYS),
        allow_if("socket", 0, AF_ALG, "SCMP_CMP_LT"),
        allow_if("socket", 0, AF_ALG + 1, "SCMP_CMP_EQ"),
        allow_if("socket", 0, AF_VSOCK, "SCMP_CMP_GT"),
    ];
    for persona in [0x0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff] {
        rules.push(allow_if("personality", 0, persona, "SCMP_CMP_EQ"));
    }
    // Safe since Linux 4.8, where filters are applied after ptrace; older kernels are not supported.
    rules.push(allow(&["process_vm_readv", "process_vm_writev", "ptrace"]));
    if !architecture_calls().is_empty() {
        rules.push(allow(architecture_calls()));
    }
    let has = |name: &str| capabilities.iter().any(|have| have == name);
    rules.extend(BY_CAPABILITY.iter().filter(|(name, _)| has(name)).map(|(_, calls)| allow(calls)));
    if !has("CAP_SYS_ADMIN") {
        let index = if std::env::consts::ARCH == "s390x" { 1 } else { 0 };
        rules.push(json!({
            "names": ["clone"],
            "action": "SCMP_ACT_ALLOW",
            "args": [{"index": index, "value": NAMESPACE_FLAGS, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}],
        }));
        rules.push(json!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS}));
    }
    json!({"defaultAction": "SCMP_ACT_ERRNO", "architectures": architectures(), "syscalls": rules})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules<'a>(profile: &'a Value, call: &str) -> Vec<&'a Value> {
        let names = |rule: &Value| rule["names"].as_array().unwrap().iter().any(|name| name == call);
        profile["syscalls"].as_array().unwrap().iter().filter(|rule| names(rule)).collect()
    }

    #[test]
    fn crypto_and_hypervisor_sockets_are_blocked() {
        let profile = default_profile(&[]);
        let allowed = |family: u64| {
            rules(&profile, "socket").iter().any(|rule| {
                let arg = &rule["args"][0];
                let value = arg["value"].as_u64().unwrap();
                match arg["op"].as_str().unwrap() {
                    "SCMP_CMP_LT" => family < value,
                    "SCMP_CMP_EQ" => family == value,
                    "SCMP_CMP_GT" => family > value,
                    other => panic!("{other}"),
                }
            })
        };
        assert!(allowed(1) && allowed(2) && allowed(16) && allowed(39) && allowed(41));
        assert!(!allowed(38), "AF_ALG");
        assert!(!allowed(40), "AF_VSOCK");
        assert!(!syscalls::ALWAYS.contains(&"socket"));
    }

    #[test]
    fn namespaces_need_the_admin_capability() {
        let plain = default_profile(&["CAP_CHOWN".into()]);
        assert!(rules(&plain, "unshare").is_empty() && rules(&plain, "mount").is_empty());
        assert_eq!(rules(&plain, "clone3")[0]["errnoRet"], ENOSYS);
        let admin = default_profile(&["CAP_SYS_ADMIN".into()]);
        assert_eq!(rules(&admin, "unshare").len(), 1);
        assert_eq!(rules(&admin, "clone3")[0]["action"], "SCMP_ACT_ALLOW");
    }
}
