//! Log files after rotation.

use containerd_api_cri::v1::ContainerState;
use core_types::{Error, Result};

use crate::cri::Cri;

/// ReopenContainerLog: what is written from now on goes to a new file at the log's path.
///
/// # Errors
/// NotFound; FailedPrecondition when the container does not run; what opening says.
pub(crate) async fn reopen(cri: &Cri, id: &str) -> Result<()> {
    let container = cri.containers.get(id)?;
    let io = container.io().filter(|_| container.state() == ContainerState::ContainerRunning);
    let io = io.ok_or_else(|| Error::failed_precondition(format!("container {id} is not running")))?;
    match &container.facts.log_path {
        Some(path) => io.reopen_log(path).await,
        None => Ok(()),
    }
}
