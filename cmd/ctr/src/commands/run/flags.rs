use std::path::PathBuf;

/// Flags of `run` and `containers create`.
#[derive(Debug, clap::Args)]
pub(crate) struct ContainerFlags {
    /// Path to the runtime-specific spec config file
    #[arg(short, long)]
    pub(crate) config: Option<PathBuf>,
    /// Specify the working directory of the process
    #[arg(long)]
    pub(crate) cwd: Option<String>,
    /// Specify additional container environment variables (e.g. FOO=bar)
    #[arg(long)]
    pub(crate) env: Vec<String>,
    /// Specify additional container environment variables in a file (e.g. FOO=bar, one per line)
    #[arg(long)]
    pub(crate) env_file: Option<PathBuf>,
    /// Specify additional labels (e.g. foo=bar)
    #[arg(long)]
    pub(crate) label: Vec<String>,
    /// Specify additional OCI annotations (e.g. foo=bar)
    #[arg(long)]
    pub(crate) annotation: Vec<String>,
    /// Specify additional container mount (e.g. type=bind,src=/tmp,dst=/host,options=rbind:ro)
    #[arg(long)]
    pub(crate) mount: Vec<String>,
    /// Enable host networking for the container
    #[arg(long)]
    pub(crate) net_host: bool,
    /// Run privileged container
    #[arg(long)]
    pub(crate) privileged: bool,
    /// Set the containers filesystem as readonly
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Create the container in the given sandbox
    #[arg(long)]
    pub(crate) sandbox: Option<String>,
    /// Allocate a TTY for the container
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// Specify existing Linux namespaces to join at container runtime (format 'nstype:path')
    #[arg(long)]
    pub(crate) with_ns: Vec<String>,
    /// File path to write the task's pid
    #[arg(long)]
    pub(crate) pid_file: Option<PathBuf>,
    /// Add gpus to the container (not available yet)
    #[arg(long)]
    pub(crate) gpus: Vec<u32>,
    /// Turn off OCI spec's NoNewPrivileges feature flag
    #[arg(long)]
    pub(crate) allow_new_privs: bool,
    /// Memory limit (in bytes) for the container
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    pub(crate) memory_limit: u64,
    /// Add Linux capabilities (Set capabilities with 'CAP_' prefix)
    #[arg(long)]
    pub(crate) cap_add: Vec<String>,
    /// Drop Linux capabilities (Set capabilities with 'CAP_' prefix)
    #[arg(long)]
    pub(crate) cap_drop: Vec<String>,
    /// Enable the default seccomp profile
    #[arg(long)]
    pub(crate) seccomp: bool,
    /// File path to custom seccomp profile. seccomp must be set to true, before using seccomp-profile
    #[arg(long)]
    pub(crate) seccomp_profile: Option<PathBuf>,
    /// Enable AppArmor with the default profile with the specified name (not available yet)
    #[arg(long)]
    pub(crate) apparmor_default_profile: Option<String>,
    /// Enable AppArmor with an existing custom profile
    #[arg(long)]
    pub(crate) apparmor_profile: Option<String>,
    /// File path to blockio class definitions (not available yet)
    #[arg(long)]
    pub(crate) blockio_config_file: Option<PathBuf>,
    /// Name of the blockio class to associate the container with (not available yet)
    #[arg(long)]
    pub(crate) blockio_class: Option<String>,
    /// Name of the RDT class to associate the container with (not available yet)
    #[arg(long)]
    pub(crate) rdt_class: Option<String>,
    /// Set the container's host name
    #[arg(long)]
    pub(crate) hostname: Option<String>,
    /// Username or user id, group optional (format: `<name|uid>[:<group|gid>]`)
    #[arg(short, long)]
    pub(crate) user: Option<String>,
    /// Use custom rootfs that is not managed by containerd snapshotter
    #[arg(long)]
    pub(crate) rootfs: bool,
    /// Disable use of pivot-root (linux only)
    #[arg(long)]
    pub(crate) no_pivot: bool,
    /// Limit CPU CFS quota
    #[arg(long, default_value_t = -1, allow_hyphen_values = true)]
    pub(crate) cpu_quota: i64,
    /// Limit CPU CFS period
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    pub(crate) cpu_period: u64,
    /// Set the propagation of the container rootfs
    #[arg(long)]
    pub(crate) rootfs_propagation: Option<String>,
    /// File path to a device to add to the container; or a path to a directory tree of devices
    #[arg(long)]
    pub(crate) device: Vec<String>,
    /// Labels added to the new snapshot for this container
    #[arg(long)]
    pub(crate) snapshotter_label: Vec<String>,
}

/// Flags of `run` alone.
#[derive(Debug, clap::Args)]
pub(crate) struct RunFlags {
    /// Cgroup path (To disable use of cgroup, set to "" explicitly)
    #[arg(long)]
    pub(crate) cgroup: Option<String>,
    /// Run image for specific platform
    #[arg(long)]
    pub(crate) platform: Option<String>,
    /// Enable cni networking for the container (not available yet)
    #[arg(long)]
    pub(crate) cni: bool,
    /// Synchronize the underlying filesystem containing files when unpack images, false by default
    #[arg(long)]
    pub(crate) sync_fs: bool,
    /// Run inside a user namespace with the specified UID mapping ranges (`container-uid:host-uid:length`)
    #[arg(long)]
    pub(crate) uidmap: Vec<String>,
    /// Run inside a user namespace with the specified GID mapping ranges (`container-gid:host-gid:length`)
    #[arg(long)]
    pub(crate) gidmap: Vec<String>,
    /// Provide the user namespace ID remapping to the snapshotter via label options; requires snapshotter support
    #[arg(long)]
    pub(crate) remap_labels: bool,
    /// Don't pass all host devices to privileged container
    #[arg(long)]
    pub(crate) privileged_without_host_devices: bool,
    /// Set the CFS cpu quota
    #[arg(long, default_value_t = 0.0)]
    pub(crate) cpus: f64,
    /// Set the cpu shares
    #[arg(long, default_value_t = 1024)]
    pub(crate) cpu_shares: u64,
    /// Set the CPUs the container will run in (e.g., 1-2,4)
    #[arg(long)]
    pub(crate) cpuset_cpus: Option<String>,
    /// Set the memory nodes the container will run in (e.g., 1-2,4)
    #[arg(long)]
    pub(crate) cpuset_mems: Option<String>,
    /// Set RLIMIT_NOFILE (soft:hard)
    #[arg(long)]
    pub(crate) rlimit_nofile: Option<String>,
}
