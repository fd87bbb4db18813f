use containerd_api_cri::v1::{DnsConfig, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceMode};
use core_oci::{BindMount, Spec};
use core_types::{Error, Namespace};
use serde_json::json;

use crate::{
    Host, HostFiles, Result, SandboxInput, SandboxSpec, SpecError, annotations,
    namespaces::{self, Modes},
    process, resources, security, selinux,
};

/// Namespace of everything that the CRI makes.
const NAMESPACE: &str = "k8s.io";
/// OOM score adjustment of a pause process (kubernetes#47938).
const OOM_SCORE: i64 = -998;
/// CPU weight of a pause process.
const CPU_SHARES: u64 = 2;
/// Options of what is bound into a pause container.
const BIND: [&str; 5] = ["rbind", "ro", "nosuid", "nodev", "noexec"];

/// Makes the specification of a sandbox's pause container.
///
/// # Errors
/// [`SpecError`] with the field of the request that is wrong, that this host cannot do, or that could not be
/// looked up.
pub fn sandbox_spec(input: &SandboxInput<'_>, host: &Host, files: &dyn HostFiles) -> Result<SandboxSpec> {
    let empty = (LinuxPodSandboxConfig::default(), LinuxSandboxSecurityContext::default());
    let linux = input.config.linux.as_ref().unwrap_or(&empty.0);
    let security = linux.security_context.as_ref().unwrap_or(&empty.1);
    let modes = Modes::of("config.linux.security_context.namespace_options", security.namespace_options.as_ref())?;

    let mut spec = default_spec(input.id)?;
    set_process(&mut spec, input)?;
    if !linux.cgroup_parent.is_empty() {
        spec.set_cgroups_path(&resources::cgroups_path(&linux.cgroup_parent, input.id)?);
    }
    let users = set_namespaces(&mut spec, input, security, modes)?;
    add_mounts(&mut spec, input, modes, users);
    set_sysctls(&mut spec, input, linux, modes, users, host)?;
    let (process_label, mount_label) = selinux::labels(
        "config.linux.security_context.selinux_options",
        host.selinux.as_ref(),
        security.selinux_options.as_ref(),
        "",
        input.selinux_level,
    )?;
    security::set_labels(&mut spec, &process_label, &mount_label);
    spec.set_cpu_shares(CPU_SHARES);
    resources::set_oom_score(&mut spec, "config", OOM_SCORE, input.options.restrict_oom_score_adj, host)?;
    process::set_sandbox_user(&mut spec, input, security)?;
    set_seccomp(&mut spec, input, security, host, files)?;
    spec.add_annotations(&annotations::passthrough(&input.config.annotations, &input.handler.pod_annotations));
    spec.add_annotations(&annotations::of_sandbox(input.id, input.config, input.image_name));
    Ok(SandboxSpec { spec, process_label, mount_label })
}

/// Also by the older field that clients still send.
#[allow(deprecated)]
fn set_seccomp(
    spec: &mut Spec,
    input: &SandboxInput<'_>,
    security: &LinuxSandboxSecurityContext,
    host: &Host,
    files: &dyn HostFiles,
) -> Result<()> {
    let field = "config.linux.security_context.seccomp";
    let (older, unset) = (&security.seccomp_profile_path, &input.options.unset_seccomp_profile);
    let profile = security::seccomp_profile(field, security.seccomp.as_ref(), older, unset)?;
    security::set_seccomp(spec, field, profile, security.privileged, host, files)
}

/// Containerd's default without its limits, profiles and `/run`.
pub(crate) fn default_spec(id: &str) -> Result<Spec> {
    let namespace = Namespace::new(NAMESPACE).map_err(SpecError::at("id"))?;
    if id.is_empty() || id.contains(['/', '\0', ':']) || id.starts_with('.') {
        return Err(SpecError::invalid("id", format!("{id:?} is no id")));
    }
    let mut spec = Spec::linux(&namespace, id);
    spec.object(&["process"]).shift_remove("rlimits");
    spec.set_root_path("rootfs");
    Ok(spec)
}

fn set_process(spec: &mut Spec, input: &SandboxInput<'_>) -> Result<()> {
    let image = &input.image.config;
    if image.entrypoint.is_empty() && image.cmd.is_empty() {
        return Err(SpecError::Lookup {
            field: "config".into(),
            source: Error::failed_precondition(format!("the sandbox image {} has no command", input.image_name)),
        });
    }
    if input.config.hostname.contains('\0') {
        return Err(SpecError::invalid("config.hostname", "holds a zero byte"));
    }
    spec.set_args(image.entrypoint.iter().chain(&image.cmd));
    spec.add_env(&[core_oci::env::DEFAULT_PATH.to_owned()]);
    spec.add_env(&image.env);
    spec.set_cwd(&process::image_directory(&image.working_dir));
    spec.set_root_readonly();
    spec.set_hostname(&input.config.hostname);
    Ok(())
}

/// Answers whether the pod has a user namespace.
fn set_namespaces(
    spec: &mut Spec,
    input: &SandboxInput<'_>,
    security: &LinuxSandboxSecurityContext,
    modes: Modes,
) -> Result<bool> {
    if modes.network == NamespaceMode::Node {
        spec.use_host_namespace("network");
        spec.use_host_namespace("uts");
        // There is no namespace to give a name to, and the host must keep its own.
        spec.set_hostname("");
    } else if input.network_namespace.is_empty() {
        // The runtime would make one that nothing is connected to.
        return Err(SpecError::unsupported("config", "the sandbox has no network namespace"));
    } else {
        namespaces::set(spec, "network", Some(input.network_namespace))?;
    }
    for (kind, mode) in [("pid", modes.pid), ("ipc", modes.ipc)] {
        if mode == NamespaceMode::Node {
            spec.use_host_namespace(kind);
        }
    }
    let field = "config.linux.security_context.namespace_options.userns_options";
    let options = security.namespace_options.as_ref().and_then(|options| options.userns_options.as_ref());
    match namespaces::user_namespace(field, options)? {
        None => {
            spec.use_host_namespace("user");
            Ok(false)
        }
        Some(users) => {
            let path = input.user_namespace.filter(|_| modes.network != NamespaceMode::Node);
            namespaces::set_users(spec, &users, path)?;
            Ok(true)
        }
    }
}

fn add_mounts(spec: &mut Spec, input: &SandboxInput<'_>, modes: Modes, users: bool) {
    spec.remove_mounts("/run");
    let bind = |source: &str, destination: &str| BindMount {
        kind: "bind".into(),
        source: source.into(),
        destination: destination.into(),
        options: BIND.map(str::to_owned).into(),
    };
    let shm = if modes.ipc == NamespaceMode::Node { "/dev/shm" } else { input.shm };
    spec.add_mounts([bind(shm, "/dev/shm"), bind(input.resolv_conf, "/etc/resolv.conf")]);
    if users && modes.network == NamespaceMode::Node {
        spec.bind_host_sys();
    }
}

fn set_sysctls(
    spec: &mut Spec,
    input: &SandboxInput<'_>,
    linux: &LinuxPodSandboxConfig,
    modes: Modes,
    users: bool,
    host: &Host,
) -> Result<()> {
    const PORTS: &str = "net.ipv4.ip_unprivileged_port_start";
    /// Longer than any path below `/proc/sys` that there is.
    const LONGEST_NAME: usize = 256;
    const PING: &str = "net.ipv4.ping_group_range";
    for (name, value) in &linux.sysctls {
        let strange = |byte: u8| !byte.is_ascii_graphic();
        let bad = name.len() > LONGEST_NAME || name.split(['.', '/']).any(str::is_empty) || name.bytes().any(strange);
        if bad || !name.starts_with(|first: char| first.is_ascii_alphabetic()) || value.contains('\0') {
            return Err(SpecError::invalid(format!("config.linux.sysctls[{name:?}]"), "is no kernel parameter"));
        }
    }
    let sysctls = spec.object(&["linux", "sysctl"]);
    if modes.network != NamespaceMode::Node {
        if input.options.enable_unprivileged_ports {
            sysctls.insert(PORTS.into(), json!("0"));
        }
        // In a user namespace not all of these groups exist, and the kernel refuses the range.
        if input.options.enable_unprivileged_icmp && !host.in_user_namespace && !users {
            sysctls.insert(PING.into(), json!("0 2147483647"));
        }
    }
    for (name, value) in &linux.sysctls {
        sysctls.insert(name.clone(), json!(value));
    }
    Ok(())
}

/// The text of a pod's `resolv.conf`.
///
/// # Errors
/// Invalid for a part that would break its line.
pub fn resolv_conf(config: &DnsConfig) -> Result<String> {
    for (name, list) in [("servers", &config.servers), ("searches", &config.searches), ("options", &config.options)] {
        if let Some(index) = list.iter().position(|part| part.contains(['\n', '\r', '\0'])) {
            return Err(SpecError::invalid(format!("config.dns_config.{name}[{index}]"), "holds a line break"));
        }
    }
    let mut text = String::new();
    if !config.searches.is_empty() {
        text += &format!("search {}\n", config.searches.join(" "));
    }
    for server in &config.servers {
        text += &format!("nameserver {server}\n");
    }
    if !config.options.is_empty() {
        text += &format!("options {}\n", config.options.join(" "));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
