use containerd_api_cri::v1::{LinuxContainerSecurityContext, LinuxSandboxSecurityContext, NamespaceMode};
use core_oci::Spec;
use serde_json::json;

use crate::{
    ContainerInput, ContainerSpec, Host, HostFiles, Result, SpecError, annotations, devices,
    mounts::{self, Mounted},
    namespaces, process, resources, sandbox, security, selinux,
};

const SECURITY: &str = "config.linux.security_context";

/// Makes the specification of a container.
///
/// # Errors
/// [`SpecError`] with the field of the request that is wrong, that this host cannot do, or that could not be
/// looked up.
pub fn container_spec(input: &ContainerInput<'_>, host: &Host, files: &dyn HostFiles) -> Result<ContainerSpec> {
    let empty = (LinuxContainerSecurityContext::default(), LinuxSandboxSecurityContext::default());
    let linux = input.config.linux.as_ref();
    let security = linux.and_then(|linux| linux.security_context.as_ref()).unwrap_or(&empty.0);
    let pod = input.sandbox_config.linux.as_ref();
    let pod_security = pod.and_then(|linux| linux.security_context.as_ref()).unwrap_or(&empty.1);
    if security.privileged && !pod_security.privileged {
        let reason = "no privileged container allowed in a sandbox that is not privileged";
        return Err(SpecError::invalid(format!("{SECURITY}.privileged"), reason));
    }

    let mut spec = start(input)?;
    process::set_process(&mut spec, input, host)?;
    let users = namespaces::of_container(input)?;
    namespaces::join_pod(&mut spec, input, users.as_ref())?;
    if host.cgroup_v2 && !security.privileged {
        namespaces::set(&mut spec, "cgroup", None)?;
    }
    let mounted = mounts::set_mounts(&mut spec, input, security, users.as_ref(), files)?;
    if users.is_some() && namespaces::sandbox_network(input.sandbox_config)? == NamespaceMode::Node {
        spec.bind_host_sys();
    }
    let labels = confine(&mut spec, input, security, users.is_some(), host, files)?;
    if let Some(limits) = linux.and_then(|linux| linux.resources.as_ref()) {
        let field = "config.linux.resources";
        resources::apply(&mut spec, field, limits, input.options, host)?;
        let restrict = input.options.restrict_oom_score_adj;
        resources::set_oom_score(&mut spec, &format!("{field}.oom_score_adj"), limits.oom_score_adj, restrict, host)?;
    }
    annotate(&mut spec, input)?;
    process::set_container_user(&mut spec, input, security)?;
    let needs_default_apparmor = set_profiles(&mut spec, input, security, host, files)?;
    // Last: a device's edits may touch everything above.
    devices::inject_cdi(&mut spec, input, files)?;
    Ok(finish(spec, mounted, labels, needs_default_apparmor))
}

fn finish(spec: Spec, mounted: Mounted, labels: (String, String), needs_default_apparmor: bool) -> ContainerSpec {
    let (process_label, mount_label) = labels;
    let relabel = if mount_label.is_empty() { Vec::new() } else { mounted.relabel };
    ContainerSpec { spec, volumes: mounted.volumes, process_label, mount_label, relabel, needs_default_apparmor }
}

/// The handler's base specification or the default one, without what the request decides.
fn start(input: &ContainerInput<'_>) -> Result<Spec> {
    let default = sandbox::default_spec(input.id)?;
    let own_path = default.text("/linux/cgroupsPath").to_owned();
    let mut spec = input.handler.base_spec.clone().unwrap_or(default);
    spec.set_root_path("rootfs");
    spec.remove_mounts("/run");
    let parent = input.sandbox_config.linux.as_ref().map_or("", |linux| linux.cgroup_parent.as_str());
    let path = if parent.is_empty() { own_path } else { resources::cgroups_path(parent, input.id)? };
    spec.set_cgroups_path(&path);
    Ok(spec)
}

/// Capabilities, privileges, devices, hidden paths and labels. Answers the labels of processes and files.
fn confine(
    spec: &mut Spec,
    input: &ContainerInput<'_>,
    security: &LinuxContainerSecurityContext,
    users: bool,
    host: &Host,
    files: &dyn HostFiles,
) -> Result<(String, String)> {
    if !input.options.disable_proc_mount {
        for (name, key, paths) in [
            ("masked_paths", "maskedPaths", &security.masked_paths),
            ("readonly_paths", "readonlyPaths", &security.readonly_paths),
        ] {
            if let Some(index) = paths.iter().position(|path| !path.starts_with('/') || path.contains('\0')) {
                return Err(SpecError::invalid(format!("{SECURITY}.{name}[{index}]"), "is not an absolute path"));
            }
            spec.object(&["linux"]).insert(key.into(), json!(paths));
        }
    }
    devices::add_requested(spec, input, users, files)?;
    process::set_capabilities(spec, security.capabilities.as_ref(), host)?;
    if security.privileged {
        spec.lift_confinement(&host.capabilities);
        devices::add_privileged(spec, input, files)?;
    }
    spec.set_no_new_privileges(security.no_new_privs);
    if security.readonly_rootfs {
        spec.set_root_readonly();
    }
    let (process, mount) = selinux::labels(
        &format!("{SECURITY}.selinux_options"),
        host.selinux.as_ref(),
        security.selinux_options.as_ref(),
        input.sandbox_process_label,
        input.selinux_level,
    )?;
    security::set_labels(spec, if security.privileged { "" } else { &process }, &mount);
    Ok((process, mount))
}

/// Seccomp and AppArmor, also by the older fields that clients still send. Answers whether the default AppArmor profile is needed.
#[allow(deprecated)]
fn set_profiles(
    spec: &mut Spec,
    input: &ContainerInput<'_>,
    security: &LinuxContainerSecurityContext,
    host: &Host,
    files: &dyn HostFiles,
) -> Result<bool> {
    let needed = security::set_apparmor(
        spec,
        &format!("{SECURITY}.apparmor"),
        security.apparmor.as_ref(),
        &security.apparmor_profile,
        security.privileged,
        host,
        files,
    )?;
    let field = format!("{SECURITY}.seccomp");
    let unset = &input.options.unset_seccomp_profile;
    let profile = security::seccomp_profile(&field, security.seccomp.as_ref(), &security.seccomp_profile_path, unset)?;
    security::set_seccomp(spec, &field, profile, security.privileged, host, files)?;
    Ok(needed)
}

fn annotate(spec: &mut Spec, input: &ContainerInput<'_>) -> Result<()> {
    let name = input.config.metadata.as_ref().map_or("", |metadata| metadata.name.as_str());
    let (own, pod) = (&input.config.annotations, &input.sandbox_config.annotations);
    annotations::check_classes(name, own, pod, input.options)?;
    spec.add_annotations(&annotations::passthrough(pod, &input.handler.pod_annotations));
    spec.add_annotations(&annotations::passthrough(own, &input.handler.container_annotations));
    spec.add_annotations(&annotations::of_container(input.sandbox_id, input.sandbox_config, name, input.image_name));
    Ok(())
}

#[cfg(test)]
mod tests;
