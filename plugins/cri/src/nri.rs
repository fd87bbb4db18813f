//! What NRI plugins see and change. The plugins' side is not there yet: no hook does anything.

use std::sync::Arc;

use containerd_api_cri::v1::LinuxContainerResources;
use core_oci::Spec;
use core_types::Result;

use crate::{
    cri::Cri,
    store::{Container, ContainerFacts, Sandbox},
};

/// A pod started.
pub(crate) async fn run_pod(_: &Cri, _: &Sandbox) -> Result<()> {
    Ok(())
}

/// A pod was stopped.
pub(crate) async fn stop_pod(_: &Cri, _: &Sandbox) {}

/// A pod was removed.
pub(crate) async fn remove_pod(_: &Cri, _: &Sandbox) {}

/// A container is being made.
pub(crate) async fn adjust(_: &Arc<Cri>, _: &Sandbox, _: &ContainerFacts, _: &mut Spec) -> Result<()> {
    Ok(())
}

/// A container was made.
pub(crate) async fn created(_: &Arc<Cri>, _: &Sandbox, _: &Container) {}

/// A container is about to start.
pub(crate) async fn starting(_: &Arc<Cri>, _: &Sandbox, _: &Container) -> Result<()> {
    Ok(())
}

/// A container started.
pub(crate) async fn started(_: &Arc<Cri>, _: &Sandbox, _: &Container) {}

/// A container ended.
pub(crate) async fn exited(_: &Arc<Cri>, _: &Container) {}

/// A container was removed.
pub(crate) async fn removed(_: &Arc<Cri>, _: &Container) {}

/// The limits of a container change.
pub(crate) async fn update(
    _: &Arc<Cri>,
    _: &Sandbox,
    _: &Container,
    wanted: LinuxContainerResources,
) -> Result<LinuxContainerResources> {
    Ok(wanted)
}

/// The limits of a container changed.
pub(crate) async fn updated(_: &Arc<Cri>, _: &Sandbox, _: &Container) {}

/// The limits of a pod change.
pub(crate) async fn update_pod(
    _: &Arc<Cri>,
    _: &Sandbox,
    _: Option<&LinuxContainerResources>,
    _: Option<&LinuxContainerResources>,
) -> Result<()> {
    Ok(())
}

/// The limits of a pod changed.
pub(crate) async fn updated_pod(_: &Arc<Cri>, _: &Sandbox) {}
