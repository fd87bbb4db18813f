//! The sections of the configuration that rule the runtime service; names and defaults are containerd's.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

/// Section `io.containerd.cri.v1.runtime`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct RuntimeConfig {
    /// Runtimes by handler name.
    pub containerd: Runtimes,
    /// Networks of pods.
    pub cni: CniConfig,
    /// Whether processes and mounts get SELinux labels.
    pub enable_selinux: bool,
    /// Upper bound of SELinux categories.
    pub selinux_category_range: u32,
    /// Longest line of a log, in bytes; what is longer is split. Zero or less: no bound.
    pub max_container_log_line_size: i64,
    /// Whether AppArmor is not used although the host has it.
    pub disable_apparmor: bool,
    /// Whether OOM scores below the daemon's own are raised to it.
    pub restrict_oom_score_adj: bool,
    /// Whether requests for masked and read-only paths of `/proc` are ignored.
    pub disable_proc_mount: bool,
    /// The system call filter of containers that ask for none; empty for none.
    pub unset_seccomp_profile: String,
    /// Whether huge page limits are dropped when the host has no controller for them.
    pub tolerate_missing_hugetlb_controller: bool,
    /// Whether the controller of huge pages is left alone.
    pub disable_hugetlb_controller: bool,
    /// Whether devices belong to the user of the container.
    pub device_ownership_from_security_context: bool,
    /// Whether volumes that images declare are ignored.
    pub ignore_image_defined_volumes: bool,
    /// Whether network namespaces are pinned below the state directory and not in `/var/run/netns`.
    pub netns_mounts_under_state_dir: bool,
    /// Whether containers may bind ports below 1024 without a capability.
    pub enable_unprivileged_ports: bool,
    /// Whether containers may ping without a capability.
    pub enable_unprivileged_icmp: bool,
    /// Whether CDI devices are injected.
    pub enable_cdi: bool,
    /// Where CDI specifications are.
    pub cdi_spec_dirs: Vec<String>,
    /// How long ExecSync waits for output of processes that the command left behind; zero: for ever.
    #[serde(with = "core_types::duration::text")]
    pub drain_exec_sync_io_timeout: Duration,
    /// Warnings about old settings that are not shown.
    pub ignore_deprecation_warnings: Vec<String>,
    /// How often statistics are sampled; empty for one second.
    pub stats_collect_period: String,
    /// How long samples are kept; empty for two minutes.
    pub stats_retention_period: String,
    /// Whether checkpoints are allowed when CRIU is there.
    pub enable_criu: bool,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            containerd: Runtimes::default(),
            cni: CniConfig::default(),
            enable_selinux: false,
            selinux_category_range: 1024,
            max_container_log_line_size: 16 * 1024,
            disable_apparmor: false,
            restrict_oom_score_adj: false,
            disable_proc_mount: false,
            unset_seccomp_profile: String::new(),
            tolerate_missing_hugetlb_controller: true,
            disable_hugetlb_controller: true,
            device_ownership_from_security_context: false,
            ignore_image_defined_volumes: false,
            netns_mounts_under_state_dir: false,
            enable_unprivileged_ports: true,
            enable_unprivileged_icmp: true,
            enable_cdi: true,
            cdi_spec_dirs: vec!["/etc/cdi".into(), "/var/run/cdi".into()],
            drain_exec_sync_io_timeout: Duration::ZERO,
            ignore_deprecation_warnings: Vec::new(),
            stats_collect_period: String::new(),
            stats_retention_period: String::new(),
            enable_criu: true,
        }
    }
}

/// Which runtimes there are.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Runtimes {
    /// The handler of pods that name none.
    pub default_runtime_name: String,
    /// All handlers.
    pub runtimes: BTreeMap<String, Runtime>,
    /// Whether block I/O classes are ignored where the host has none.
    pub ignore_blockio_not_enabled_errors: bool,
    /// Whether RDT classes are ignored where the host has none.
    pub ignore_rdt_not_enabled_errors: bool,
}

impl Default for Runtimes {
    fn default() -> Self {
        Self {
            default_runtime_name: "runc".into(),
            runtimes: BTreeMap::from([("runc".into(), Runtime::runc())]),
            ignore_blockio_not_enabled_errors: false,
            ignore_rdt_not_enabled_errors: false,
        }
    }
}

/// One runtime handler.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Runtime {
    /// Its shim, `io.containerd.runc.v2`.
    pub runtime_type: String,
    /// Path of the shim's binary; empty to find it by the type.
    pub runtime_path: String,
    /// Patterns of pod annotations that are passed to the runtime.
    pub pod_annotations: Vec<String>,
    /// Patterns of container annotations that are passed to the runtime.
    pub container_annotations: Vec<String>,
    /// Options of the shim.
    pub options: toml::Table,
    /// Whether privileged containers get no devices of the host.
    pub privileged_without_host_devices: bool,
    /// Whether they may use all devices nevertheless.
    pub privileged_without_host_devices_all_devices_allowed: bool,
    /// Whether unprivileged containers may write to their cgroup (version 2 only).
    pub cgroup_writable: bool,
    /// File with the OCI specification to start from.
    pub base_runtime_spec: String,
    /// Directory of CNI configurations of its pods; empty for the common one.
    pub cni_conf_dir: String,
    /// Most configurations of it that are used.
    pub cni_max_conf_num: usize,
    /// Snapshotter of its containers; empty for the common one.
    pub snapshotter: String,
    /// Which controller runs its pods: `podsandbox` or `shim`.
    pub sandboxer: String,
    /// How streams are passed: `fifo` or `streaming`; empty for FIFOs.
    pub io_type: String,
}

impl Runtime {
    fn runc() -> Self {
        let mut options = toml::Table::new();
        for text in ["BinaryName", "CriuImagePath", "CriuWorkPath", "Root", "ShimCgroup"] {
            options.insert(text.into(), String::new().into());
        }
        for number in ["IoGid", "IoUid"] {
            options.insert(number.into(), 0.into());
        }
        for flag in ["NoNewKeyring", "SystemdCgroup"] {
            options.insert(flag.into(), false.into());
        }
        Self {
            runtime_type: "io.containerd.runc.v2".into(),
            sandboxer: "podsandbox".into(),
            options,
            ..Self::default()
        }
    }
}

/// How pods get their network.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct CniConfig {
    /// Directory of plugins, the old key.
    pub bin_dir: String,
    /// Directories of plugins.
    pub bin_dirs: Vec<String>,
    /// Directory of configurations.
    pub conf_dir: String,
    /// Most configurations that are used; zero: all.
    pub max_conf_num: usize,
    /// Whether networks are attached one after the other.
    pub setup_serially: bool,
    /// Template of a configuration, filled with the pod CIDR; empty for none.
    pub conf_template: String,
    /// Which address comes first: `ipv4`, `ipv6`, `cni`; empty for `ipv4`.
    pub ip_pref: String,
    /// Whether the daemon brings the loopback device up itself.
    pub use_internal_loopback: bool,
}

impl Default for CniConfig {
    fn default() -> Self {
        Self {
            bin_dir: String::new(),
            bin_dirs: vec!["/opt/cni/bin".into()],
            conf_dir: "/etc/cni/net.d".into(),
            max_conf_num: 1,
            setup_serially: false,
            conf_template: String::new(),
            ip_pref: String::new(),
            use_internal_loopback: false,
        }
    }
}

/// Section `io.containerd.grpc.v1.cri`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerConfig {
    /// Whether CRI is not served over TCP; the only mode there is.
    pub disable_tcp_service: bool,
    /// Address of the streaming server.
    pub stream_server_address: String,
    /// Its port; zero for any.
    pub stream_server_port: String,
    /// How long a stream may be idle.
    #[serde(with = "core_types::duration::text")]
    pub stream_idle_timeout: Duration,
    /// Whether it speaks TLS.
    pub enable_tls_streaming: bool,
    /// Its certificate.
    pub x509_key_pair_streaming: KeyPair,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            disable_tcp_service: true,
            stream_server_address: "127.0.0.1".into(),
            stream_server_port: "0".into(),
            stream_idle_timeout: Duration::from_secs(4 * 3600),
            enable_tls_streaming: false,
            x509_key_pair_streaming: KeyPair::default(),
        }
    }
}

/// A certificate and its key.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyPair {
    /// File of the certificate.
    pub tls_cert_file: String,
    /// File of the key.
    pub tls_key_file: String,
}
