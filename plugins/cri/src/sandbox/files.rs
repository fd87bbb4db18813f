//! The files that the containers of a pod share: host name, hosts, resolver and shared memory.

use std::{fs, path::Path};

use containerd_api_cri::v1::{NamespaceMode, PodSandboxConfig};
use core_mount::Mount;
use core_types::{Error, Result};
use plugin_cri_spec::Host;

use crate::{
    layout::{Layout, make_directory},
    store,
};

/// Size of the shared memory of a pod, in KiB.
const SHM_SIZE: u32 = 65_536;

/// Makes the files of a pod. Blocking. What is there already is made anew.
///
/// # Errors
/// What the kernel says; InvalidArgument for DNS settings with line breaks.
pub(crate) fn make(layout: &Layout, host: &Host, id: &str, config: &PodSandboxConfig) -> Result<()> {
    let (root, state) = (layout.sandbox_root(id), layout.sandbox_state(id));
    make_directory(&root, 0o755)?;
    make_directory(&state, 0o755)?;
    let of_host = |path: &str| fs::read(path).unwrap_or_default();
    let hostname = if config.hostname.is_empty() { &host.hostname } else { &config.hostname };
    write(&root.join("hostname"), format!("{hostname}\n").as_bytes())?;
    write(&root.join("hosts"), &of_host("/etc/hosts"))?;
    let resolver = match &config.dns_config {
        Some(dns) => plugin_cri_spec::resolv_conf(dns)?.into_bytes(),
        None => of_host("/etc/resolv.conf"),
    };
    write(&root.join("resolv.conf"), &resolver)?;
    if store::namespaces(config).ipc != NamespaceMode::Node as i32 {
        shared_memory(&layout.shm(id))?;
    }
    Ok(())
}

fn shared_memory(path: &Path) -> Result<()> {
    make_directory(path, 0o700)?;
    let mount = Mount {
        kind: "tmpfs".into(),
        source: "shm".into(),
        target: String::new(),
        options: ["nosuid", "nodev", "noexec", "mode=1777"]
            .into_iter()
            .map(str::to_owned)
            .chain([format!("size={SHM_SIZE}k")])
            .collect(),
    };
    core_mount::mount_all(&[mount], path)
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content).map_err(|error| Error::io(format_args!("write {}", path.display()), error))
}
