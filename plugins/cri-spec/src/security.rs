use std::path::Path;

use containerd_api_cri::v1::{SecurityProfile, security_profile::ProfileType};
use core_oci::Spec;
use serde_json::json;

use crate::{Host, HostFiles, Result, SpecError, process::no_zero_byte};

/// Name of the AppArmor profile that containers get which ask for none.
pub const APPARMOR_DEFAULT_PROFILE: &str = "cri-containerd.apparmor.d";
/// What the older form of a profile on the host begins with.
const LOCALHOST: &str = "localhost/";

/// A profile, by name or by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    RuntimeDefault,
    Unconfined,
    Localhost(String),
}

impl Profile {
    /// Reads the older form: `runtime/default`, `unconfined` or `localhost/<name>`.
    fn parse(field: &str, text: &str) -> Result<Self> {
        no_zero_byte(field, text)?;
        match text {
            "" | "runtime/default" | "docker/default" => Ok(Self::RuntimeDefault),
            "unconfined" => Ok(Self::Unconfined),
            _ => match text.strip_prefix(LOCALHOST) {
                Some(name) if !name.is_empty() => Ok(Self::Localhost(name.to_owned())),
                _ => Err(SpecError::invalid(field, format!("{text:?} is no profile"))),
            },
        }
    }

    fn of(field: &str, profile: &SecurityProfile) -> Result<Self> {
        let kind = ProfileType::try_from(profile.profile_type).map_err(|_| {
            let reason = format!("{} is no kind of profile", profile.profile_type);
            SpecError::invalid(format!("{field}.profile_type"), reason)
        })?;
        let reference = profile.localhost_ref.as_str();
        let field = format!("{field}.localhost_ref");
        no_zero_byte(&field, reference)?;
        match (kind, reference) {
            (ProfileType::RuntimeDefault, "") => Ok(Self::RuntimeDefault),
            (ProfileType::Unconfined, "") => Ok(Self::Unconfined),
            (ProfileType::Localhost, "") => Err(SpecError::invalid(field, "is needed with type Localhost")),
            (ProfileType::Localhost, name) => {
                Ok(Self::Localhost(name.strip_prefix(LOCALHOST).unwrap_or(name).to_owned()))
            }
            _ => Err(SpecError::invalid(field, "may only be set with type Localhost")),
        }
    }
}

/// The seccomp profile of a request: its newer field, else the older one, else the configured one, else `None`.
pub(crate) fn seccomp_profile(
    field: &str,
    profile: Option<&SecurityProfile>,
    older: &str,
    unset: &str,
) -> Result<Option<Profile>> {
    match (profile, older, unset) {
        (Some(profile), ..) => Profile::of(field, profile).map(Some),
        (None, "", "") => Ok(None),
        (None, "", unset) => Profile::parse("unset_seccomp_profile", unset).map(Some),
        (None, older, _) => Profile::parse(&format!("{field}_profile_path"), older).map(Some),
    }
}

/// Sets the filter of system calls. A privileged container has none, whatever it asks for; the default one
/// depends on the capabilities, which must be set before.
pub(crate) fn set_seccomp(
    spec: &mut Spec,
    field: &str,
    profile: Option<Profile>,
    privileged: bool,
    host: &Host,
    files: &dyn HostFiles,
) -> Result<()> {
    let Some(profile) = profile.filter(|profile| !privileged && *profile != Profile::Unconfined) else {
        return Ok(());
    };
    if !host.seccomp {
        return Err(SpecError::unsupported(field, "this kernel does not support seccomp"));
    }
    match profile {
        Profile::Localhost(path) => {
            let field = format!("{field}.localhost_ref");
            if !path.starts_with('/') {
                return Err(SpecError::invalid(field, format!("{path:?} is not absolute")));
            }
            let text = files.seccomp_profile(Path::new(&path)).map_err(SpecError::at(&field))?;
            spec.set_seccomp_profile(&text).map_err(SpecError::at(field))
        }
        _ => {
            spec.set_default_seccomp();
            Ok(())
        }
    }
}

/// Sets the AppArmor profile; answers whether it is the default one, which must be loaded.
pub(crate) fn set_apparmor(
    spec: &mut Spec,
    field: &str,
    profile: Option<&SecurityProfile>,
    older: &str,
    privileged: bool,
    host: &Host,
    files: &dyn HostFiles,
) -> Result<bool> {
    let asked = match (profile, older) {
        (Some(profile), _) => Some(Profile::of(field, profile)?),
        (None, "") => None,
        (None, older) => Some(Profile::parse(&format!("{field}_profile"), older)?),
    };
    if !host.apparmor {
        return match asked {
            None | Some(Profile::Unconfined) => Ok(false),
            Some(_) => Err(SpecError::unsupported(field, "AppArmor is not supported or not enabled on this host")),
        };
    }
    match asked.unwrap_or(Profile::RuntimeDefault) {
        Profile::Unconfined => Ok(false),
        Profile::RuntimeDefault if privileged => Ok(false),
        Profile::RuntimeDefault => {
            spec.set_apparmor_profile(APPARMOR_DEFAULT_PROFILE);
            Ok(true)
        }
        Profile::Localhost(name) => {
            let field = format!("{field}.localhost_ref");
            if !files.has_apparmor_profile(&name).map_err(SpecError::at(&field))? {
                return Err(SpecError::unsupported(field, format!("the AppArmor profile {name:?} is not loaded")));
            }
            spec.set_apparmor_profile(&name);
            Ok(false)
        }
    }
}

/// Sets SELinux labels; empty ones are left out.
pub(crate) fn set_labels(spec: &mut Spec, process: &str, mount: &str) {
    for (path, key, label) in [("process", "selinuxLabel", process), ("linux", "mountLabel", mount)] {
        let object = spec.object(&[path]);
        if label.is_empty() {
            object.shift_remove(key);
        } else {
            object.insert(key.into(), json!(label));
        }
    }
}

#[cfg(test)]
mod tests;
