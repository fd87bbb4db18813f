//! What requests for pods may ask for.

use containerd_api_cri::v1::{NamespaceMode, PodSandboxConfig};
use core_types::{Error, Result};

use crate::{names, store};

/// Longest host name (Linux `HOST_NAME_MAX`).
const LONGEST_HOSTNAME: usize = 64;
/// Longest name of a file or cgroup (Linux `NAME_MAX`).
const LONGEST_FILE_NAME: usize = 255;
/// Longest text of metadata.
const LONGEST: usize = 4096;

/// Checks a configuration; answers the pod's name.
///
/// # Errors
/// InvalidArgument that names the field.
pub(crate) fn sandbox(config: &PodSandboxConfig) -> Result<String> {
    let metadata = config.metadata.as_ref().ok_or_else(|| Error::invalid_argument("config.metadata must be set"))?;
    for (field, value) in [("name", &metadata.name), ("namespace", &metadata.namespace), ("uid", &metadata.uid)] {
        text(&format!("config.metadata.{field}"), value)?;
    }
    if metadata.name.is_empty() {
        return Err(Error::invalid_argument("config.metadata.name must not be empty"));
    }
    text("config.hostname", &config.hostname)?;
    if config.hostname.len() > LONGEST_HOSTNAME {
        return Err(Error::invalid_argument(format!("config.hostname is longer than {LONGEST_HOSTNAME} bytes")));
    }
    path("config.log_directory", &config.log_directory)?;
    for mapping in &config.port_mappings {
        for (field, port) in [("container_port", mapping.container_port), ("host_port", mapping.host_port)] {
            if !(0..=65_535).contains(&port) {
                return Err(Error::invalid_argument(format!("config.port_mappings.{field}: {port} is no port")));
            }
        }
    }
    if let Some(linux) = &config.linux {
        path("config.linux.cgroup_parent", &linux.cgroup_parent)?;
        if linux.cgroup_parent.split('/').any(|part| part.len() > LONGEST_FILE_NAME) {
            return Err(Error::invalid_argument(format!(
                "config.linux.cgroup_parent has a part of more than {LONGEST_FILE_NAME} bytes"
            )));
        }
    }
    super::network::check(config)?;
    namespaces(config)?;
    super::user_namespace(config)?;
    Ok(names::pod(metadata))
}

fn namespaces(config: &PodSandboxConfig) -> Result<()> {
    let options = store::namespaces(config);
    for (field, mode, allowed) in [
        ("network", options.network, &[NamespaceMode::Pod, NamespaceMode::Node][..]),
        (
            "pid",
            options.pid,
            &[NamespaceMode::Pod, NamespaceMode::Container, NamespaceMode::Node, NamespaceMode::Target],
        ),
        ("ipc", options.ipc, &[NamespaceMode::Pod, NamespaceMode::Node]),
    ] {
        if !allowed.iter().any(|allowed| *allowed as i32 == mode) {
            return Err(Error::invalid_argument(format!(
                "namespace_options.{field}: {mode} is no mode that it can have"
            )));
        }
    }
    Ok(())
}

/// Checks a text of a request.
///
/// # Errors
/// InvalidArgument that names the field.
pub(crate) fn text(field: &str, value: &str) -> Result<()> {
    if value.len() > LONGEST {
        return Err(Error::invalid_argument(format!("{field} is longer than {LONGEST} bytes")));
    }
    if value.contains('\0') {
        return Err(Error::invalid_argument(format!("{field} has a zero byte")));
    }
    Ok(())
}

/// Checks a path of a request: no zero byte, no way up.
///
/// # Errors
/// InvalidArgument that names the field.
pub(crate) fn path(field: &str, value: &str) -> Result<()> {
    text(field, value)?;
    if value.split('/').any(|part| part == "..") {
        return Err(Error::invalid_argument(format!("{field}: {value:?} must not have `..` in it")));
    }
    Ok(())
}

/// A quantity as Kubernetes writes it (`10M`, `1Gi`, `1500`, `1.5k`, `100e3`); None when it is none or negative.
pub(crate) fn quantity(text: &str) -> Option<u64> {
    const SUFFIXES: [(&str, f64); 13] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
    ];
    let found = SUFFIXES.iter().find_map(|(suffix, scale)| Some((text.strip_suffix(suffix)?, *scale)));
    let (number, scale) = found.unwrap_or((text, 1.0));
    if !number.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    let value = number.parse::<f64>().ok()? * scale;
    // Fractions count as a whole one, as in Kubernetes.
    (value.is_finite() && value < 1.8e19).then_some(value.ceil() as u64)
}

#[cfg(test)]
mod tests {
    use containerd_api_cri::v1::{
        LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceOption, PodSandboxMetadata, PortMapping,
    };

    use super::*;

    fn good() -> PodSandboxConfig {
        let metadata =
            PodSandboxMetadata { name: "web".into(), uid: "u".into(), namespace: "default".into(), attempt: 0 };
        PodSandboxConfig { metadata: Some(metadata), ..PodSandboxConfig::default() }
    }

    #[test]
    fn wrong_fields_are_named() {
        assert_eq!(sandbox(&good()).unwrap(), "web_default_u_0");
        let options = NamespaceOption { network: 77, ..NamespaceOption::default() };
        let context = LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
        let linux = LinuxPodSandboxConfig { security_context: Some(context), ..Default::default() };
        let parent = |cgroup_parent: &str| LinuxPodSandboxConfig {
            cgroup_parent: cgroup_parent.into(),
            ..LinuxPodSandboxConfig::default()
        };
        let bandwidth = [("kubernetes.io/ingress-bandwidth".to_owned(), "much".to_owned())].into();
        let mapping = PortMapping { container_port: 70_000, ..PortMapping::default() };
        let cases = [
            ("metadata", PodSandboxConfig::default()),
            ("metadata.name", PodSandboxConfig { metadata: Some(Default::default()), ..good() }),
            ("hostname", PodSandboxConfig { hostname: "h".repeat(65), ..good() }),
            ("log_directory", PodSandboxConfig { log_directory: "/var/log/../../etc".into(), ..good() }),
            ("container_port", PodSandboxConfig { port_mappings: vec![mapping], ..good() }),
            ("ingress-bandwidth", PodSandboxConfig { annotations: bandwidth, ..good() }),
            ("cgroup_parent", PodSandboxConfig { linux: Some(parent("/a/../b")), ..good() }),
            ("cgroup_parent", PodSandboxConfig { linux: Some(parent(&"x".repeat(256))), ..good() }),
            ("namespace_options.network", PodSandboxConfig { linux: Some(linux), ..good() }),
        ];
        for (field, config) in cases {
            let error = sandbox(&config).unwrap_err();
            assert_eq!(error.kind(), core_types::ErrorKind::InvalidArgument);
            assert!(error.message().contains(field), "{field}: {error}");
        }
    }

    #[test]
    fn quantities_are_kubernetes() {
        for (text, value) in
            [("1500", 1500), ("10M", 10_000_000), ("1Gi", 1 << 30), ("1.5k", 1500), ("100m", 1), ("0", 0)]
        {
            assert_eq!(quantity(text), Some(value), "{text}");
        }
        for wrong in ["", "M", "-1", "1X", "inf", "nan", "1e400", "999999999P"] {
            assert_eq!(quantity(wrong), None, "{wrong}");
        }
    }
}
