use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};

/// Longest name of a network interface in Linux.
const INTERFACE_NAME: usize = 15;
/// Longest identifier of a sandbox that is taken.
const ID: usize = 128;

/// A sandbox and what the plugins may know of it.
#[derive(Clone, Debug, Default)]
pub struct Attachment {
    /// The sandbox's id: `CNI_CONTAINERID`.
    pub id: String,
    /// The path of its network namespace: `CNI_NETNS`. For a removal it may be gone, or empty.
    pub netns: PathBuf,
    /// `CNI_ARGS`, in order: `K8S_POD_NAMESPACE` and the like.
    pub args: Vec<(String, String)>,
    /// What plugins are told if they declare that they want to know it.
    pub capabilities: Capabilities,
}

/// What a plugin gets in `runtimeConfig`, each only if the plugin's `capabilities` name it.
#[derive(Clone, Debug, Default)]
pub struct Capabilities {
    /// `portMappings`.
    pub port_mappings: Vec<PortMapping>,
    /// `bandwidth`.
    pub bandwidth: Option<Bandwidth>,
    /// `dns`.
    pub dns: Option<Dns>,
    /// `cgroupPath`; not given when empty.
    pub cgroup_path: String,
    /// `io.kubernetes.cri.pod-annotations`: the pod's annotations, given even when there are none.
    pub annotations: BTreeMap<String, String>,
    /// `ips`: the addresses wanted, as `address` or `address/prefix`.
    pub ips: Vec<String>,
    /// `mac`: the hardware address wanted; not given when empty.
    pub mac: String,
    /// Any other capability, by name; one of the names above is overridden by it.
    pub other: Map<String, Value>,
}

/// A port of the host that leads into the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    /// The host's port.
    pub host_port: u16,
    /// The sandbox's port.
    pub container_port: u16,
    /// `tcp`, `udp` or `sctp`, in small letters.
    pub protocol: String,
    /// The host's address; absent for all of them.
    #[serde(rename = "hostIP", skip_serializing_if = "Option::is_none")]
    pub host_ip: Option<IpAddr>,
}

/// Limits of traffic. Rates in bits per second, bursts in bits; 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bandwidth {
    /// Rate into the sandbox.
    pub ingress_rate: u64,
    /// Burst into the sandbox.
    pub ingress_burst: u64,
    /// Rate out of the sandbox.
    pub egress_rate: u64,
    /// Burst out of the sandbox.
    pub egress_burst: u64,
}

impl Bandwidth {
    /// Limits with these rates, and the largest burst in each direction that has one.
    pub fn rates(ingress: Option<u64>, egress: Option<u64>) -> Self {
        let burst = |rate: Option<u64>| rate.map_or(0, |_| u64::from(u32::MAX));
        Self {
            ingress_rate: ingress.unwrap_or(0),
            ingress_burst: burst(ingress),
            egress_rate: egress.unwrap_or(0),
            egress_burst: burst(egress),
        }
    }
}

/// The resolver's configuration as the sandbox was asked to have it.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize)]
pub struct Dns {
    /// Name servers.
    pub servers: Vec<String>,
    /// Search domains.
    pub searches: Vec<String>,
    /// Options.
    pub options: Vec<String>,
}

impl Capabilities {
    /// All of them by the names that plugins declare.
    pub(crate) fn by_name(&self) -> Map<String, Value> {
        let mut all = Map::new();
        if !self.port_mappings.is_empty() {
            all.insert("portMappings".into(), json!(self.port_mappings));
        }
        if let Some(bandwidth) = self.bandwidth {
            all.insert("bandwidth".into(), json!(bandwidth));
        }
        if let Some(dns) = &self.dns {
            all.insert("dns".into(), json!(dns));
        }
        if !self.cgroup_path.is_empty() {
            all.insert("cgroupPath".into(), json!(self.cgroup_path));
        }
        all.insert("io.kubernetes.cri.pod-annotations".into(), json!(self.annotations));
        if !self.ips.is_empty() {
            all.insert("ips".into(), json!(self.ips));
        }
        if !self.mac.is_empty() {
            all.insert("mac".into(), json!(self.mac));
        }
        all.extend(self.other.clone());
        all
    }
}

impl Attachment {
    /// Whether every plugin could understand it.
    ///
    /// # Errors
    /// [`Error::Invalid`], naming the field.
    pub fn validate(&self) -> Result<()> {
        if self.id.len() > ID || !is_name(&self.id) {
            return Err(Error::Invalid(format!(
                "sandbox id {:?}: at most {ID} letters, digits, '_', '.' and '-', a letter or digit first",
                self.id
            )));
        }
        arguments(&self.args).map(drop)
    }
}

/// `CNI_ARGS` of these pairs.
pub(crate) fn arguments(pairs: &[(String, String)]) -> Result<String> {
    let mut text = String::new();
    for (key, value) in pairs {
        // Plugins split at these and know no way to escape them.
        if key.is_empty() || [key, value].into_iter().any(|part| part.contains([';', '=', '\0'])) {
            return Err(Error::Invalid(format!(
                "argument {key:?} of the network plugins: no ';', '=' or NUL: {value:?}"
            )));
        }
        if !text.is_empty() {
            text.push(';');
        }
        text.push_str(key);
        text.push('=');
        text.push_str(value);
    }
    Ok(text)
}

/// The form of sandbox ids and network names: safe in a file name.
pub(crate) fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

/// Whether Linux takes it as the name of an interface.
pub(crate) fn is_interface_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= INTERFACE_NAME
        && !matches!(text, "." | "..")
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_keep_their_order_and_cannot_be_smuggled_in() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(arguments(&[pair("B", "1"), pair("A", "")]).unwrap(), "B=1;A=");
        for bad in [pair("", "x"), pair("A", "x;B=2"), pair("A", "x=y"), pair("A;B", "x"), pair("A", "\0")] {
            assert!(arguments(&[bad]).is_err());
        }
    }

    #[test]
    fn only_safe_names_are_taken() {
        for good in ["a", "0f", "pod_1.x-y"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", ".", "..", "-a", "a/b", "a\0", "é", "a b"] {
            assert!(!is_name(bad), "{bad}");
        }
        assert!(is_interface_name("eth0"));
        for bad in ["", ".", "..", "a/b", "a:1", "a b", "sixteen-letters-"] {
            assert!(!is_interface_name(bad), "{bad}");
        }
    }

    #[test]
    fn capabilities_have_the_names_of_the_conventions() {
        let capabilities = Capabilities {
            port_mappings: vec![PortMapping {
                host_port: 80,
                container_port: 8080,
                protocol: "tcp".into(),
                host_ip: None,
            }],
            bandwidth: Some(Bandwidth::rates(Some(1000), None)),
            ..Capabilities::default()
        };
        let by_name = capabilities.by_name();
        assert_eq!(by_name["portMappings"], json!([{"hostPort": 80, "containerPort": 8080, "protocol": "tcp"}]));
        assert_eq!(
            by_name["bandwidth"],
            json!({"ingressRate": 1000, "ingressBurst": u32::MAX, "egressRate": 0, "egressBurst": 0})
        );
        assert!(!by_name.contains_key("mac") && !by_name.contains_key("cgroupPath"));
    }
}
