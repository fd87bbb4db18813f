use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use containerd_ttrpc::{Client, Context};
use core_runtime_v2::{Connector, ShimClient};
use core_types::{Error, Namespace, Result};

use crate::shim::{V2, V3};

/// Metadata that names the namespace.
const NAMESPACE: &str = "containerd-namespace-ttrpc";

/// How long a shim may take to answer. The task manager sets tighter bounds; these are the last resort.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Requests that do not run the OCI runtime.
    pub(crate) short: Duration,
    /// Requests that do, hooks and all.
    pub(crate) long: Duration,
}

/// Connects to shims by ttrpc over Unix sockets.
#[derive(Clone, Copy, Debug)]
pub struct TtrpcConnector {
    limits: Limits,
}

impl Default for TtrpcConnector {
    fn default() -> Self {
        Self { limits: Limits { short: Duration::from_secs(30), long: Duration::from_secs(600) } }
    }
}

#[async_trait]
impl Connector for TtrpcConnector {
    async fn connect(
        &self,
        namespace: &Namespace,
        protocol: &str,
        version: u32,
        address: &Path,
        deadline: Duration,
    ) -> Result<Arc<dyn ShimClient>> {
        if protocol != "ttrpc" {
            return Err(Error::unimplemented(format!(
                "the shim at {} speaks {protocol}, this daemon speaks only ttrpc with shims",
                address.display()
            )));
        }
        let doing = || format!("connect to shim {}", address.display());
        let path = address.strip_prefix("unix:").unwrap_or(address);
        let client = tokio::time::timeout(deadline, Client::connect(path))
            .await
            .map_err(|_| Error::deadline_exceeded(format!("no answer within {deadline:?}")).context(doing()))?
            .map_err(|error| Error::io(doing(), error))?;
        let mut context = Context::default();
        context.metadata.insert(NAMESPACE.to_owned(), vec![namespace.to_string()]);
        match version {
            2 => Ok(Arc::new(V2::new(client, context, self.limits))),
            3 => Ok(Arc::new(V3::new(client, context, self.limits))),
            version => Err(Error::unimplemented(format!(
                "the shim at {} speaks task service version {version}, this daemon 2 and 3",
                address.display()
            ))),
        }
    }
}
