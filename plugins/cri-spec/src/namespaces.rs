use containerd_api_cri::v1::{self, NamespaceMode, NamespaceOption, UserNamespace};
use core_oci::{IdMapping, Spec};

use crate::{ContainerInput, Result, SpecError};

/// Ids of a user namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdMappings {
    /// Of users.
    pub uids: Vec<IdMapping>,
    /// Of groups.
    pub gids: Vec<IdMapping>,
}

/// The mode a number of a request stands for.
pub(crate) fn mode(field: &str, value: i32) -> Result<NamespaceMode> {
    NamespaceMode::try_from(value).map_err(|_| {
        SpecError::invalid(field, format!("{value} is no namespace mode (POD, CONTAINER, NODE or TARGET)"))
    })
}

/// The modes of a sandbox or container, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Modes {
    pub(crate) network: NamespaceMode,
    pub(crate) pid: NamespaceMode,
    pub(crate) ipc: NamespaceMode,
}

impl Modes {
    /// Reads them; what is not given is POD.
    pub(crate) fn of(field: &str, options: Option<&NamespaceOption>) -> Result<Self> {
        let default = NamespaceOption::default();
        let options = options.unwrap_or(&default);
        Ok(Self {
            network: mode(&format!("{field}.network"), options.network)?,
            pid: mode(&format!("{field}.pid"), options.pid)?,
            ipc: mode(&format!("{field}.ipc"), options.ipc)?,
        })
    }
}

/// The user namespace that a request asks for: `None` for the host's.
///
/// # Errors
/// Invalid, with `field` and the part in it, for a mode other than POD and NODE, mappings that are missing, empty,
/// too large or more than one each, and for mappings with mode NODE.
pub fn user_namespace(field: &str, options: Option<&UserNamespace>) -> Result<Option<IdMappings>> {
    let Some(options) = options else { return Ok(None) };
    let uids = mappings(&format!("{field}.uids"), &options.uids)?;
    let gids = mappings(&format!("{field}.gids"), &options.gids)?;
    match mode(&format!("{field}.mode"), options.mode)? {
        NamespaceMode::Node if uids.is_empty() && gids.is_empty() => Ok(None),
        NamespaceMode::Node => {
            Err(SpecError::invalid(field, "mode NODE is the host's user namespace and takes no mappings"))
        }
        NamespaceMode::Pod if uids.is_empty() || gids.is_empty() => {
            Err(SpecError::invalid(field, "mode POD needs a mapping of user ids and one of group ids"))
        }
        NamespaceMode::Pod => Ok(Some(IdMappings { uids, gids })),
        other => Err(SpecError::invalid(
            format!("{field}.mode"),
            format!("{} is not supported for user namespaces", other.as_str_name()),
        )),
    }
}

/// One mapping at most, since root file systems are mapped with one.
fn mappings(field: &str, list: &[v1::IdMapping]) -> Result<Vec<IdMapping>> {
    if list.len() > 1 {
        return Err(SpecError::invalid(field, format!("only one mapping is supported, got {}", list.len())));
    }
    id_mappings(field, list)
}

/// Mappings of a mount or namespace, checked.
pub(crate) fn id_mappings(field: &str, list: &[v1::IdMapping]) -> Result<Vec<IdMapping>> {
    let convert = |(index, map): (usize, &v1::IdMapping)| {
        let ends = [map.host_id, map.container_id].map(|first| first.checked_add(map.length));
        if map.length == 0 || ends.contains(&None) {
            return Err(SpecError::invalid(
                format!("{field}[{index}].length"),
                format!("{} ids cannot be mapped from {} to {}", map.length, map.container_id, map.host_id),
            ));
        }
        Ok(IdMapping { container: map.container_id, host: map.host_id, size: map.length })
    };
    list.iter().enumerate().map(convert).collect()
}

/// The user namespace of a container, which must be its pod's.
pub(crate) fn of_container(input: &ContainerInput<'_>) -> Result<Option<IdMappings>> {
    const FIELD: &str = "config.linux.security_context.namespace_options.userns_options";
    let own = container_options(input).and_then(|options| options.userns_options.as_ref());
    let pod = sandbox_options(input.sandbox_config).and_then(|options| options.userns_options.as_ref());
    let own = user_namespace(FIELD, own)?;
    let pod = user_namespace(&FIELD.replacen("config", "sandbox_config", 1), pod)?;
    if own != pod {
        return Err(SpecError::invalid(FIELD, "the user namespace of a container must be that of its sandbox"));
    }
    Ok(own)
}

pub(crate) fn container_options<'a>(input: &ContainerInput<'a>) -> Option<&'a NamespaceOption> {
    input.config.linux.as_ref()?.security_context.as_ref()?.namespace_options.as_ref()
}

pub(crate) fn sandbox_options(config: &v1::PodSandboxConfig) -> Option<&NamespaceOption> {
    config.linux.as_ref()?.security_context.as_ref()?.namespace_options.as_ref()
}

/// Where a sandbox has its network.
pub(crate) fn sandbox_network(config: &v1::PodSandboxConfig) -> Result<NamespaceMode> {
    let field = "sandbox_config.linux.security_context.namespace_options";
    Ok(Modes::of(field, sandbox_options(config))?.network)
}

/// Puts a container into its pod's namespaces.
pub(crate) fn join_pod(spec: &mut Spec, input: &ContainerInput<'_>, users: Option<&IdMappings>) -> Result<()> {
    const FIELD: &str = "config.linux.security_context.namespace_options";
    let own = Modes::of(FIELD, container_options(input))?;
    let pod = Modes::of(&FIELD.replacen("config", "sandbox_config", 1), sandbox_options(input.sandbox_config))?;
    let have = input.namespaces;
    let host_network = pod.network == NamespaceMode::Node;
    join(spec, "network", have.network.as_deref(), host_network)?;
    join(spec, "uts", have.uts.as_deref(), host_network)?;
    join(spec, "ipc", have.ipc.as_deref(), pod.ipc == NamespaceMode::Node)?;
    match own.pid {
        NamespaceMode::Container => set(spec, "pid", None)?,
        NamespaceMode::Target => {
            let reason = "no running container of this pod has this id";
            let pid = input.target_pid.ok_or_else(|| SpecError::invalid(format!("{FIELD}.target_id"), reason))?;
            set(spec, "pid", Some(&format!("/proc/{pid}/ns/pid")))?;
        }
        NamespaceMode::Pod | NamespaceMode::Node => {
            join(spec, "pid", have.pid.as_deref(), pod.pid == NamespaceMode::Node)?;
        }
    }
    let Some(users) = users else { return Ok(()) };
    let Some(path) = have.user.as_deref() else { return Err(no_namespace("user")) };
    set_users(spec, users, Some(path))
}

/// Runs in a user namespace, an existing one when there is a path.
pub(crate) fn set_users(spec: &mut Spec, users: &IdMappings, path: Option<&str>) -> Result<()> {
    spec.set_user_namespace(&users.uids, &users.gids).map_err(SpecError::at("userns_options"))?;
    set(spec, "user", path)
}

fn join(spec: &mut Spec, kind: &str, path: Option<&str>, hosts: bool) -> Result<()> {
    match path {
        Some(path) => set(spec, kind, Some(path)),
        None if hosts => {
            spec.use_host_namespace(kind);
            Ok(())
        }
        // Never fall back to the host's: that would take a pod's isolation away without a word.
        None => Err(no_namespace(kind)),
    }
}

fn no_namespace(kind: &str) -> SpecError {
    SpecError::unsupported("pod_sandbox_id", format!("the sandbox has no {kind} namespace to join"))
}

pub(crate) fn set(spec: &mut Spec, kind: &str, path: Option<&str>) -> Result<()> {
    spec.set_namespace(kind, path).map_err(SpecError::at("namespace_options"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(host_id: u32, length: u32) -> v1::IdMapping {
        v1::IdMapping { host_id, container_id: 0, length }
    }

    #[test]
    fn a_user_namespace_has_one_mapping_of_each_kind() {
        let pod = UserNamespace { mode: 0, uids: vec![map(1 << 16, 65536)], gids: vec![map(1 << 17, 65536)] };
        let found = user_namespace("u", Some(&pod)).unwrap().unwrap();
        assert_eq!(found.uids, [IdMapping { container: 0, host: 1 << 16, size: 65536 }]);
        assert_eq!(found.gids[0].host, 1 << 17);
        assert_eq!(user_namespace("u", None).unwrap(), None);
        let node = UserNamespace { mode: 2, ..Default::default() };
        assert_eq!(user_namespace("u", Some(&node)).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_mapped_is_refused_with_its_field() {
        let good = UserNamespace { mode: 0, uids: vec![map(1, 1)], gids: vec![map(1, 1)] };
        for (bad, field) in [
            (UserNamespace { mode: 1, ..good.clone() }, "u.mode"),
            (UserNamespace { mode: 77, ..good.clone() }, "u.mode"),
            (UserNamespace { mode: 2, ..good.clone() }, "u"),
            (UserNamespace { gids: vec![], ..good.clone() }, "u"),
            (UserNamespace { uids: vec![map(1, 1), map(2, 1)], ..good.clone() }, "u.uids"),
            (UserNamespace { uids: vec![map(1, 0)], ..good.clone() }, "u.uids[0].length"),
            (UserNamespace { gids: vec![map(u32::MAX, 2)], ..good.clone() }, "u.gids[0].length"),
        ] {
            assert_eq!(user_namespace("u", Some(&bad)).unwrap_err().field(), field);
        }
    }
}
