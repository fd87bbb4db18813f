use std::{
    collections::BTreeMap,
    future::Future,
    time::{Duration, SystemTime},
};

use containerd_api::{
    runtime::sandbox::v1::{self as api, sandbox_ttrpc},
    types,
};
use containerd_ttrpc::{Client, Context, Status};
use core_mount::Mount;
use core_runtime_v2::{Any, Endpoint};
use core_sandbox::{CreateOptions, Instance, SandboxExit, SandboxStatus};
use core_types::{Error, ErrorKind, Namespace, Platform, Result};

/// Metadata that names the namespace.
const NAMESPACE: &str = "containerd-namespace-ttrpc";

/// A connection to the sandbox service of a shim.
pub(crate) struct Remote {
    connection: Client,
    sandbox: sandbox_ttrpc::Client,
    metadata: BTreeMap<String, Vec<String>>,
    id: String,
}

fn error(status: Status) -> Error {
    Error::new(ErrorKind::from_code(status.code), status.message)
}

async fn answer<T>(call: impl Future<Output = std::result::Result<T, Status>>) -> Result<T> {
    call.await.map_err(error)
}

fn any_to(any: Any) -> prost_types::Any {
    prost_types::Any { type_url: any.type_url, value: any.value.into() }
}

fn any_from(any: prost_types::Any) -> Any {
    Any { type_url: any.type_url, value: any.value.into() }
}

fn mount(mount: Mount) -> types::Mount {
    types::Mount { r#type: mount.kind, source: mount.source, target: mount.target, options: mount.options }
}

/// A time; none for Go's zero time and what is before 1970.
fn time(stamp: Option<prost_types::Timestamp>) -> Option<SystemTime> {
    SystemTime::try_from(stamp.filter(|stamp| stamp.seconds > 0)?).ok()
}

/// Whole seconds; none is cut to nothing.
fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))).unwrap_or(u32::MAX)
}

impl Remote {
    /// Connects within `limit`.
    ///
    /// # Errors
    /// NotFound when there is no socket and Unavailable when it refuses: both say that the shim is dead. Anything else
    /// says nothing about it.
    pub(crate) async fn connect(namespace: &Namespace, id: &str, endpoint: &Endpoint, limit: Duration) -> Result<Self> {
        if endpoint.protocol != "ttrpc" {
            return Err(Error::unimplemented(format!(
                "the shim of sandbox {id} speaks {}, this daemon speaks only ttrpc with shims",
                endpoint.protocol
            )));
        }
        let socket = endpoint.socket()?;
        let doing = || format!("connect to shim {}", socket.display());
        let connection = tokio::time::timeout(limit, Client::connect(&socket))
            .await
            .map_err(|_| Error::deadline_exceeded(format!("no answer within {limit:?}")).context(doing()))?
            .map_err(|error| Error::io(doing(), error))?;
        let metadata = BTreeMap::from([(NAMESPACE.to_owned(), vec![namespace.to_string()])]);
        Ok(Self { sandbox: sandbox_ttrpc::Client::new(connection.clone()), connection, metadata, id: id.to_owned() })
    }

    fn within(&self, limit: Duration) -> Context {
        Context { timeout: Some(limit), metadata: self.metadata.clone() }
    }

    pub(crate) async fn create(&self, bundle: String, options: CreateOptions, limit: Duration) -> Result<()> {
        let request = api::CreateSandboxRequest {
            sandbox_id: self.id.clone(),
            bundle_path: bundle,
            rootfs: options.rootfs.into_iter().map(mount).collect(),
            options: options.options.map(any_to),
            netns_path: options.netns.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
            annotations: options.annotations,
        };
        answer(self.sandbox.create_sandbox(&self.within(limit), &request)).await.map(drop)
    }

    /// Where the task service is, the endpoint says.
    pub(crate) async fn start(&self, limit: Duration) -> Result<Instance> {
        let request = api::StartSandboxRequest { sandbox_id: self.id.clone() };
        let started = answer(self.sandbox.start_sandbox(&self.within(limit), &request)).await?;
        Ok(Instance {
            pid: started.pid,
            created_at: time(started.created_at),
            spec: started.spec.map(any_from),
            ..Instance::default()
        })
    }

    pub(crate) async fn platform(&self, limit: Duration) -> Result<Platform> {
        let request = api::PlatformRequest { sandbox_id: self.id.clone() };
        let platform = answer(self.sandbox.platform(&self.within(limit), &request)).await?.platform;
        let none = || Error::internal(format!("the shim of sandbox {} does not say its platform", self.id));
        let platform = platform.ok_or_else(none)?;
        Ok(Platform {
            os: platform.os,
            architecture: platform.architecture,
            variant: platform.variant,
            os_version: platform.os_version,
            os_features: platform.os_features,
        })
    }

    pub(crate) async fn stop(&self, grace: Duration, limit: Duration) -> Result<()> {
        let request = api::StopSandboxRequest { sandbox_id: self.id.clone(), timeout_secs: seconds(grace) };
        answer(self.sandbox.stop_sandbox(&self.within(limit), &request)).await.map(drop)
    }

    /// Without a bound.
    pub(crate) async fn wait(&self) -> Result<SandboxExit> {
        let context = Context { timeout: None, metadata: self.metadata.clone() };
        let request = api::WaitSandboxRequest { sandbox_id: self.id.clone() };
        let exit = answer(self.sandbox.wait_sandbox(&context, &request)).await?;
        Ok(SandboxExit { status: exit.exit_status, exited_at: time(exit.exited_at) })
    }

    pub(crate) async fn status(&self, verbose: bool, limit: Duration) -> Result<SandboxStatus> {
        let request = api::SandboxStatusRequest { sandbox_id: self.id.clone(), verbose };
        let status = answer(self.sandbox.sandbox_status(&self.within(limit), &request)).await?;
        Ok(SandboxStatus {
            pid: status.pid,
            state: status.state,
            info: status.info,
            created_at: time(status.created_at),
            exited_at: time(status.exited_at),
            extra: status.extra.map(any_from),
            ..SandboxStatus::default()
        })
    }

    pub(crate) async fn shutdown(&self, limit: Duration) -> Result<()> {
        let request = api::ShutdownSandboxRequest { sandbox_id: self.id.clone() };
        answer(self.sandbox.shutdown_sandbox(&self.within(limit), &request)).await.map(drop)
    }

    pub(crate) async fn metrics(&self, limit: Duration) -> Result<Option<Any>> {
        let request = api::SandboxMetricsRequest { sandbox_id: self.id.clone() };
        let metrics = answer(self.sandbox.sandbox_metrics(&self.within(limit), &request)).await?.metrics;
        Ok(metrics.and_then(|metric| metric.data).map(any_from))
    }

    /// Resolves when the connection is lost.
    pub(crate) async fn closed(&self) {
        self.connection.closed().await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_is_never_cut_to_nothing() {
        assert_eq!([0, 1, 999, 1000, 1001].map(|ms| seconds(Duration::from_millis(ms))), [0, 1, 1, 1, 2]);
        assert_eq!(seconds(Duration::MAX), u32::MAX);
    }

    #[test]
    fn gos_zero_time_is_none() {
        assert_eq!(time(Some(prost_types::Timestamp { seconds: -62_135_596_800, nanos: 0 })), None);
    }
}
