//! The built-in validator: adjustments that the node's owner does not allow.

use containerd_api_nri::v1alpha1::{
    Field, FieldOwners, PodSandbox, ValidateContainerAdjustmentRequest, security_profile::ProfileType,
};
use core_types::{Error, Result};

use crate::ValidatorConfig;

/// The annotation by which a pod names plugins that must see its containers.
const REQUIRED: &str = "required-plugins.noderesource.dev";

/// Refuses an adjustment that the configuration forbids.
pub(crate) fn validate(config: &ValidatorConfig, request: &ValidateContainerAdjustmentRequest) -> Result<()> {
    let container = request.container.clone().unwrap_or_default();
    let owners = request.owners.as_ref().and_then(|owners| owners.owners.get(&container.id));
    if let Some(owners) = owners {
        validate_fields(config, &container, owners)?;
    }
    let pod = request.pod.clone().unwrap_or_default();
    let plugins = request.plugins.iter().map(|plugin| plugin.name.as_str());
    validate_required(config, &pod, &container.name, &plugins.collect::<Vec<_>>())
}

fn refuse(who: &str, what: &str) -> Error {
    Error::permission_denied(format!("NRI plugin {who} changed {what}, which this node's configuration does not allow"))
}

fn validate_fields(
    config: &ValidatorConfig,
    container: &containerd_api_nri::v1alpha1::Container,
    owners: &FieldOwners,
) -> Result<()> {
    let simple = |field: Field| owners.simple.get(&(field as i32));
    let compound = |field: Field| {
        let entries = owners.compound.get(&(field as i32)).into_iter().flat_map(|of| &of.owners);
        entries.map(|(key, who)| format!("{who} ({key})")).collect::<Vec<_>>().join(", ")
    };
    if let (true, Some(who)) = (config.reject_oci_hook_adjustment, simple(Field::OciHooks)) {
        return Err(refuse(who, "OCI hooks"));
    }
    if let Some(who) = simple(Field::SeccompPolicy) {
        let profile = container.linux.as_ref().and_then(|linux| linux.seccomp_profile.as_ref());
        let (refused, what) = match profile.map_or(ProfileType::Unconfined, |profile| profile.profile_type()) {
            ProfileType::Unconfined => (config.reject_unconfined_seccomp_adjustment, "an unconfined seccomp policy"),
            ProfileType::RuntimeDefault => {
                (config.reject_runtime_default_seccomp_adjustment, "the runtime's default seccomp policy")
            }
            ProfileType::Localhost => (config.reject_custom_seccomp_adjustment, "a custom seccomp policy"),
        };
        if refused {
            return Err(refuse(who, what));
        }
    }
    let fields = [
        (config.reject_namespace_adjustment, Field::Namespace, "namespaces"),
        (config.reject_sysctl_adjustment, Field::Sysctl, "sysctls"),
    ];
    for (_, field, what) in fields.into_iter().filter(|(refused, ..)| *refused) {
        let who = compound(field);
        if !who.is_empty() {
            return Err(refuse(&who, what));
        }
    }
    Ok(())
}

/// An annotation as it applies to a container: its own, that of the pod, that without a scope.
fn annotation<'a>(pod: &'a PodSandbox, key: &str, container: &str) -> Option<&'a str> {
    let keys = [format!("{key}/container.{container}"), format!("{key}/pod"), key.to_owned()];
    keys.iter().find_map(|key| pod.annotations.get(key)).map(String::as_str)
}

fn validate_required(config: &ValidatorConfig, pod: &PodSandbox, container: &str, plugins: &[&str]) -> Result<()> {
    let tolerate = &config.tolerate_missing_plugins_annotation;
    if !tolerate.is_empty()
        && let Some(value) = annotation(pod, tolerate, container)
    {
        match value {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => return Ok(()),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => {}
            _ => return Err(Error::invalid_argument(format!("annotation {tolerate}: {value:?} is not true or false"))),
        }
    }
    let mut required = config.required_plugins.clone();
    if let Some(value) = annotation(pod, REQUIRED, container) {
        required.extend(names(value)?);
    }
    required.retain(|name| !plugins.contains(&name.as_str()));
    if required.is_empty() {
        return Ok(());
    }
    let missing = required.join(", ");
    Err(Error::failed_precondition(format!(
        "required NRI plugins are not there: {missing}; start them, or do not require them"
    )))
}

/// A YAML list of names, in the flow form (`[a, "b"]`) or the block form (`- a`).
fn names(text: &str) -> Result<Vec<String>> {
    let text = text.trim();
    let items: Vec<&str> = match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.split(',').collect(),
        None => {
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            let items: Option<Vec<&str>> = lines.map(|line| line.strip_prefix('-')).collect();
            items.ok_or_else(|| {
                Error::invalid_argument(format!("annotation {REQUIRED}: {text:?} is no list, write [\"one\", \"two\"]"))
            })?
        }
    };
    let names = items.into_iter().map(|item| item.trim().trim_matches(['"', '\'']).to_owned());
    Ok(names.filter(|name| !name.is_empty()).collect())
}

#[cfg(test)]
mod tests;
