//! What NRI plugins see and change: the hooks in the lifecycle of pods and containers.
//!
//! A plugin that fails is a matter of `plugin-nri`; here its answers are put into requests and specifications. Hooks that
//! only tell do not fail the operation.

/// Pods and containers as plugins see them.
mod convert;

use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use containerd_api_cri::v1::LinuxContainerResources;
use containerd_api_nri::v1alpha1 as nri;
use core_oci::Spec;
use core_types::{Error, Result, ResultExt};
use plugin_nri::RuntimeCallbacks;

use crate::{
    blocking,
    container::update,
    cri::Cri,
    store::{Container, ContainerFacts, Sandbox},
};

use convert::pod;

/// Seconds that an evicted container has to end.
const EVICTION: i64 = 30;

/// A pod started.
///
/// # Errors
/// What a plugin refuses.
pub(crate) async fn run_pod(cri: &Cri, sandbox: &Sandbox) -> Result<()> {
    if cri.nri.active() { cri.nri.run_pod_sandbox(&pod(sandbox)).await } else { Ok(()) }
}

/// A pod was stopped.
pub(crate) async fn stop_pod(cri: &Cri, sandbox: &Sandbox) {
    if cri.nri.active() {
        log(sandbox.id(), "StopPodSandbox", cri.nri.stop_pod_sandbox(&pod(sandbox)).await);
    }
}

/// A pod was removed.
pub(crate) async fn remove_pod(cri: &Cri, sandbox: &Sandbox) {
    if cri.nri.active() {
        log(sandbox.id(), "RemovePodSandbox", cri.nri.remove_pod_sandbox(&pod(sandbox)).await);
    }
}

/// Lets plugins adjust a container that is being made.
///
/// # Errors
/// What a plugin refuses, and adjustments that contradict each other.
pub(crate) async fn adjust(cri: &Arc<Cri>, sandbox: &Sandbox, facts: &ContainerFacts, spec: &mut Spec) -> Result<()> {
    if !cri.nri.active() {
        return Ok(());
    }
    let adjusted = cri.nri.create_container(&pod(sandbox), &convert::planned(facts, spec)).await;
    let adjusted = adjusted.doing("NRI: make the container")?;
    if let Some(adjustment) = adjusted.adjustment {
        // Reads CDI files.
        let mut adjusted_spec = spec.clone();
        *spec = blocking(move || plugin_nri::apply(&mut adjusted_spec, &adjustment).map(|()| adjusted_spec))
            .await
            .doing("NRI: adjust the container")?;
    }
    apply_updates(cri, &adjusted.updates).await;
    for eviction in adjusted.evictions {
        let cri = Arc::clone(cri);
        // Beside this request: what is evicted may take its grace.
        tokio::spawn(async move { evict(&cri, &eviction).await });
    }
    Ok(())
}

/// Stops a container that a plugin wants gone.
async fn evict(cri: &Arc<Cri>, eviction: &nri::ContainerEviction) {
    let id = &eviction.container_id;
    tracing::info!(id, reason = eviction.reason, "NRI: a plugin evicts a container");
    if let Err(error) = crate::container::stop::stop(cri, id, EVICTION).await {
        tracing::warn!(id, %error, "NRI: eviction of a container");
    }
}

/// Applies what a plugin wants of other containers.
async fn apply_updates(cri: &Arc<Cri>, updates: &[nri::ContainerUpdate]) {
    for wanted in updates {
        if let Err(error) = apply_update(cri, wanted).await {
            tracing::warn!(id = wanted.container_id, %error, "NRI: update of a container");
        }
    }
}

async fn apply_update(cri: &Arc<Cri>, wanted: &nri::ContainerUpdate) -> Result<()> {
    let container = cri.containers.get(&wanted.container_id)?;
    let resources = wanted.linux.as_ref().and_then(|linux| linux.resources.as_ref());
    let resources = resources.ok_or_else(|| Error::invalid_argument("the update has no resources"))?;
    let mut limits = LinuxContainerResources::default();
    convert::overlay(&mut limits, resources);
    update::apply(cri, &container, &limits, Default::default()).await
}

/// A container with its specification, for a hook.
async fn seen(cri: &Cri, container: &Container) -> nri::Container {
    let record = cri.container_records().get(container.id()).await.ok();
    let spec = record.and_then(|record| Spec::from_slice(&record.spec?.value).ok());
    convert::container(container, spec.as_ref())
}

/// The pod of a container, for a hook.
fn pod_of(cri: &Cri, container: &Container) -> Option<nri::PodSandbox> {
    cri.sandboxes.find(&container.facts.sandbox_id).ok().flatten().map(|sandbox| pod(&sandbox))
}

fn log(id: &str, hook: &str, outcome: Result<()>) {
    if let Err(error) = outcome {
        tracing::warn!(id, hook, %error, "NRI plugins");
    }
}

/// A container was made.
pub(crate) async fn created(cri: &Arc<Cri>, sandbox: &Sandbox, container: &Container) {
    if cri.nri.active() {
        let outcome = cri.nri.post_create_container(&pod(sandbox), &seen(cri, container).await).await;
        log(container.id(), "PostCreateContainer", outcome);
    }
}

/// A container is about to start.
///
/// # Errors
/// What a plugin refuses.
pub(crate) async fn starting(cri: &Arc<Cri>, sandbox: &Sandbox, container: &Container) -> Result<()> {
    if !cri.nri.active() {
        return Ok(());
    }
    cri.nri.start_container(&pod(sandbox), &seen(cri, container).await).await
}

/// A container started.
pub(crate) async fn started(cri: &Arc<Cri>, sandbox: &Sandbox, container: &Container) {
    if cri.nri.active() {
        let outcome = cri.nri.post_start_container(&pod(sandbox), &seen(cri, container).await).await;
        log(container.id(), "PostStartContainer", outcome);
    }
}

/// A container ended.
pub(crate) async fn exited(cri: &Arc<Cri>, container: &Container) {
    if !cri.nri.active() {
        return;
    }
    let Some(pod) = pod_of(cri, container) else { return };
    match cri.nri.stop_container(&pod, &seen(cri, container).await).await {
        Ok(updates) => apply_updates(cri, &updates).await,
        Err(error) => log(container.id(), "StopContainer", Err(error)),
    }
}

/// A container was removed.
pub(crate) async fn removed(cri: &Arc<Cri>, container: &Container) {
    if !cri.nri.active() {
        return;
    }
    let Some(pod) = pod_of(cri, container) else { return };
    log(container.id(), "RemoveContainer", cri.nri.remove_container(&pod, &convert::container(container, None)).await);
}

/// Lets plugins change the limits that a container is to get.
///
/// # Errors
/// What a plugin refuses.
pub(crate) async fn update(
    cri: &Arc<Cri>,
    sandbox: &Sandbox,
    container: &Container,
    mut wanted: LinuxContainerResources,
) -> Result<LinuxContainerResources> {
    if !cri.nri.active() {
        return Ok(wanted);
    }
    let told = seen(cri, container).await;
    let updates = cri.nri.update_container(&pod(sandbox), &told, &convert::resources(&wanted)).await;
    let (own, others): (Vec<_>, Vec<_>) = updates
        .doing("NRI: update the container")?
        .into_iter()
        .partition(|update| update.container_id == container.id());
    for resources in own.iter().filter_map(|update| update.linux.as_ref()?.resources.as_ref()) {
        convert::overlay(&mut wanted, resources);
    }
    apply_updates(cri, &others).await;
    Ok(wanted)
}

/// The limits of a container changed.
pub(crate) async fn updated(cri: &Arc<Cri>, sandbox: &Sandbox, container: &Container) {
    if cri.nri.active() {
        let outcome = cri.nri.post_update_container(&pod(sandbox), &seen(cri, container).await).await;
        log(container.id(), "PostUpdateContainer", outcome);
    }
}

/// The limits of a pod change.
///
/// # Errors
/// What a plugin refuses.
pub(crate) async fn update_pod(
    cri: &Arc<Cri>,
    sandbox: &Sandbox,
    overhead: Option<&LinuxContainerResources>,
    resources: Option<&LinuxContainerResources>,
) -> Result<()> {
    if !cri.nri.active() {
        return Ok(());
    }
    let convert = |limits: Option<&LinuxContainerResources>| limits.map(convert::resources);
    cri.nri.update_pod_sandbox(&pod(sandbox), convert(overhead), convert(resources)).await
}

/// The limits of a pod changed.
pub(crate) async fn updated_pod(cri: &Arc<Cri>, sandbox: &Sandbox) {
    if cri.nri.active() {
        log(sandbox.id(), "PostUpdatePodSandbox", cri.nri.post_update_pod_sandbox(&pod(sandbox)).await);
    }
}

/// What plugins ask of the service. Given to NRI before the service is there, and tied to it afterwards.
#[derive(Default)]
pub(crate) struct Callbacks(OnceLock<Weak<Cri>>);

impl Callbacks {
    /// Ties it to its service.
    pub(crate) fn bind(&self, cri: &Arc<Cri>) {
        let _ = self.0.set(Arc::downgrade(cri));
    }

    fn cri(&self) -> Option<Arc<Cri>> {
        self.0.get().and_then(Weak::upgrade)
    }
}

#[async_trait]
impl RuntimeCallbacks for Callbacks {
    async fn pods_and_containers(&self) -> Result<(Vec<nri::PodSandbox>, Vec<nri::Container>)> {
        let Some(cri) = self.cri() else {
            return Ok((Vec::new(), Vec::new()));
        };
        let pods = cri.sandboxes.list().iter().map(|sandbox| pod(sandbox)).collect();
        let mut containers = Vec::new();
        for container in cri.containers.list() {
            containers.push(seen(&cri, &container).await);
        }
        Ok((pods, containers))
    }

    async fn update_containers(&self, updates: Vec<nri::ContainerUpdate>) -> Result<Vec<nri::ContainerUpdate>> {
        let cri = self.cri().ok_or_else(|| Error::unavailable("the runtime service is not there yet"))?;
        let mut failed = Vec::new();
        for wanted in updates {
            if let Err(error) = apply_update(&cri, &wanted).await {
                tracing::warn!(id = wanted.container_id, %error, "NRI: update of a container");
                if !wanted.ignore_failure {
                    failed.push(wanted);
                }
            }
        }
        Ok(failed)
    }
}
