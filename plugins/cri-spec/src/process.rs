use containerd_api_cri::v1::{
    Capability, ContainerConfig, Int64Value, LinuxContainerSecurityContext, LinuxSandboxSecurityContext, Signal,
    SupplementalGroupsPolicy,
};
use core_oci::{ImageConfig, ResolvedUser, Rootfs, Spec, UserSpec, env};

use crate::{ContainerInput, Host, Result, SandboxInput, SpecError};

const SECURITY: &str = "config.linux.security_context";
/// Most supplemental groups of a process (the kernel's NGROUPS_MAX).
const MAX_GROUPS: usize = 65_536;

/// Refuses texts that cannot be handed to the kernel.
pub(crate) fn no_zero_byte(field: impl Into<String>, text: &str) -> Result<()> {
    match text.contains('\0') {
        true => Err(SpecError::invalid(field, "holds a zero byte")),
        false => Ok(()),
    }
}

/// Command, environment, directory and terminal of a container.
pub(crate) fn set_process(spec: &mut Spec, input: &ContainerInput<'_>, host: &Host) -> Result<()> {
    let config = input.config;
    spec.set_args(command(config, input.image)?);
    spec.add_env(&[env::DEFAULT_PATH.to_owned()]);
    if config.tty {
        spec.set_terminal();
    } else {
        spec.object(&["process"]).shift_remove("terminal");
    }
    let hostname = match input.sandbox_config.hostname.as_str() {
        "" => &host.hostname,
        name => name,
    };
    spec.add_env(&[format!("HOSTNAME={hostname}")]);
    spec.add_env(&input.image.config.env);
    spec.add_env(&environment(config)?);
    if config.working_dir.is_empty() {
        if !input.image.config.working_dir.is_empty() {
            spec.set_cwd(&image_directory(&input.image.config.working_dir));
        }
    } else if config.working_dir.starts_with('/') {
        no_zero_byte("config.working_dir", &config.working_dir)?;
        spec.set_cwd(&config.working_dir);
    } else {
        let reason = format!("{:?} is not absolute", config.working_dir);
        return Err(SpecError::invalid("config.working_dir", reason));
    }
    Ok(())
}

/// An image's working directory is below the root, also when it does not say so.
pub(crate) fn image_directory(path: &str) -> String {
    format!("/{}", path.trim_start_matches('/'))
}

/// The rules of Kubernetes: a command replaces the image's entrypoint and drops its arguments, arguments alone
/// replace the image's arguments.
fn command(config: &ContainerConfig, image: &ImageConfig) -> Result<Vec<String>> {
    for (name, list) in [("command", &config.command), ("args", &config.args)] {
        for (index, part) in list.iter().enumerate() {
            no_zero_byte(format!("config.{name}[{index}]"), part)?;
        }
    }
    let image = &image.config;
    let no_entrypoint = matches!(image.entrypoint.as_slice(), [only] if only.is_empty());
    let command = match (config.command.is_empty(), no_entrypoint) {
        (false, _) => config.command.clone(),
        (true, false) => image.entrypoint.clone(),
        (true, true) => Vec::new(),
    };
    let args = match config.command.is_empty() && config.args.is_empty() {
        true => &image.cmd,
        false => &config.args,
    };
    let whole: Vec<String> = command.iter().chain(args).cloned().collect();
    match whole.is_empty() {
        true => Err(SpecError::invalid("config.command", "no command specified, and the image has none")),
        false => Ok(whole),
    }
}

fn environment(config: &ContainerConfig) -> Result<Vec<String>> {
    let convert = |(index, variable): (usize, &containerd_api_cri::v1::KeyValue)| {
        let field = format!("config.envs[{index}]");
        if variable.key.is_empty() || variable.key.contains(['=', '\0']) {
            let reason = format!("{:?} is no name of a variable", variable.key);
            return Err(SpecError::invalid(format!("{field}.key"), reason));
        }
        // The specification is JSON, which has no place for other bytes.
        let value = std::str::from_utf8(&variable.value)
            .map_err(|_| SpecError::invalid(format!("{field}.value"), "is not UTF-8"))?;
        no_zero_byte(format!("{field}.value"), value)?;
        Ok(format!("{}={value}", variable.key))
    };
    config.envs.iter().enumerate().map(convert).collect()
}

/// Sets user and groups of a container.
pub(crate) fn set_container_user(
    spec: &mut Spec,
    input: &ContainerInput<'_>,
    security: &LinuxContainerSecurityContext,
) -> Result<()> {
    let policy = SupplementalGroupsPolicy::try_from(security.supplemental_groups_policy).map_err(|_| {
        let reason = format!("{} is no policy (Merge or Strict)", security.supplemental_groups_policy);
        SpecError::invalid(format!("{SECURITY}.supplemental_groups_policy"), reason)
    })?;
    let wanted = Wanted {
        name: &security.run_as_username,
        uid: security.run_as_user,
        gid: security.run_as_group,
        image: &input.image.config.user,
        groups: &security.supplemental_groups,
        policy,
    };
    set_user(spec, &wanted, input.rootfs)
}

/// Sets user and groups of a pause process.
pub(crate) fn set_sandbox_user(
    spec: &mut Spec,
    input: &SandboxInput<'_>,
    security: &LinuxSandboxSecurityContext,
) -> Result<()> {
    let wanted = Wanted {
        name: "",
        uid: security.run_as_user,
        gid: security.run_as_group,
        image: &input.image.config.user,
        groups: &security.supplemental_groups,
        policy: SupplementalGroupsPolicy::Strict,
    };
    set_user(spec, &wanted, input.rootfs)
}

struct Wanted<'a> {
    name: &'a str,
    uid: Option<Int64Value>,
    gid: Option<Int64Value>,
    image: &'a str,
    groups: &'a [i64],
    policy: SupplementalGroupsPolicy,
}

impl Wanted<'_> {
    /// The written form of the user, and the field it is from.
    fn text(&self) -> Result<(String, String)> {
        let (field, user) = match (self.name, self.uid) {
            ("", None) => ("", String::new()),
            ("", Some(uid)) => ("run_as_user", uid.value.to_string()),
            (name, _) => ("run_as_username", name.to_owned()),
        };
        match (user.as_str(), self.gid) {
            ("", Some(_)) => {
                Err(SpecError::invalid(format!("{SECURITY}.run_as_group"), "a group is specified without a user"))
            }
            ("", None) if self.image.is_empty() => Ok(("image.config.user".into(), "0:0".into())),
            ("", None) => Ok(("image.config.user".into(), self.image.to_owned())),
            (user, _) if user.contains([':', '\0']) => {
                Err(SpecError::invalid(format!("{SECURITY}.{field}"), format!("{user:?} is no name of a user")))
            }
            (_, None) => Ok((format!("{SECURITY}.{field}"), user)),
            (_, Some(gid)) => Ok((format!("{SECURITY}.{field}"), format!("{user}:{}", gid.value))),
        }
    }
}

fn set_user(spec: &mut Spec, wanted: &Wanted<'_>, rootfs: Option<&Rootfs>) -> Result<()> {
    let (field, text) = wanted.text()?;
    if let Some(gid) = wanted.gid {
        group_id(&format!("{SECURITY}.run_as_group"), gid.value)?;
    }
    let named = || SpecError::unsupported(&field, format!("{text:?} needs the image's files to be looked up"));
    let mut user = match rootfs {
        Some(rootfs) => UserSpec::parse(&text).and_then(|user| user.resolve(rootfs)).map_err(SpecError::at(&field))?,
        None => {
            UserSpec::parse(&text).map_err(SpecError::at(&field))?;
            let (uid, gid) = text.split_once(':').unwrap_or((&text, "0"));
            let number = |text: &str| text.parse::<u32>().map_err(|_| named());
            let gid = number(if gid.is_empty() { "0" } else { gid })?;
            ResolvedUser { uid: number(uid)?, gid, groups: Vec::new() }
        }
    };
    if wanted.policy == SupplementalGroupsPolicy::Strict {
        user.groups.clear();
    }
    // The main group is always one of them, lest a file be withheld from it that is not from others.
    user.groups.push(user.gid);
    if wanted.groups.len() > MAX_GROUPS {
        return Err(SpecError::invalid(format!("{SECURITY}.supplemental_groups"), "are too many"));
    }
    for (index, group) in wanted.groups.iter().enumerate() {
        user.groups.push(group_id(&format!("{SECURITY}.supplemental_groups[{index}]"), *group)?);
    }
    user.groups.sort_unstable();
    user.groups.dedup();
    spec.set_user(&user);
    Ok(())
}

/// Runtimes take ids of 31 bits.
fn group_id(field: &str, value: i64) -> Result<u32> {
    let reason = || SpecError::invalid(field, format!("{value} is no group id"));
    u32::try_from(value).ok().filter(|id| i32::try_from(*id).is_ok()).ok_or_else(reason)
}

/// Adds and drops capabilities. "ALL" goes first, so that single ones can be taken from or put back to it.
pub(crate) fn set_capabilities(spec: &mut Spec, capability: Option<&Capability>, host: &Host) -> Result<()> {
    // None is inherited by a file's capabilities unless the request says so (CVE-2022-24769).
    let sets = spec.object(&["process", "capabilities"]);
    sets.shift_remove("ambient");
    let Some(capability) = capability else { return Ok(()) };
    let field = format!("{SECURITY}.capabilities");
    let add = names(&format!("{field}.add_capabilities"), &capability.add_capabilities)?;
    let drop = names(&format!("{field}.drop_capabilities"), &capability.drop_capabilities)?;
    let ambient = names(&format!("{field}.add_ambient_capabilities"), &capability.add_ambient_capabilities)?;
    if add.all {
        spec.set_capabilities(&host.capabilities);
    }
    if drop.all {
        spec.set_capabilities(&[]);
    }
    let failed = || SpecError::at(&field);
    spec.add_capabilities(&add.names).map_err(failed())?;
    spec.drop_capabilities(&drop.names).map_err(failed())?;
    let ambient = if ambient.all { spec.texts("/process/capabilities/permitted") } else { ambient.names };
    if let Some(name) = ambient.iter().find(|name| drop.names.contains(name)) {
        let reason = format!("{name} is dropped in the same request");
        return Err(SpecError::invalid(format!("{field}.add_ambient_capabilities"), reason));
    }
    spec.add_ambient_capabilities(&ambient).map_err(failed())
}

#[derive(Default)]
struct Names {
    all: bool,
    names: Vec<String>,
}

/// Names as the kernel has them: requests write them without `CAP_`, in any case.
fn names(field: &str, list: &[String]) -> Result<Names> {
    let mut found = Names::default();
    for (index, name) in list.iter().enumerate() {
        let upper = name.to_ascii_uppercase();
        if upper == "ALL" {
            found.all = true;
            continue;
        }
        let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
        if bare.is_empty() || bare.len() > 64 || !bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            return Err(SpecError::invalid(format!("{field}[{index}]"), format!("{name:?} is no capability")));
        }
        found.names.push(format!("CAP_{bare}"));
    }
    Ok(found)
}

/// The signal that stops a container: that of the request, else the image's, else `None` for SIGTERM.
///
/// # Errors
/// Invalid for a number that is no signal.
pub fn stop_signal(config: &ContainerConfig, image: &ImageConfig) -> Result<Option<String>> {
    let signal = Signal::try_from(config.stop_signal)
        .map_err(|_| SpecError::invalid("config.stop_signal", format!("{} is no signal", config.stop_signal)))?;
    let of_image = Some(image.config.stop_signal.clone()).filter(|signal| !signal.is_empty());
    Ok(match signal {
        Signal::RuntimeDefault => of_image,
        // SIGRTMINPLUS1 and SIGRTMAXMINUS1 stand for the names with signs.
        signal => Some(signal.as_str_name().replacen("PLUS", "+", 1).replacen("MINUS", "-", 1)),
    })
}

#[cfg(test)]
mod tests;
