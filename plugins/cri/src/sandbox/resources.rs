//! Limits of a whole pod, which kubelet sets on the cgroup of the pod itself and tells here.

use std::sync::Arc;

use containerd_api_cri::v1::UpdatePodSandboxResourcesRequest;
use core_types::{Result, ResultExt};
use prost::Message;

use crate::{cri::Cri, store::SandboxRecord};

/// UpdatePodSandboxResources: tells NRI plugins and keeps the limits in the record.
///
/// # Errors
/// NotFound; what a plugin refuses.
pub(crate) async fn update(cri: &Arc<Cri>, request: UpdatePodSandboxResourcesRequest) -> Result<()> {
    let sandbox = cri.sandboxes.get(&request.pod_sandbox_id)?;
    crate::nri::update_pod(cri, &sandbox, request.overhead.as_ref(), request.resources.as_ref())
        .await
        .doing("NRI: update the pod")?;
    let state = sandbox.update(|state| {
        state.overhead = request.overhead.map(|limits| limits.encode_to_vec()).unwrap_or_default();
        state.resources = request.resources.map(|limits| limits.encode_to_vec()).unwrap_or_default();
    });
    let mut record = cri.sandbox_records().get(sandbox.id()).await?;
    record.extensions.extend(SandboxRecord::extensions(&sandbox.facts, &state)?);
    cri.sandbox_records().update(record, &["extensions".to_owned()]).await?;
    crate::nri::updated_pod(cri, &sandbox).await;
    Ok(())
}
