//! The sandbox service. A sandbox has no process of its own here: it is this shim, which holds the pod's containers
//! and keeps their group's state. Namespaces that they share are named by their specifications.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use containerd_api::{
    runtime::sandbox::v1::{self as api, sandbox_ttrpc},
    types,
};
use containerd_ttrpc::{Context, Status};
use core_shim::Status as State;
use core_types::{Error, Platform};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use crate::{convert::status, task::Tasks};

type Answer<T> = Result<T, Status>;

/// The states that the daemon knows.
const READY: &str = "SANDBOX_READY";
const NOT_READY: &str = "SANDBOX_NOTREADY";
/// How long a killed container may take to end.
const KILL: Duration = Duration::from_secs(10);
/// Between two looks whether a container that is being made is there.
const PAUSE: Duration = Duration::from_millis(20);
const TERM: u32 = 15;
const SIGKILL: u32 = 9;

/// The shim's sandbox, if it was made one.
#[derive(Clone, Debug)]
struct Sandbox {
    id: String,
    netns: String,
    started: Option<SystemTime>,
    ended: Option<SystemTime>,
}

/// The service.
#[derive(Debug)]
pub(crate) struct Sandboxes {
    tasks: Arc<Tasks>,
    sandbox: watch::Sender<Option<Sandbox>>,
}

fn unknown(id: &str) -> Status {
    status(Error::not_found(format!("sandbox {id} not found in this shim")))
}

impl Sandboxes {
    pub(crate) fn new(tasks: Arc<Tasks>) -> Self {
        Self { tasks, sandbox: watch::Sender::new(None) }
    }

    fn get(&self, id: &str) -> Answer<Sandbox> {
        let sandbox = self.sandbox.borrow().clone();
        sandbox.filter(|sandbox| sandbox.id == id).ok_or_else(|| unknown(id))
    }

    /// Ends all containers, which stay to be deleted, and with them the sandbox.
    async fn stop(&self, id: &str, grace: Duration) -> Answer<()> {
        if self.get(id)?.ended.is_some() {
            return Ok(());
        }
        self.tasks.close(true);
        let stopped = end_all(&self.tasks, grace).await;
        if let Err(error) = stopped {
            self.tasks.close(false);
            return Err(status(error));
        }
        self.sandbox.send_if_modified(|sandbox| match sandbox {
            Some(sandbox) if sandbox.ended.is_none() => {
                sandbox.ended = Some(SystemTime::now());
                true
            }
            _ => false,
        });
        Ok(())
    }
}

/// Ends what runs: asks for the time of `grace`, then kills. What cannot be signalled has ended, or is found not to have.
async fn end_all(tasks: &Tasks, grace: Duration) -> Result<(), Error> {
    let (asked, limit) = (Instant::now() + grace, Instant::now() + grace + KILL);
    while tasks.is_making() {
        if Instant::now() > limit {
            return Err(Error::deadline_exceeded("a container is still being made"));
        }
        tokio::time::sleep(PAUSE).await;
    }
    let running: Vec<_> =
        tasks.made().into_iter().filter(|container| container.init().status() != State::Stopped).collect();
    for container in &running {
        if matches!(container.init().status(), State::Paused | State::Pausing) {
            // A frozen process takes no signal.
            let _ = container.resume().await;
        }
        if !grace.is_zero() && container.init().status() == State::Running {
            let _ = container.kill("", TERM, false).await;
        }
    }
    for container in &running {
        let started = container.init().status() != State::Created;
        if started && !grace.is_zero() && timeout_at(asked, container.init().wait()).await.is_ok() {
            continue;
        }
        let _ = container.kill("", SIGKILL, started).await;
    }
    for container in &running {
        timeout_at(limit, container.init().wait()).await.map_err(|_| {
            Error::deadline_exceeded(format!("container {} does not end although it was killed", container.id()))
        })?;
    }
    Ok(())
}

#[async_trait::async_trait]
impl sandbox_ttrpc::Sandbox for Sandboxes {
    async fn create_sandbox(
        &self,
        _: Context,
        request: api::CreateSandboxRequest,
    ) -> Answer<api::CreateSandboxResponse> {
        if request.sandbox_id.is_empty() {
            return Err(status(Error::invalid_argument("sandbox_id required")));
        }
        if !request.rootfs.is_empty() {
            let why = "a sandbox of this runtime has no process, so it takes no root file system";
            return Err(status(Error::unimplemented(why)));
        }
        let made = self.sandbox.send_if_modified(|sandbox| {
            if sandbox.is_some() {
                return false;
            }
            let (id, netns) = (request.sandbox_id.clone(), request.netns_path.clone());
            *sandbox = Some(Sandbox { id, netns, started: None, ended: None });
            true
        });
        if !made {
            return Err(status(Error::already_exists(format!(
                "this shim has a sandbox, {} is one more",
                request.sandbox_id
            ))));
        }
        self.tasks.hold();
        Ok(api::CreateSandboxResponse {})
    }

    async fn start_sandbox(&self, _: Context, request: api::StartSandboxRequest) -> Answer<api::StartSandboxResponse> {
        let sandbox = self.get(&request.sandbox_id)?;
        if sandbox.ended.is_some() {
            return Err(status(Error::failed_precondition(format!("sandbox {} has ended", sandbox.id))));
        }
        let now = sandbox.started.unwrap_or_else(SystemTime::now);
        self.sandbox.send_modify(|sandbox| {
            if let Some(sandbox) = sandbox {
                sandbox.started = Some(now);
            }
        });
        Ok(api::StartSandboxResponse { pid: 0, created_at: Some(now.into()), spec: None })
    }

    async fn platform(&self, _: Context, request: api::PlatformRequest) -> Answer<api::PlatformResponse> {
        self.get(&request.sandbox_id)?;
        let host = Platform::host();
        let platform = types::Platform {
            os: host.os,
            architecture: host.architecture,
            variant: host.variant,
            ..types::Platform::default()
        };
        Ok(api::PlatformResponse { platform: Some(platform) })
    }

    async fn stop_sandbox(&self, _: Context, request: api::StopSandboxRequest) -> Answer<api::StopSandboxResponse> {
        self.stop(&request.sandbox_id, Duration::from_secs(request.timeout_secs.into())).await?;
        Ok(api::StopSandboxResponse {})
    }

    async fn wait_sandbox(&self, _: Context, request: api::WaitSandboxRequest) -> Answer<api::WaitSandboxResponse> {
        self.get(&request.sandbox_id)?;
        let mut changes = self.sandbox.subscribe();
        let ended = changes.wait_for(|sandbox| sandbox.as_ref().is_none_or(|sandbox| sandbox.ended.is_some()));
        let ended = ended.await.ok().and_then(|sandbox| sandbox.as_ref()?.ended);
        Ok(api::WaitSandboxResponse { exit_status: 0, exited_at: ended.map(Into::into) })
    }

    async fn sandbox_status(
        &self,
        _: Context,
        request: api::SandboxStatusRequest,
    ) -> Answer<api::SandboxStatusResponse> {
        let sandbox = self.get(&request.sandbox_id)?;
        let ready = sandbox.started.is_some() && sandbox.ended.is_none();
        let mut info = BTreeMap::new();
        if request.verbose {
            info.insert("shim_pid".to_owned(), std::process::id().to_string());
            info.insert("containers".to_owned(), self.tasks.made().len().to_string());
            if !sandbox.netns.is_empty() {
                info.insert("netns_path".to_owned(), sandbox.netns);
            }
        }
        Ok(api::SandboxStatusResponse {
            sandbox_id: sandbox.id,
            pid: 0,
            state: if ready { READY } else { NOT_READY }.to_owned(),
            info,
            created_at: sandbox.started.map(Into::into),
            exited_at: sandbox.ended.map(Into::into),
            extra: None,
        })
    }

    async fn ping_sandbox(&self, _: Context, request: api::PingRequest) -> Answer<api::PingResponse> {
        self.get(&request.sandbox_id)?;
        Ok(api::PingResponse {})
    }

    async fn shutdown_sandbox(
        &self,
        _: Context,
        request: api::ShutdownSandboxRequest,
    ) -> Answer<api::ShutdownSandboxResponse> {
        self.stop(&request.sandbox_id, Duration::ZERO).await?;
        self.tasks.shutdown.notify_one();
        Ok(api::ShutdownSandboxResponse {})
    }

    /// Nothing: there is no process of the sandbox's own.
    async fn sandbox_metrics(
        &self,
        _: Context,
        request: api::SandboxMetricsRequest,
    ) -> Answer<api::SandboxMetricsResponse> {
        self.get(&request.sandbox_id)?;
        Ok(api::SandboxMetricsResponse { metrics: None })
    }
}
