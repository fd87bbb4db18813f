use std::path::Path;

use core_oci::{BindMount, DeviceNode, Spec};

use crate::{ContainerInput, HostFiles, Result, SpecError, process::no_zero_byte};

/// Prefix of annotations that ask for CDI devices.
const CDI_PREFIX: &str = "cdi.k8s.io/";

/// Makes the devices that a request names. `users` says whether the container has a user namespace.
pub(crate) fn add_requested(
    spec: &mut Spec,
    input: &ContainerInput<'_>,
    users: bool,
    files: &dyn HostFiles,
) -> Result<()> {
    for (index, device) in input.config.devices.iter().enumerate() {
        let field = format!("config.devices[{index}]");
        for (name, path) in [("host_path", &device.host_path), ("container_path", &device.container_path)] {
            no_zero_byte(format!("{field}.{name}"), path)?;
        }
        if !device.host_path.starts_with('/') {
            let reason = format!("{:?} is not absolute", device.host_path);
            return Err(SpecError::invalid(format!("{field}.host_path"), reason));
        }
        if device.permissions.is_empty() || !device.permissions.bytes().all(|byte| b"rwm".contains(&byte)) {
            let reason = format!("{:?} is not one or more of r, w and m", device.permissions);
            return Err(SpecError::invalid(format!("{field}.permissions"), reason));
        }
        let host_path = Path::new(&device.host_path);
        let found = files.devices(host_path).map_err(SpecError::at(format!("{field}.host_path")))?;
        for mut node in found {
            let on_host = node.path.clone();
            if !device.container_path.is_empty() {
                node.path = moved(&node.path, host_path, &device.container_path);
            }
            if users && node.path != on_host {
                bind(spec, &on_host, &node, &device.permissions);
                continue;
            }
            if input.options.device_ownership_from_security_context {
                own(&mut node, input);
            }
            spec.add_device(&node, &device.permissions);
        }
    }
    Ok(())
}

/// Shows a device of the host at another path. In a user namespace no node can be made, and runtimes show the host's
/// device of the same path, which is the wrong one or none.
fn bind(spec: &mut Spec, on_host: &str, node: &DeviceNode, access: &str) {
    spec.add_mounts([BindMount {
        kind: "bind".into(),
        source: on_host.to_owned(),
        destination: node.path.clone(),
        options: ["bind", "rprivate", "nosuid", "noexec", "rw"].map(str::to_owned).into(),
    }]);
    spec.allow_device(node, access);
}

/// A path below `from`, below `to`.
fn moved(path: &str, from: &Path, to: &str) -> String {
    match Path::new(path).strip_prefix(from) {
        Ok(rest) if !rest.as_os_str().is_empty() => Path::new(to).join(rest).to_string_lossy().into_owned(),
        _ => to.to_owned(),
    }
}

/// Gives a device to the user and group of the container, unless they are root or come from the image.
fn own(node: &mut DeviceNode, input: &ContainerInput<'_>) {
    let Some(security) = input.config.linux.as_ref().and_then(|linux| linux.security_context.as_ref()) else { return };
    let id = |value: Option<containerd_api_cri::v1::Int64Value>| {
        value.and_then(|value| u32::try_from(value.value).ok()).filter(|id| *id != 0)
    };
    node.uid = id(security.run_as_user).or(node.uid);
    node.gid = id(security.run_as_group).or(node.gid);
}

/// What a privileged container gets of the host's devices.
pub(crate) fn add_privileged(spec: &mut Spec, input: &ContainerInput<'_>, files: &dyn HostFiles) -> Result<()> {
    if !input.handler.privileged_without_host_devices {
        let field = "config.linux.security_context.privileged";
        spec.make_devices(&files.devices(Path::new("/dev")).map_err(SpecError::at(field))?);
        spec.allow_all_devices();
    } else if input.handler.privileged_without_host_devices_all_devices_allowed {
        spec.allow_all_devices();
    }
    Ok(())
}

/// Injects the CDI devices that a request names, by its field and by annotations.
pub(crate) fn inject_cdi(spec: &mut Spec, input: &ContainerInput<'_>, files: &dyn HostFiles) -> Result<()> {
    let mut wanted: Vec<(String, String)> = Vec::new();
    let fields = input.config.cdi_devices.iter().enumerate();
    let fields = fields.map(|(index, device)| (format!("config.cdi_devices[{index}].name"), device.name.clone()));
    let annotations = input.config.annotations.iter().filter(|(key, _)| key.starts_with(CDI_PREFIX));
    let annotations = annotations.flat_map(|(key, value)| {
        value.split(',').map(move |name| (format!("config.annotations[{key:?}]"), name.to_owned()))
    });
    for (field, name) in fields.chain(annotations) {
        if !wanted.iter().any(|(_, have)| *have == name) {
            wanted.push((field, name));
        }
    }
    let Some((first, _)) = wanted.first() else { return Ok(()) };
    if !input.options.enable_cdi {
        let names: Vec<&str> = wanted.iter().map(|(_, name)| name.as_str()).collect();
        let reason = format!("CDI devices {} requested but CDI support is disabled (enable_cdi)", names.join(", "));
        return Err(SpecError::unsupported(first, reason));
    }
    let registry = files.cdi(&input.options.cdi_spec_dirs);
    let mut injection = registry.injection();
    for (field, name) in &wanted {
        injection.add(name).map_err(SpecError::at(field))?;
    }
    injection.apply(spec).map_err(SpecError::at(first))
}
