use std::{path::PathBuf, time::Duration};

/// The settings of [`Cni`](crate::Cni).
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory of `.conflist`, `.conf` and `.json` files, used in the order of their names.
    pub conf_dir: PathBuf,
    /// The directories of plugin binaries, searched in order; all of them are told to plugins in `CNI_PATH`.
    pub bin_dirs: Vec<PathBuf>,
    /// The directory of the record of attachments, which is in `results` below it.
    pub cache_dir: PathBuf,
    /// How many networks are used, 0 for all.
    pub max_conf_num: usize,
    /// One network after the other instead of all at once.
    pub setup_serially: bool,
    /// Which addresses of a sandbox come first.
    pub ip_preference: IpPreference,
    /// Interfaces in the sandbox are named by it and their number, from 0.
    pub prefix: String,
    /// How long each call of a plugin may take.
    pub timeout: Duration,
    /// The loopback interface is brought up without its plugin, even if that is there.
    pub use_internal_loopback: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            conf_dir: "/etc/cni/net.d".into(),
            bin_dirs: vec!["/opt/cni/bin".into()],
            cache_dir: "/var/lib/cni".into(),
            max_conf_num: 1,
            setup_serially: false,
            ip_preference: IpPreference::default(),
            prefix: "eth".into(),
            timeout: Duration::from_secs(60),
            use_internal_loopback: false,
        }
    }
}

/// Which of a sandbox's addresses come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IpPreference {
    /// IPv4.
    #[default]
    Ipv4,
    /// IPv6.
    Ipv6,
    /// As the plugins gave them.
    AsGiven,
}
