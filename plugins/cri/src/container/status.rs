//! What containers tell of themselves.

use std::{collections::BTreeMap, sync::Arc};

use containerd_api_cri::v1::{
    Container as Item, ContainerFilter, ContainerResources, ContainerState, ContainerStatus, ContainerStatusResponse,
    ContainerUser, ImageSpec, LinuxContainerResources, LinuxContainerUser,
};
use core_types::Result;
use nix::sys::signal::Signal as Posix;
use prost::Message;

use super::stop;
use crate::{
    cri::Cri,
    json,
    sandbox::status::labels,
    store::{Container, Status},
};

/// The status of a container.
pub(crate) fn status(cri: &Cri, container: &Container) -> ContainerStatus {
    let (facts, now) = (&container.facts, container.status());
    let state = now.state();
    let (image, image_ref) = image(cri, container);
    let (started_at, finished_at) = match state {
        ContainerState::ContainerCreated => (0, 0),
        ContainerState::ContainerRunning => (now.started_at, 0),
        _ => (now.started_at, now.finished_at),
    };
    let signal = stop::signal(container).unwrap_or(Posix::SIGTERM);
    ContainerStatus {
        id: facts.id.clone(),
        metadata: facts.config.metadata.clone(),
        state: state as i32,
        created_at: now.created_at,
        started_at,
        finished_at,
        exit_code: now.exit_code,
        image: Some(image),
        image_ref,
        reason: reason(&now),
        message: now.message.clone(),
        labels: facts.config.labels.clone(),
        annotations: facts.config.annotations.clone(),
        mounts: facts.config.mounts.clone(),
        log_path: facts.log_path.as_ref().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
        resources: Some(resources(&now)),
        image_id: facts.image_ref.clone(),
        user: Some(user(container)),
        stop_signal: stop::cri_signal(signal) as i32,
    }
}

fn reason(status: &Status) -> String {
    match (status.state(), status.reason.as_str()) {
        (ContainerState::ContainerExited, "") if status.exit_code == 0 => "Completed".into(),
        (ContainerState::ContainerExited, "") => "Error".into(),
        (_, reason) => reason.into(),
    }
}

/// The image as people call it, and its digest.
fn image(cri: &Cri, container: &Container) -> (ImageSpec, String) {
    let facts = &container.facts;
    let mut spec = facts.config.image.clone().unwrap_or_default();
    let mut reference = facts.image_ref.clone();
    if let Ok(Some(image)) = cri.images.resolve(&facts.image_ref) {
        if let Some(tag) = image.repo_tags.first() {
            spec = ImageSpec { image: tag.clone(), ..ImageSpec::default() };
        }
        if let Some(digest) = image.repo_digests.first() {
            reference.clone_from(digest);
        }
    }
    (spec, reference)
}

fn resources(status: &Status) -> ContainerResources {
    ContainerResources {
        linux: LinuxContainerResources::decode(&status.resources[..]).ok(),
        ..ContainerResources::default()
    }
}

fn user(container: &Container) -> ContainerUser {
    let linux = container.facts.user.clone().map(|(uid, gid, supplemental_groups)| LinuxContainerUser {
        uid,
        gid,
        supplemental_groups,
    });
    ContainerUser { linux }
}

/// ContainerStatus.
///
/// # Errors
/// NotFound.
pub(crate) async fn response(cri: &Cri, id: &str, verbose: bool) -> Result<ContainerStatusResponse> {
    let container = cri.containers.get(id)?;
    let mut info = BTreeMap::new();
    if verbose {
        info.insert("info".to_owned(), information(cri, &container).await?);
    }
    Ok(ContainerStatusResponse { status: Some(status(cri, &container)), info })
}

/// More for people, as JSON with the names that tools know.
async fn information(cri: &Cri, container: &Container) -> Result<String> {
    let record = cri.container_records().get(container.id()).await?;
    let status = container.status();
    let value = serde_json::json!({
        "sandboxID": container.facts.sandbox_id,
        "pid": status.pid,
        "removing": status.phase == crate::store::Phase::Removing,
        "snapshotKey": record.snapshot_key,
        "snapshotter": record.snapshotter,
        "runtimeType": record.runtime.name,
        "runtimeOptions": json::runtime_options(record.runtime.options.as_ref()),
        "config": json::container_config(&container.facts.config),
        "runtimeSpec": json::spec(&record),
    });
    Ok(value.to_string())
}

/// ListContainers.
///
/// # Errors
/// InvalidArgument for an id that is the start of several.
pub(crate) fn list(cri: &Cri, filter: Option<&ContainerFilter>) -> Result<Vec<Item>> {
    Ok(select(cri, filter)?.iter().map(|container| item(cri, container)).collect())
}

/// The containers that a filter takes.
///
/// # Errors
/// InvalidArgument for an id that is the start of several.
pub(crate) fn select(cri: &Cri, filter: Option<&ContainerFilter>) -> Result<Vec<Arc<Container>>> {
    let Some(filter) = filter else {
        return Ok(cri.containers.list());
    };
    let mut found = match filter.id.as_str() {
        "" => cri.containers.list(),
        id => cri.containers.find(id)?.into_iter().collect(),
    };
    let sandbox = match filter.pod_sandbox_id.as_str() {
        "" => None,
        // An id that is none takes nothing.
        id => Some(cri.sandboxes.find(id)?.map_or_else(|| id.to_owned(), |sandbox| sandbox.id().to_owned())),
    };
    found.retain(|container| {
        let facts = &container.facts;
        filter.state.is_none_or(|wanted| wanted.state == container.state() as i32)
            && sandbox.as_ref().is_none_or(|sandbox| *sandbox == facts.sandbox_id)
            && labels(&filter.label_selector, &facts.config.labels)
    });
    Ok(found)
}

fn item(cri: &Cri, container: &Container) -> Item {
    let (facts, now) = (&container.facts, container.status());
    let (image, image_ref) = image(cri, container);
    Item {
        id: facts.id.clone(),
        pod_sandbox_id: facts.sandbox_id.clone(),
        metadata: facts.config.metadata.clone(),
        image: Some(image),
        image_ref,
        state: now.state() as i32,
        created_at: now.created_at,
        labels: facts.config.labels.clone(),
        annotations: facts.config.annotations.clone(),
        image_id: facts.image_ref.clone(),
    }
}
