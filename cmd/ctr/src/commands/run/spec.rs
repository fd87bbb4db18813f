use std::fs;

use anyhow::{Context as _, Result, bail};
use containerd_sdk::oci::{BindMount, IdMapping, Spec, env};

use super::flags::{ContainerFlags, RunFlags};
use crate::values;

/// Changes that come before the image's configuration, which they win over.
pub(super) fn before_image(spec: &mut Spec, flags: &ContainerFlags) -> Result<()> {
    spec.allow_default_devices();
    if let Some(path) = &flags.env_file {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        spec.add_env(&env::parse_file(&text)?);
    }
    spec.add_env(&flags.env);
    let mounts: Vec<BindMount> =
        flags.mount.iter().map(|text| BindMount::parse(text)).collect::<core_types::Result<_>>()?;
    spec.add_mounts(mounts);
    Ok(())
}

/// Changes that come after the image's configuration and the user.
pub(super) fn after_image(
    spec: &mut Spec,
    flags: &ContainerFlags,
    run: Option<&RunFlags>,
    command: &[String],
) -> Result<()> {
    if flags.read_only {
        spec.set_root_readonly();
    }
    if !command.is_empty() {
        spec.set_args(command);
    }
    if let Some(cwd) = &flags.cwd {
        spec.set_cwd(cwd);
    }
    if flags.tty {
        spec.set_terminal();
    }
    confine(spec, flags, run)?;
    if let Some(run) = run {
        limit(spec, flags, run)?;
    }
    if flags.cpu_quota != -1 || flags.cpu_period != 0 {
        if run.is_some_and(|run| run.cpus > 0.0) {
            bail!("cpus and quota/period should be used separately");
        }
        spec.set_cpu_quota(flags.cpu_quota, flags.cpu_period);
    }
    for text in &flags.with_ns {
        let Some((kind, path)) = text.split_once(':') else {
            bail!("joining a Linux namespace using --with-ns requires the format 'nstype:path'");
        };
        spec.set_namespace(kind, Some(path))?;
    }
    if flags.allow_new_privs {
        spec.set_no_new_privileges(false);
    }
    if flags.memory_limit != 0 {
        spec.set_memory_limit(flags.memory_limit);
    }
    for device in &flags.device {
        if is_cdi_name(device) {
            bail!("device {device:?} is a CDI device, which is not available yet");
        }
        spec.add_devices(device.as_ref())?;
    }
    if let Some(mode) = &flags.rootfs_propagation {
        spec.set_rootfs_propagation(mode);
    }
    if let Some(name) = &flags.hostname {
        spec.set_hostname(name);
    }
    Ok(())
}

/// `vendor.example/class=name`.
fn is_cdi_name(device: &str) -> bool {
    !device.starts_with('/') && device.contains('/') && device.contains('=')
}

/// What the container may do and see.
fn confine(spec: &mut Spec, flags: &ContainerFlags, run: Option<&RunFlags>) -> Result<()> {
    let without_devices = run.is_some_and(|run| run.privileged_without_host_devices);
    if without_devices && !flags.privileged {
        bail!("can't use 'privileged-without-host-devices' without 'privileged' specified");
    }
    if flags.privileged {
        spec.set_privileged()?;
        if !without_devices {
            spec.allow_all_devices();
            spec.add_host_devices()?;
        }
    }
    if flags.net_host {
        spec.use_host_network(&rustix::system::uname().nodename().to_string_lossy());
    }
    spec.add_annotations(&values::annotations(&flags.annotation)?);
    spec.add_capabilities(&flags.cap_add)?;
    spec.drop_capabilities(&flags.cap_drop)?;
    match (&flags.seccomp_profile, flags.seccomp) {
        (Some(_), false) => bail!("seccomp must be set to true, if using a custom seccomp-profile"),
        (Some(path), true) => {
            let profile = fs::read(path).with_context(|| format!("cannot load seccomp profile {}", path.display()))?;
            spec.set_seccomp_profile(&profile)?;
        }
        (None, true) => spec.set_default_seccomp(),
        (None, false) => {}
    }
    if let Some(profile) = &flags.apparmor_profile {
        spec.set_apparmor_profile(profile);
    }
    Ok(())
}

/// What the container may use.
fn limit(spec: &mut Spec, flags: &ContainerFlags, run: &RunFlags) -> Result<()> {
    if run.cpus > 0.0 {
        if flags.cpu_quota != -1 || flags.cpu_period != 0 {
            bail!("cpus and quota/period should be used separately");
        }
        spec.set_cpus(run.cpus);
    }
    if let Some(set) = &run.cpuset_cpus {
        spec.set_cpuset_cpus(set);
    }
    if let Some(set) = &run.cpuset_mems {
        spec.set_cpuset_mems(set);
    }
    if run.cpu_shares > 0 {
        spec.set_cpu_shares(run.cpu_shares);
    }
    if let Some(path) = &run.cgroup {
        spec.set_cgroups_path(path);
    }
    if let Some(text) = &run.rlimit_nofile {
        let (soft, hard) = text.split_once(':').unwrap_or((text, text));
        let number =
            |part: &str| part.parse::<u64>().with_context(|| format!("failed to parse rlimit-nofile {text:?}"));
        spec.set_rlimit("RLIMIT_NOFILE", number(soft)?, number(hard)?);
    }
    let (uids, gids) = mappings(run)?;
    if !uids.is_empty() {
        spec.set_user_namespace(&uids, &gids)?;
    }
    Ok(())
}

/// The id ranges of the user namespace; both empty for none.
pub(super) fn mappings(run: &RunFlags) -> Result<(Vec<IdMapping>, Vec<IdMapping>)> {
    let parse = |texts: &[String]| -> Result<Vec<IdMapping>> {
        Ok(texts.iter().map(|text| IdMapping::parse(text)).collect::<core_types::Result<_>>()?)
    };
    if run.uidmap.is_empty() || run.gidmap.is_empty() {
        return Ok((Vec::new(), Vec::new()));
    }
    Ok((parse(&run.uidmap)?, parse(&run.gidmap)?))
}
