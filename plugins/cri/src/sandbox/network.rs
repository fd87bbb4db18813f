//! Attaching pods to networks.

use std::{net::IpAddr, path::PathBuf};

use containerd_api_cri::v1::{PodSandboxConfig, Protocol};
use core_types::{Error, Result};

use super::validate::quantity;
use crate::{cri::Cri, netns, store::Sandbox};

/// The device whose addresses are the pod's.
const DEVICE: &str = "eth0";

/// Attaches a pod to its networks and keeps its addresses. A pod on the host's network needs none.
///
/// # Errors
/// The CNI plugins'; Internal when they gave the pod no address.
pub(crate) async fn attach(cri: &Cri, sandbox: &Sandbox) -> Result<()> {
    let Some(netns) = sandbox.state().netns else {
        return Ok(());
    };
    let attachment = attachment(sandbox, Some(netns))?;
    let setup = cri.networks.of(&sandbox.facts.handler).setup(&attachment).await?;
    let ips: Vec<IpAddr> = setup.interfaces.get(DEVICE).map(addresses).unwrap_or_default();
    if ips.is_empty() {
        return Err(Error::internal(format!("the CNI plugins gave no address to {DEVICE}")));
    }
    let ips = prefer(ips, &cri.config.cni.ip_pref);
    sandbox.update(|state| {
        state.ips = ips;
        state.attached = true;
        state.cni_result = serde_json::Value::Array(setup.results);
    });
    Ok(())
}

/// Detaches a pod from its networks. `netns` is None when the namespace is gone.
///
/// # Errors
/// The CNI plugins', unless the pod was never wholly attached.
pub(crate) async fn detach(cri: &Cri, sandbox: &Sandbox, netns: Option<PathBuf>) -> Result<()> {
    let netns = netns.filter(|path| netns::exists(path));
    let detached = match attachment(sandbox, netns) {
        Ok(attachment) => cri.networks.of(&sandbox.facts.handler).remove(&attachment).await.map_err(Error::from),
        Err(error) => Err(error),
    };
    match detached {
        Err(error) if !sandbox.state().attached => {
            tracing::warn!(id = sandbox.id(), %error, "networks of a pod that was never attached to all of them");
            Ok(())
        }
        Ok(()) => {
            sandbox.update(|state| state.attached = false);
            Ok(())
        }
        detached => detached,
    }
}

fn addresses(interface: &core_cni::Interface) -> Vec<IpAddr> {
    interface.ips.iter().map(|ip| ip.address).collect()
}

/// The addresses, the preferred one first.
fn prefer(mut ips: Vec<IpAddr>, preference: &str) -> Vec<IpAddr> {
    let first = match preference {
        "cni" => None,
        "ipv6" => ips.iter().position(IpAddr::is_ipv6),
        _ => ips.iter().position(IpAddr::is_ipv4),
    };
    if let Some(first) = first {
        let ip = ips.remove(first);
        ips.insert(0, ip);
    }
    ips
}

fn attachment(sandbox: &Sandbox, netns: Option<PathBuf>) -> Result<core_cni::Attachment> {
    let config = &sandbox.facts.config;
    let metadata = config.metadata.clone().unwrap_or_default();
    let args = [
        ("IgnoreUnknown", "1"),
        ("K8S_POD_NAMESPACE", &metadata.namespace),
        ("K8S_POD_NAME", &metadata.name),
        ("K8S_POD_INFRA_CONTAINER_ID", sandbox.id()),
        ("K8S_POD_UID", &metadata.uid),
    ];
    Ok(core_cni::Attachment {
        id: sandbox.id().to_owned(),
        // Empty when it is gone, as the CNI specification has it.
        netns: netns.unwrap_or_default(),
        args: args.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        capabilities: capabilities(config)?,
    })
}

fn capabilities(config: &PodSandboxConfig) -> Result<core_cni::Capabilities> {
    let mapped = config.port_mappings.iter().filter(|mapping| mapping.host_port > 0);
    let parent = config.linux.as_ref().map(|linux| linux.cgroup_parent.clone());
    Ok(core_cni::Capabilities {
        port_mappings: mapped.map(port_mapping).collect::<Result<_>>()?,
        bandwidth: bandwidth(config)?,
        dns: config.dns_config.as_ref().map(|dns| core_cni::Dns {
            servers: dns.servers.clone(),
            searches: dns.searches.clone(),
            options: dns.options.clone(),
        }),
        cgroup_path: parent.unwrap_or_default(),
        annotations: config.annotations.clone(),
        ..core_cni::Capabilities::default()
    })
}

fn port_mapping(mapping: &containerd_api_cri::v1::PortMapping) -> Result<core_cni::PortMapping> {
    let protocol = match mapping.protocol() {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    };
    let port = |port: i32| u16::try_from(port).map_err(|_| Error::invalid_argument(format!("{port} is no port")));
    let host_ip =
        match mapping.host_ip.as_str() {
            "" => None,
            text => Some(text.parse().map_err(|_| {
                Error::invalid_argument(format!("config.port_mappings.host_ip: {text:?} is no address"))
            })?),
        };
    Ok(core_cni::PortMapping {
        host_port: port(mapping.host_port)?,
        container_port: port(mapping.container_port)?,
        protocol: protocol.into(),
        host_ip,
    })
}

/// Checks what a request says about its networks.
///
/// # Errors
/// InvalidArgument that names the field or annotation.
pub(super) fn check(config: &PodSandboxConfig) -> Result<()> {
    capabilities(config).map(drop)
}

/// The bandwidth that annotations ask for, in bits for each second.
fn bandwidth(config: &PodSandboxConfig) -> Result<Option<core_cni::Bandwidth>> {
    let rate = |name: &str| {
        let Some(text) = config.annotations.get(name) else {
            return Ok(0);
        };
        let rate = quantity(text).filter(|rate| (1_000..=1_000_000_000_000_000).contains(rate));
        rate.ok_or_else(|| {
            Error::invalid_argument(format!("annotation {name}: {text:?} is no quantity between 1k and 1P"))
        })
    };
    let ingress = rate("kubernetes.io/ingress-bandwidth")?;
    let egress = rate("kubernetes.io/egress-bandwidth")?;
    let set = |rate: u64| (rate > 0).then_some(rate);
    Ok((ingress > 0 || egress > 0).then(|| core_cni::Bandwidth::rates(set(ingress), set(egress))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_address_comes_first() {
        let ips = |texts: &[&str]| -> Vec<IpAddr> { texts.iter().map(|text| text.parse().unwrap()).collect() };
        let given = ips(&["fd00::2", "10.0.0.2", "10.0.0.3"]);
        assert_eq!(prefer(given.clone(), ""), ips(&["10.0.0.2", "fd00::2", "10.0.0.3"]));
        assert_eq!(prefer(given.clone(), "ipv6"), given);
        assert_eq!(prefer(given.clone(), "cni"), given);
        assert_eq!(prefer(ips(&["fd00::2"]), "ipv4"), ips(&["fd00::2"]));
    }

    #[test]
    fn bandwidth_is_read_as_kubernetes_writes_it() {
        let config = |text: &str| PodSandboxConfig {
            annotations: [("kubernetes.io/ingress-bandwidth".to_owned(), text.to_owned())].into(),
            ..PodSandboxConfig::default()
        };
        assert_eq!(bandwidth(&config("10M")).unwrap().unwrap().ingress_rate, 10_000_000);
        assert_eq!(bandwidth(&config("1Gi")).unwrap().unwrap().ingress_rate, 1 << 30);
        for wrong in ["x", "1", "-1M", ""] {
            assert!(bandwidth(&config(wrong)).is_err(), "{wrong}");
        }
        assert!(bandwidth(&PodSandboxConfig::default()).unwrap().is_none());
    }
}
