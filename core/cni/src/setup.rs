use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::{
    config::IpPreference,
    result::{NetworkResult, ResultDns, ResultIp, Route},
};

/// What attaching a sandbox gave, of all networks together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Setup {
    /// The interfaces by name, in the sandbox and on the host. Where two networks made interfaces of one name,
    /// that of the later one; its addresses are added.
    pub interfaces: BTreeMap<String, Interface>,
    /// The addresses of the sandbox's first interface, in the order wanted. Empty if its network gives none.
    pub ips: Vec<IpAddr>,
    /// The routes, in the order of the networks.
    pub routes: Vec<Route>,
    /// The resolver's configuration of each network, in order.
    pub dns: Vec<ResultDns>,
    /// The networks' results as the last plugin of each wrote them, in order.
    pub results: Vec<Value>,
}

/// An interface of a [`Setup`].
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize)]
pub struct Interface {
    /// Its addresses as the plugins gave them.
    pub ips: Vec<InterfaceIp>,
    /// Its hardware address; may be empty.
    pub mac: String,
    /// The path of its network namespace; empty on the host.
    pub sandbox: String,
    /// Its place on the PCI bus; may be empty.
    pub pci_id: String,
    /// A socket that leads to it; may be empty.
    pub socket_path: String,
}

/// An address of an [`Interface`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InterfaceIp {
    /// The address.
    pub address: IpAddr,
    /// The length of its network's prefix.
    pub prefix: u8,
    /// The gateway of that network.
    pub gateway: Option<IpAddr>,
}

/// A recorded attachment of a sandbox to a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The sandbox's id.
    pub id: String,
    /// The network's name.
    pub network: String,
    /// The interface in the sandbox.
    pub ifname: String,
    /// The path that the network namespace had.
    pub netns: PathBuf,
    /// The arguments that the plugins were given.
    pub args: Vec<(String, String)>,
    /// Whether the attachment came to its end; otherwise it may be there in part.
    pub complete: bool,
}

impl Setup {
    /// Puts the results of the networks together. `first` is the name of the sandbox's first interface, to which
    /// addresses belong that name no interface.
    pub(crate) fn new(networks: Vec<(NetworkResult, Value)>, first: &str, preference: IpPreference) -> Self {
        let mut setup = Self::default();
        setup.interfaces.insert(first.to_owned(), Interface::default());
        for (network, raw) in networks {
            setup.merge(network, first);
            setup.results.push(raw);
        }
        let all = setup.interfaces.get(first).map(|interface| interface.ips.as_slice()).unwrap_or_default();
        setup.ips = all.iter().map(|ip| ip.address).collect();
        match preference {
            IpPreference::Ipv4 => setup.ips.sort_by_key(|ip| !ip.is_ipv4()),
            IpPreference::Ipv6 => setup.ips.sort_by_key(|ip| !ip.is_ipv6()),
            IpPreference::AsGiven => {}
        }
        setup
    }

    fn merge(&mut self, network: NetworkResult, first: &str) {
        for new in &network.interfaces {
            let interface = self.interfaces.entry(new.name.clone()).or_default();
            interface.mac.clone_from(&new.mac);
            interface.sandbox.clone_from(&new.sandbox);
            interface.pci_id.clone_from(&new.pci_id);
            interface.socket_path.clone_from(&new.socket_path);
        }
        for ResultIp { address, prefix, gateway, interface } in network.ips {
            let named = interface.and_then(|index| network.interfaces.get(index));
            let name = named.map_or(first, |interface| interface.name.as_str());
            let interface = self.interfaces.entry(name.to_owned()).or_default();
            interface.ips.push(InterfaceIp { address, prefix, gateway });
        }
        self.routes.extend(network.routes);
        self.dns.push(network.dns);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::version::SpecVersion;

    #[test]
    fn the_addresses_of_the_first_interface_come_in_the_order_wanted() {
        let result = json!({"cniVersion": "1.0.0",
            "interfaces": [{"name": "veth1"}, {"name": "eth0", "sandbox": "/ns", "mac": "m"}],
            "ips": [{"address": "192.0.2.1/24", "interface": 0}, {"address": "fd00::2/64", "interface": 1},
                    {"address": "10.0.0.2/24", "gateway": "10.0.0.1"}]});
        let other = json!({"cniVersion": "1.0.0", "interfaces": [{"name": "eth1", "sandbox": "/ns"}],
            "ips": [{"address": "10.1.0.2/24", "interface": 0}]});
        let ips = |preference| {
            let parse = |value: &Value| (NetworkResult::parse(value, SpecVersion::NEWEST).unwrap(), value.clone());
            let setup = Setup::new(vec![parse(&result), parse(&other)], "eth0", preference);
            assert_eq!(setup.interfaces["eth0"].mac, "m");
            assert_eq!(setup.interfaces["eth1"].ips.len(), 1);
            assert_eq!(setup.dns.len(), 2);
            setup.ips.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(ips(IpPreference::Ipv4), ["10.0.0.2", "fd00::2"]);
        assert_eq!(ips(IpPreference::Ipv6), ["fd00::2", "10.0.0.2"]);
        assert_eq!(ips(IpPreference::AsGiven), ["fd00::2", "10.0.0.2"]);
    }

    #[test]
    fn a_network_without_addresses_has_its_interface_all_the_same() {
        let setup = Setup::new(Vec::new(), "eth0", IpPreference::Ipv4);
        assert!(setup.ips.is_empty() && setup.interfaces.contains_key("eth0"));
    }
}
