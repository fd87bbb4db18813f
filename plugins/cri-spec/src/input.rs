use std::path::PathBuf;

use containerd_api_cri::v1;
use core_oci::{ImageConfig, Rootfs, Spec};
use serde_json::Value;

use crate::SelinuxDefaults;

/// Settings of the runtime service that rule specifications; names and defaults are those of the section
/// `io.containerd.cri.v1.runtime`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether requests for masked and read-only paths are ignored.
    pub disable_proc_mount: bool,
    /// The system call filter of containers that ask for none; empty for none.
    pub unset_seccomp_profile: String,
    /// Whether huge page limits are dropped when the host has no controller for them.
    pub tolerate_missing_hugetlb_controller: bool,
    /// Whether huge page limits are always dropped.
    pub disable_hugetlb_controller: bool,
    /// Whether devices belong to the user of the container.
    pub device_ownership_from_security_context: bool,
    /// Whether volumes that images declare are ignored.
    pub ignore_image_defined_volumes: bool,
    /// Whether pods may bind ports below 1024 without a capability.
    pub enable_unprivileged_ports: bool,
    /// Whether pods may ping without a capability.
    pub enable_unprivileged_icmp: bool,
    /// Whether OOM scores below the daemon's own are raised to it.
    pub restrict_oom_score_adj: bool,
    /// Whether CDI devices are injected.
    pub enable_cdi: bool,
    /// Where CDI specifications are, the last directory winning.
    pub cdi_spec_dirs: Vec<PathBuf>,
    /// Whether block I/O classes are ignored, which this runtime does not have.
    pub ignore_blockio_not_enabled_errors: bool,
    /// Whether RDT classes are ignored, which this runtime does not have.
    pub ignore_rdt_not_enabled_errors: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            disable_proc_mount: false,
            unset_seccomp_profile: String::new(),
            tolerate_missing_hugetlb_controller: true,
            disable_hugetlb_controller: true,
            device_ownership_from_security_context: false,
            ignore_image_defined_volumes: false,
            enable_unprivileged_ports: true,
            enable_unprivileged_icmp: true,
            restrict_oom_score_adj: false,
            enable_cdi: true,
            cdi_spec_dirs: vec!["/etc/cdi".into(), "/var/run/cdi".into()],
            ignore_blockio_not_enabled_errors: false,
            ignore_rdt_not_enabled_errors: false,
        }
    }
}

/// What a runtime handler's configuration and features say about specifications.
#[derive(Clone, Debug, Default)]
pub struct Handler {
    /// Patterns of pod annotations that the runtime gets.
    pub pod_annotations: Vec<String>,
    /// Patterns of container annotations that the runtime gets.
    pub container_annotations: Vec<String>,
    /// Whether privileged containers get no devices of the host.
    pub privileged_without_host_devices: bool,
    /// Whether they may use all devices nevertheless.
    pub privileged_without_host_devices_all_devices_allowed: bool,
    /// Whether unprivileged containers may write to their cgroup.
    pub cgroup_writable: bool,
    /// What `base_runtime_spec` holds: the specification that containers start from.
    pub base_spec: Option<Spec>,
    /// Whether the runtime can make mounts read-only recursively.
    pub recursive_read_only_mounts: bool,
}

/// What the specification of a sandbox's pause container is made from.
#[derive(Clone, Debug)]
pub struct SandboxInput<'a> {
    /// Id of the sandbox.
    pub id: &'a str,
    /// The request.
    pub config: &'a v1::PodSandboxConfig,
    /// Name of the pause image.
    pub image_name: &'a str,
    /// Configuration of the pause image.
    pub image: &'a ImageConfig,
    /// Root file system of the pause image, to look a named user up in; not needed for numbers.
    pub rootfs: Option<&'a Rootfs>,
    /// Path of the pod's network namespace; not used for pods in the host's network.
    pub network_namespace: &'a str,
    /// Path of a user namespace that is there already and owns the network namespace; `None` lets the runtime
    /// make one when the pod is to have its own.
    pub user_namespace: Option<&'a str>,
    /// Directory that is `/dev/shm` of the pod; the host's is taken for pods in its IPC namespace.
    pub shm: &'a str,
    /// The pod's `resolv.conf` on the host.
    pub resolv_conf: &'a str,
    /// SELinux level of the pod, as `s0:c1,c2`, when the request names none; see [`crate::SelinuxLevels`].
    pub selinux_level: Option<&'a str>,
    /// Settings of the service.
    pub options: &'a Options,
    /// Settings of the runtime handler.
    pub handler: &'a Handler,
}

/// A sandbox's specification.
#[derive(Clone, Debug)]
pub struct SandboxSpec {
    /// The specification.
    pub spec: Spec,
    /// SELinux label of the pod's processes, empty without SELinux; containers take it on.
    pub process_label: String,
    /// SELinux label of the pod's files.
    pub mount_label: String,
}

/// Namespaces of a pod, by their paths. `None` is the host's, and refused when the pod is to have its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNamespaces {
    /// Network.
    pub network: Option<String>,
    /// System V IPC and POSIX queues.
    pub ipc: Option<String>,
    /// Host name.
    pub uts: Option<String>,
    /// Processes.
    pub pid: Option<String>,
    /// User ids; only used by pods with a user namespace.
    pub user: Option<String>,
}

impl PodNamespaces {
    /// The namespaces that the process `pid` is in, which is the pause process.
    pub fn of_process(pid: u32) -> Self {
        let path = |kind: &str| Some(format!("/proc/{pid}/ns/{kind}"));
        Self { network: path("net"), ipc: path("ipc"), uts: path("uts"), pid: path("pid"), user: path("user") }
    }
}

/// Files of the pod that containers get when the request mounts nothing in their place; `None` for one that is
/// not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxFiles {
    /// For `/etc/hostname`.
    pub hostname: Option<PathBuf>,
    /// For `/etc/hosts`.
    pub hosts: Option<PathBuf>,
    /// For `/etc/resolv.conf`.
    pub resolv_conf: Option<PathBuf>,
    /// For `/dev/shm`.
    pub shm: Option<PathBuf>,
}

/// What the specification of a container is made from.
#[derive(Clone, Debug)]
pub struct ContainerInput<'a> {
    /// Id of the container.
    pub id: &'a str,
    /// Id of its sandbox.
    pub sandbox_id: &'a str,
    /// The request. Mounts of images must have their `host_path` filled in by now.
    pub config: &'a v1::ContainerConfig,
    /// The request that made the sandbox.
    pub sandbox_config: &'a v1::PodSandboxConfig,
    /// Name of the image, for runtimes to read.
    pub image_name: &'a str,
    /// Configuration of the image.
    pub image: &'a ImageConfig,
    /// Root file system, to look users and groups up in. `None` does for numbers, and then no groups of
    /// the image are found.
    pub rootfs: Option<&'a Rootfs>,
    /// The pod's namespaces.
    pub namespaces: &'a PodNamespaces,
    /// First process of the container that `namespace_options.target_id` names: running and of this pod, which the
    /// caller has made sure of.
    pub target_pid: Option<u32>,
    /// SELinux label of the pod's processes, see [`SandboxSpec::process_label`].
    pub sandbox_process_label: &'a str,
    /// SELinux level of its own, as `s0:c1,c2`, when neither the request nor the pod has one.
    pub selinux_level: Option<&'a str>,
    /// The pod's files.
    pub files: &'a SandboxFiles,
    /// Directory in which the volumes of the image get theirs.
    pub volumes_dir: PathBuf,
    /// Settings of the service.
    pub options: &'a Options,
    /// Settings of the runtime handler.
    pub handler: &'a Handler,
}

/// A container's specification and what must be done for it.
#[derive(Clone, Debug)]
pub struct ContainerSpec {
    /// The specification.
    pub spec: Spec,
    /// Volumes that the image declares: make these directories before the start, and copy in what the image has
    /// at their place.
    pub volumes: Vec<Volume>,
    /// SELinux label to keep for the container, which a privileged one has too but does not run with.
    pub process_label: String,
    /// SELinux label of its files.
    pub mount_label: String,
    /// Paths of the host to be labelled with `mount_label`, see [`crate::relabel`]; empty without SELinux.
    pub relabel: Vec<PathBuf>,
    /// Whether [`crate::APPARMOR_DEFAULT_PROFILE`] must be loaded before the start, see
    /// [`core_oci::apparmor::load_default`].
    pub needs_default_apparmor: bool,
}

/// A volume that an image declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Where in the container.
    pub container_path: String,
    /// The directory of the host that is mounted there.
    pub host_path: PathBuf,
}

/// New limits of a container.
#[derive(Clone, Debug)]
pub struct ResourceUpdate {
    /// Its specification with them.
    pub spec: Spec,
    /// `linux.resources` of it, which the task's update takes as JSON of type
    /// `types.containerd.io/opencontainers/runtime-spec/1/LinuxResources`.
    pub resources: Value,
}

/// The labels that a host with SELinux gives to containers; `None` in [`crate::Host`] stands for one without.
pub(crate) type Selinux<'a> = Option<&'a SelinuxDefaults>;
