//! Interactive streams. The server is not there yet; says so.

use containerd_api_cri::v1::{AttachRequest, ExecRequest, PortForwardRequest};
use core_types::{Error, Result};

use crate::cri::Cri;

/// Where streams are reached.
pub(crate) struct StreamUrls;

fn missing() -> Result<String> {
    Err(Error::unimplemented("the streaming server is not there yet"))
}

impl StreamUrls {
    pub(crate) fn exec(&self, cri: &Cri, request: ExecRequest) -> Result<String> {
        crate::exec::running(cri, &request.container_id)?;
        missing()
    }

    pub(crate) fn attach(&self, cri: &Cri, request: AttachRequest) -> Result<String> {
        crate::exec::running(cri, &request.container_id)?;
        missing()
    }

    pub(crate) fn port_forward(&self, cri: &Cri, request: PortForwardRequest) -> Result<String> {
        cri.sandboxes.get(&request.pod_sandbox_id)?;
        missing()
    }
}
