//! Changing the limits of a container.

use std::{collections::BTreeMap, sync::Arc};

use containerd_api_cri::v1::{ContainerState, LinuxContainerResources, UpdateContainerResourcesRequest};
use core_events::Any;
use core_oci::{SPEC_TYPE_URL, Spec};
use core_types::{Error, Labels, Result};
use prost::Message;

use crate::{cri::Cri, sandbox::pause::found};

/// Type of the limits that a task is given.
const RESOURCES: &str = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources";

/// UpdateContainerResources: the record first, then what runs.
///
/// # Errors
/// NotFound; FailedPrecondition for a container that ended; else what the runtime says, and then the record is as it
/// was.
pub(crate) async fn update(cri: &Arc<Cri>, request: UpdateContainerResourcesRequest) -> Result<()> {
    let container = cri.containers.get(&request.container_id)?;
    let wanted = request.linux.unwrap_or_default();
    let annotations = request.annotations;
    let sandbox = cri.sandboxes.get(&container.facts.sandbox_id)?;
    let wanted = crate::nri::update(cri, &sandbox, &container, wanted).await?;
    apply(cri, &container, &wanted, annotations).await?;
    crate::nri::updated(cri, &sandbox, &container).await;
    Ok(())
}

/// Changes the limits of a container to these.
///
/// # Errors
/// As [`update`].
pub(crate) async fn apply(
    cri: &Arc<Cri>,
    container: &crate::store::Container,
    wanted: &LinuxContainerResources,
    annotations: BTreeMap<String, String>,
) -> Result<()> {
    let id = container.id();
    match container.state() {
        ContainerState::ContainerCreated | ContainerState::ContainerRunning => {}
        state => {
            return Err(Error::failed_precondition(format!("container {id} is in state {}", state.as_str_name())));
        }
    }
    let records = cri.container_records();
    let mut record = records.get(id).await?;
    let before = record.clone();
    let spec = record.spec.as_ref().ok_or_else(|| Error::data_loss(format!("container {id} has no specification")))?;
    let spec = Spec::from_slice(&spec.value)?;
    let next = plugin_cri_spec::update_resources(&spec, wanted, &cri.spec_options, &cri.host)?;
    let told = super::spec::resources(&next.spec);
    record.spec = Some(Any { type_url: SPEC_TYPE_URL.into(), value: next.spec.to_vec()?.into() });
    let fields = ["spec".to_owned()];
    records.update(record, &fields).await?;
    if let Some(task) = found(cri.tasks.get(&cri.namespace, id))? {
        let value = serde_json::to_vec(&next.resources).map_err(|error| Error::internal(error.to_string()))?;
        let resources = Any { type_url: RESOURCES.into(), value: value.into() };
        if let Err(error) = task.update(Some(resources), Labels::from_iter(annotations)).await {
            records.update(before, &fields).await?;
            return Err(error);
        }
    }
    container.update(|status| {
        status.resources = told.encode_to_vec();
        Ok(())
    })
}
