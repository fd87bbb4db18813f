use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::version::SpecVersion;

/// What attaching to one network gave, whatever version of the specification the plugins spoke.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize)]
pub struct NetworkResult {
    /// The interfaces made, in the sandbox and on the host.
    pub interfaces: Vec<ResultInterface>,
    /// The addresses, those of interfaces in the sandbox first, otherwise in the plugins' order.
    pub ips: Vec<ResultIp>,
    /// The routes.
    pub routes: Vec<Route>,
    /// The resolver's configuration.
    pub dns: ResultDns,
}

/// An interface of a [`NetworkResult`].
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResultInterface {
    /// Its name.
    pub name: String,
    /// Its hardware address; may be empty.
    pub mac: String,
    /// The path of the network namespace it is in; empty on the host.
    pub sandbox: String,
    /// Its MTU; 0 where not told.
    pub mtu: u64,
    /// A socket that leads to it; may be empty.
    pub socket_path: String,
    /// Its place on the PCI bus; may be empty.
    #[serde(rename = "pciID")]
    pub pci_id: String,
}

/// An address of a [`NetworkResult`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResultIp {
    /// The address.
    pub address: IpAddr,
    /// The length of its network's prefix.
    pub prefix: u8,
    /// The gateway of that network.
    pub gateway: Option<IpAddr>,
    /// Which of the interfaces has it; where not told, the sandbox's.
    pub interface: Option<usize>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// The network it leads to.
    pub destination: IpAddr,
    /// The length of that network's prefix.
    pub prefix: u8,
    /// The next hop; absent where the network's gateway is meant.
    pub gateway: Option<IpAddr>,
}

/// The resolver's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultDns {
    /// Name servers.
    #[serde(deserialize_with = "null_is_default")]
    pub nameservers: Vec<String>,
    /// The domain.
    pub domain: String,
    /// Search domains.
    #[serde(deserialize_with = "null_is_default")]
    pub search: Vec<String>,
    /// Options.
    #[serde(deserialize_with = "null_is_default")]
    pub options: Vec<String>,
}

/// The form of all versions up to 0.2.0.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Old {
    ip4: Option<OldIp>,
    ip6: Option<OldIp>,
    #[serde(deserialize_with = "null_is_default")]
    dns: ResultDns,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OldIp {
    ip: String,
    gateway: Option<String>,
    #[serde(deserialize_with = "null_is_default")]
    routes: Vec<RawRoute>,
}

/// The form of all versions from 0.3.0 on.
#[derive(Default, Deserialize)]
#[serde(default)]
struct New {
    #[serde(deserialize_with = "null_is_default")]
    interfaces: Vec<ResultInterface>,
    #[serde(deserialize_with = "null_is_default")]
    ips: Vec<NewIp>,
    #[serde(deserialize_with = "null_is_default")]
    routes: Vec<RawRoute>,
    #[serde(deserialize_with = "null_is_default")]
    dns: ResultDns,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NewIp {
    address: String,
    gateway: Option<String>,
    interface: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawRoute {
    dst: String,
    gw: Option<String>,
}

impl NetworkResult {
    /// Reads a result in the form of the version that it names, or of `version` where it names none.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(value: &Value, version: SpecVersion) -> Result<Self, String> {
        if !value.is_object() {
            return Err("it is not an object".into());
        }
        let version = match value.get("cniVersion") {
            None | Some(Value::Null) => version,
            Some(Value::String(text)) if text.is_empty() => version,
            Some(Value::String(text)) => text.parse()?,
            Some(_) => return Err("\"cniVersion\" is not a text".into()),
        };
        if version > SpecVersion::NEWEST {
            return Err(format!("version {version} is not known: {} is the newest that is", SpecVersion::NEWEST));
        }
        if version < SpecVersion::LISTS { Self::from_old(value) } else { Self::from_new(value) }
    }

    fn from_old(value: &Value) -> Result<Self, String> {
        let old = Old::deserialize(value).map_err(|error| error.to_string())?;
        let mut result = Self { dns: old.dns, ..Self::default() };
        for ip in [old.ip4, old.ip6].into_iter().flatten() {
            let (address, prefix) = network(&ip.ip)?;
            let gateway = gateway(ip.gateway)?;
            result.ips.push(ResultIp { address, prefix, gateway, interface: None });
            for raw in ip.routes {
                let route = raw.parse()?;
                result.routes.push(Route { gateway: route.gateway.or(gateway), ..route });
            }
        }
        Ok(result)
    }

    fn from_new(value: &Value) -> Result<Self, String> {
        let new = New::deserialize(value).map_err(|error| error.to_string())?;
        let mut ips = Vec::with_capacity(new.ips.len());
        for ip in new.ips {
            let (address, prefix) = network(&ip.address)?;
            let interface = match ip.interface {
                None => None,
                Some(index) => match usize::try_from(index) {
                    Ok(index) if index < new.interfaces.len() => Some(index),
                    _ => return Err(format!("address {} is of interface {index}, which is not there", ip.address)),
                },
            };
            ips.push(ResultIp { address, prefix, gateway: gateway(ip.gateway)?, interface });
        }
        let in_sandbox = |ip: &ResultIp| {
            ip.interface
                .and_then(|index| new.interfaces.get(index))
                .is_none_or(|interface| !interface.sandbox.is_empty())
        };
        ips.sort_by_key(|ip| !in_sandbox(ip));
        let routes = new.routes.into_iter().map(RawRoute::parse).collect::<Result<_, _>>()?;
        Ok(Self { ips, routes, dns: new.dns, interfaces: new.interfaces })
    }
}

impl RawRoute {
    fn parse(self) -> Result<Route, String> {
        let (destination, prefix) = network(&self.dst)?;
        Ok(Route { destination, prefix, gateway: gateway(self.gw)? })
    }
}

/// An address with the length of its prefix.
fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let bad = || format!("{text:?} is not an address with the length of its prefix");
    let (address, prefix) = text.split_once('/').ok_or_else(bad)?;
    let address: IpAddr = address.parse().map_err(|_| bad())?;
    let prefix: u8 = prefix.parse().map_err(|_| bad())?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    if prefix > longest { Err(bad()) } else { Ok((address, prefix)) }
}

fn gateway(text: Option<String>) -> Result<Option<IpAddr>, String> {
    match text.as_deref() {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| format!("gateway {text:?} is not an address")),
    }
}

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests;
