//! What pods tell of themselves.

use std::{collections::BTreeMap, sync::Arc};

use containerd_api_cri::v1::{
    LinuxPodSandboxStatus, Namespace, PodIp, PodSandbox, PodSandboxFilter, PodSandboxNetworkStatus, PodSandboxStatus,
    PodSandboxStatusResponse,
};
use core_types::Result;

use crate::{cri::Cri, json, netns, store::Sandbox};

/// The status of a pod.
pub(crate) fn status(sandbox: &Sandbox) -> PodSandboxStatus {
    let state = sandbox.state();
    let config = &sandbox.facts.config;
    let reachable = state.netns.as_deref().is_some_and(netns::exists);
    let mut ips = state.ips.iter().filter(|_| reachable).map(ToString::to_string);
    let network = PodSandboxNetworkStatus {
        ip: ips.next().unwrap_or_default(),
        additional_ips: ips.map(|ip| PodIp { ip }).collect(),
    };
    PodSandboxStatus {
        id: sandbox.id().to_owned(),
        metadata: config.metadata.clone(),
        state: sandbox.cri_state() as i32,
        created_at: state.created_at,
        network: Some(network),
        linux: Some(LinuxPodSandboxStatus { namespaces: Some(Namespace { options: Some(sandbox.namespaces()) }) }),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        runtime_handler: sandbox.facts.handler.clone(),
    }
}

/// PodSandboxStatus.
///
/// # Errors
/// NotFound.
pub(crate) async fn response(cri: &Cri, id: &str, verbose: bool) -> Result<PodSandboxStatusResponse> {
    let sandbox = cri.sandboxes.get(id)?;
    let mut info = BTreeMap::new();
    if verbose {
        info.insert("info".to_owned(), information(cri, &sandbox).await?);
    }
    Ok(PodSandboxStatusResponse {
        status: Some(status(&sandbox)),
        info,
        containers_statuses: crate::events::containers(cri, &sandbox),
        timestamp: crate::store::now(),
    })
}

/// More for people, as JSON with the names that tools know.
async fn information(cri: &Cri, sandbox: &Sandbox) -> Result<String> {
    let state = sandbox.state();
    let record = cri.container_records().get(sandbox.id()).await.ok();
    let image = record.as_ref().map(|record| record.image.clone()).unwrap_or_default();
    let handler = cri.handler(sandbox)?;
    let value = serde_json::json!({
        "pid": state.pid,
        "processStatus": if sandbox.is_ready() { "running" } else { "deleted" },
        "netNamespaceClosed": state.netns.as_deref().is_some_and(|path| !netns::exists(path)),
        "image": image,
        "snapshotKey": sandbox.id(),
        "snapshotter": record.as_ref().map(|record| record.snapshotter.clone()).unwrap_or_default(),
        "runtimeHandler": sandbox.facts.handler,
        "runtimeType": handler.config.runtime_type,
        "runtimeOptions": json::runtime_options(handler.options.as_ref()),
        "config": json::sandbox_config(&sandbox.facts.config),
        "runtimeSpec": record.and_then(|record| json::spec(&record)),
        "cniResult": state.cni_result,
    });
    Ok(value.to_string())
}

/// ListPodSandbox.
///
/// # Errors
/// InvalidArgument for an id that is the start of several.
pub(crate) fn list(cri: &Cri, filter: Option<&PodSandboxFilter>) -> Result<Vec<PodSandbox>> {
    Ok(select(cri, filter)?.iter().map(|sandbox| item(sandbox)).collect())
}

/// The pods that a filter takes.
///
/// # Errors
/// InvalidArgument for an id that is the start of several.
pub(crate) fn select(cri: &Cri, filter: Option<&PodSandboxFilter>) -> Result<Vec<Arc<Sandbox>>> {
    let mut found = match filter.map(|filter| filter.id.as_str()).filter(|id| !id.is_empty()) {
        Some(id) => cri.sandboxes.find(id)?.into_iter().collect(),
        None => cri.sandboxes.list(),
    };
    found.retain(|sandbox| filter.is_none_or(|filter| accepts(filter, sandbox)));
    Ok(found)
}

/// Whether a filter takes a pod; its id was looked at before.
fn accepts(filter: &PodSandboxFilter, sandbox: &Sandbox) -> bool {
    let state = filter.state.is_none_or(|wanted| wanted.state == sandbox.cri_state() as i32);
    state && labels(&filter.label_selector, &sandbox.facts.config.labels)
}

/// Whether labels have everything that is wanted.
pub(crate) fn labels<'a>(
    wanted: impl IntoIterator<Item = (&'a String, &'a String)>,
    labels: &std::collections::BTreeMap<String, String>,
) -> bool {
    wanted.into_iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn item(sandbox: &Sandbox) -> PodSandbox {
    let config = &sandbox.facts.config;
    PodSandbox {
        id: sandbox.id().to_owned(),
        metadata: config.metadata.clone(),
        state: sandbox.cri_state() as i32,
        created_at: sandbox.state().created_at,
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        runtime_handler: sandbox.facts.handler.clone(),
    }
}
