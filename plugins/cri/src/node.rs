//! What the node tells of itself: version, conditions, features of runtimes, cgroup driver.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use containerd_api_cri::v1::{
    CgroupDriver, LinuxRuntimeConfiguration, RuntimeCondition, RuntimeConfigResponse, RuntimeFeatures, RuntimeHandler,
    RuntimeHandlerFeatures, RuntimeStatus, StatusResponse, UpdateRuntimeConfigRequest, VersionResponse,
};
use core_types::{Error, Result};
use futures::future::join_all;
use plugin_services::version;

use crate::{
    cri::Cri,
    handler::{Handler, Handlers},
};

/// How long a runtime may take to tell its features.
const FEATURES: Duration = Duration::from_secs(5);

/// What runtimes can do, asked once.
#[derive(Default)]
pub(crate) struct Features(OnceLock<BTreeMap<String, RuntimeHandlerFeatures>>);

impl Features {
    /// Asks every runtime. One that does not say can nothing.
    pub(crate) async fn ask(&self, cri: &Cri) {
        let asked = cri.handlers.all().map(|handler| async move {
            let features = tokio::time::timeout(FEATURES, features(cri, handler)).await;
            let features = features.unwrap_or_else(|_| Err(Error::deadline_exceeded("no answer")));
            let features = features.unwrap_or_else(|error| {
                tracing::debug!(runtime = handler.name, %error, "features of a runtime");
                RuntimeHandlerFeatures::default()
            });
            (handler.name.clone(), features)
        });
        let _ = self.0.set(join_all(asked).await.into_iter().collect());
    }

    /// What a runtime can do.
    pub(crate) fn of(&self, handler: &str) -> RuntimeHandlerFeatures {
        self.0.get().and_then(|all| all.get(handler).copied()).unwrap_or_default()
    }
}

async fn features(cri: &Cri, handler: &Handler) -> Result<RuntimeHandlerFeatures> {
    let info = cri.tasks.runtime_info(handler.shim(), handler.options.as_ref()).await?;
    let features = features_json(&info)?;
    let has = |pointer: &str, wanted: &str| {
        let list = features.pointer(pointer).and_then(serde_json::Value::as_array);
        list.is_some_and(|list| list.iter().any(|item| item == wanted))
    };
    let idmap = features.pointer("/linux/mountExtensions/idmap/enabled").and_then(serde_json::Value::as_bool);
    Ok(RuntimeHandlerFeatures {
        recursive_read_only_mounts: has("/mountOptions", "rro") && kernel_at_least(5, 12),
        user_namespaces: has("/linux/namespaces", "user") && idmap == Some(true) && kernel_at_least(5, 19),
    })
}

/// The features in what a shim tells of its runtime (`RuntimeInfo`, JSON of the OCI features structure).
fn features_json(info: &[u8]) -> Result<serde_json::Value> {
    use prost::Message;
    let info = containerd_api::types::RuntimeInfo::decode(info)
        .map_err(|error| Error::data_loss(format!("the shim's answer cannot be read: {error}")))?;
    let features = info.features.ok_or_else(|| Error::not_found("the runtime tells no features"))?;
    serde_json::from_slice(&features.value).map_err(|error| Error::data_loss(format!("features: {error}")))
}

fn kernel_at_least(major: u32, minor: u32) -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

/// Version.
pub(crate) fn version() -> VersionResponse {
    VersionResponse {
        version: "0.1.0".into(),
        runtime_name: "containerd".into(),
        runtime_version: version::VERSION.into(),
        runtime_api_version: "v1".into(),
    }
}

/// Status: whether the runtime and the network are ready, and why not.
pub(crate) async fn status(cri: &Cri, verbose: bool) -> StatusResponse {
    let network = cri.networks.common.status().await.map_err(|error| error.to_string());
    let conditions = vec![
        condition("RuntimeReady", Ok(()), ""),
        condition("NetworkReady", network.clone(), "NetworkPluginNotReady"),
        condition("ContainerdHasNoDeprecationWarnings", Ok(()), ""),
    ];
    let handlers = cri.handlers.all().map(|handler| handler.name.as_str());
    // The default is listed under the empty name too.
    let runtime_handlers = std::iter::once("").chain(handlers).map(|name| {
        let known = if name.is_empty() { cri.handlers.default().name.as_str() } else { name };
        RuntimeHandler { name: name.into(), features: Some(cri.features.of(known)) }
    });
    StatusResponse {
        status: Some(RuntimeStatus { conditions }),
        info: if verbose { information(cri, &network).await } else { BTreeMap::new() },
        runtime_handlers: runtime_handlers.collect(),
        features: Some(RuntimeFeatures { supplemental_groups_policy: true, ..RuntimeFeatures::default() }),
    }
}

fn condition(kind: &str, outcome: std::result::Result<(), String>, reason: &str) -> RuntimeCondition {
    RuntimeCondition {
        r#type: kind.into(),
        status: outcome.is_ok(),
        reason: if outcome.is_err() { reason.into() } else { String::new() },
        message: outcome.err().unwrap_or_default(),
    }
}

/// What `crictl info` shows.
async fn information(cri: &Cri, network: &std::result::Result<(), String>) -> BTreeMap<String, String> {
    let text = |value: serde_json::Result<String>| value.unwrap_or_default();
    let load = network.clone().err().unwrap_or_else(|| "OK".into());
    BTreeMap::from([
        ("config".to_owned(), text(serde_json::to_string(&cri.config))),
        ("cniconfig".to_owned(), text(serde_json::to_string(&cri.networks.common.configs().await))),
        ("lastCNILoadStatus".to_owned(), load.clone()),
        ("lastCNILoadStatus.default".to_owned(), load),
    ])
}

/// RuntimeConfig: the cgroup driver, which kubelet takes over.
pub(crate) fn runtime_config(handlers: &Handlers) -> RuntimeConfigResponse {
    let known = std::iter::once(handlers.default()).chain(handlers.all());
    let known = known.into_iter().find(|handler| handler.config.runtime_type == "io.containerd.runc.v2");
    let systemd = match known {
        Some(handler) => handler.systemd_cgroup,
        None => Path::new("/run/systemd/system").is_dir(),
    };
    let driver = if systemd { CgroupDriver::Systemd } else { CgroupDriver::Cgroupfs };
    RuntimeConfigResponse { linux: Some(LinuxRuntimeConfiguration { cgroup_driver: driver as i32 }) }
}

/// UpdateRuntimeConfig: the addresses of pods, for the template of a CNI configuration.
///
/// # Errors
/// InvalidArgument for a range that is none; what reading the template and writing the file say.
pub(crate) async fn update_config(cri: &Arc<Cri>, request: UpdateRuntimeConfigRequest) -> Result<()> {
    let network = request.runtime_config.unwrap_or_default().network_config.unwrap_or_default();
    let (template, directory) = (cri.config.cni.conf_template.clone(), cri.config.cni.conf_dir.clone());
    if network.pod_cidr.is_empty() || template.is_empty() {
        return Ok(());
    }
    // A network that was configured by others stays as it is.
    if cri.networks.common.status().await.is_ok() {
        return Ok(());
    }
    let ranges: Vec<String> = network.pod_cidr.split(',').map(|range| range.trim().to_owned()).collect();
    for range in &ranges {
        let address =
            range.split_once('/').map(|(address, bits)| (address.parse::<std::net::IpAddr>(), bits.parse::<u8>()));
        if !matches!(address, Some((Ok(_), Ok(0..=128)))) {
            return Err(Error::invalid_argument(format!(
                "network_config.pod_cidr: {range:?} is no range of addresses"
            )));
        }
    }
    crate::blocking(move || crate::template::fill(Path::new(&template), Path::new(&directory), &ranges)).await
}
