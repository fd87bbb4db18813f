use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use containerd_api::{
    task::v3::{self as api, task_ttrpc},
    v1::types as task_types,
};
use containerd_ttrpc::{Context, Status};
use core_shim::{Container, CreateConfig, ExecConfig, Host, Status as State, Stdio};
use core_types::Error;
use tokio::sync::Notify;

use crate::{
    convert::{mount, process_details, status},
    metrics, options,
};

type Answer<T> = Result<T, Status>;

/// The task service: versions 2 and 3 of it have the same messages.
#[derive(Debug)]
pub(crate) struct Tasks {
    host: Host,
    /// None while a container is being made.
    containers: Mutex<HashMap<String, Option<Arc<Container>>>>,
    /// There is a sandbox, which alone ends the shim.
    held: AtomicBool,
    /// The sandbox has ended or is about to: no more containers.
    closed: AtomicBool,
    /// Woken when the shim shall end.
    pub(crate) shutdown: Notify,
}

/// Finishes what was begun even when the caller goes away: half a start would be worse than either.
async fn finish<T: Send + 'static>(work: impl Future<Output = Result<T, Error>> + Send + 'static) -> Answer<T> {
    match tokio::spawn(work).await {
        Ok(done) => done.map_err(status),
        Err(error) => Err(status(Error::internal(format!("the request ended early: {error}")))),
    }
}

impl Tasks {
    pub(crate) fn new(host: Host) -> Self {
        Self {
            host,
            containers: Mutex::default(),
            held: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            shutdown: Notify::new(),
        }
    }

    /// From now on the shim stays when its last container went.
    pub(crate) fn hold(&self) {
        self.held.store(true, Ordering::SeqCst);
    }

    /// Whether containers are refused.
    pub(crate) fn close(&self, closed: bool) {
        // Under the lock: whoever took an id before is seen by is_making.
        let _containers = self.containers();
        self.closed.store(closed, Ordering::SeqCst);
    }

    /// Whether a container is being made.
    pub(crate) fn is_making(&self) -> bool {
        self.containers().values().any(Option::is_none)
    }

    /// All containers.
    pub(crate) fn made(&self) -> Vec<Arc<Container>> {
        self.containers().values().flatten().cloned().collect()
    }

    fn containers(&self) -> MutexGuard<'_, HashMap<String, Option<Arc<Container>>>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: &str) -> Answer<Arc<Container>> {
        let found = self.containers().get(id).cloned().flatten();
        found.ok_or_else(|| status(Error::not_found("container not created")))
    }
}

/// Keeps an id for a container that is being made.
struct Reserved {
    tasks: Arc<Tasks>,
    id: String,
    made: Option<Arc<Container>>,
}

impl Reserved {
    fn new(tasks: Arc<Tasks>, id: &str) -> Result<Self, Error> {
        let mut containers = tasks.containers();
        if tasks.closed.load(Ordering::SeqCst) {
            return Err(Error::failed_precondition(format!("container {id}: its sandbox has ended")));
        }
        if containers.contains_key(id) {
            return Err(Error::already_exists(format!("container {id}")));
        }
        containers.insert(id.to_owned(), None);
        drop(containers);
        Ok(Self { tasks, id: id.to_owned(), made: None })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut containers = self.tasks.containers();
        match self.made.take() {
            Some(container) => drop(containers.insert(std::mem::take(&mut self.id), Some(container))),
            None => drop(containers.remove(&self.id)),
        }
    }
}

/// The service as it is registered: a handle, so that requests can go on by themselves.
#[derive(Debug)]
pub(crate) struct Service(pub(crate) Arc<Tasks>);

impl Service {
    fn get(&self, id: &str) -> Answer<Arc<Container>> {
        self.0.get(id)
    }
}

fn api_status(state: State) -> i32 {
    let status = match state {
        State::Created => task_types::Status::Created,
        State::Running => task_types::Status::Running,
        State::Pausing => task_types::Status::Pausing,
        State::Paused => task_types::Status::Paused,
        State::Stopped => task_types::Status::Stopped,
    };
    status.into()
}

fn config(request: api::CreateTaskRequest) -> Result<CreateConfig, Error> {
    if !request.checkpoint.is_empty() {
        return Err(Error::unimplemented("restoring from a checkpoint is not implemented"));
    }
    let given = options::unpack(request.options.as_ref())
        .map_err(|error| Error::invalid_argument(format!("runtime options: {error}")))?;
    let bundle = std::path::PathBuf::from(request.bundle);
    options::write(&bundle, &given).map_err(|error| Error::io("keep the runtime options", error))?;
    Ok(CreateConfig {
        id: request.id,
        bundle,
        rootfs: request.rootfs.into_iter().map(mount).collect(),
        stdio: Stdio {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            terminal: request.terminal,
        },
        runtime: options::runtime(&given),
        io_uid: given.io_uid,
        io_gid: given.io_gid,
    })
}

#[async_trait::async_trait]
impl task_ttrpc::Task for Service {
    async fn create(&self, _: Context, request: api::CreateTaskRequest) -> Answer<api::CreateTaskResponse> {
        let tasks = self.0.clone();
        finish(async move {
            let mut reserved = Reserved::new(tasks.clone(), &request.id)?;
            let container = Container::create(&tasks.host, config(request)?).await?;
            let pid = container.init().pid();
            reserved.made = Some(container);
            Ok(api::CreateTaskResponse { pid })
        })
        .await
    }

    async fn start(&self, _: Context, request: api::StartRequest) -> Answer<api::StartResponse> {
        let container = self.get(&request.id)?;
        finish(async move {
            let pid = match request.exec_id.as_str() {
                "" => container.start().await?,
                exec_id => container.start_exec(exec_id).await?,
            };
            Ok(api::StartResponse { pid })
        })
        .await
    }

    async fn delete(&self, _: Context, request: api::DeleteRequest) -> Answer<api::DeleteResponse> {
        let container = self.get(&request.id)?;
        let tasks = self.0.clone();
        finish(async move {
            let exit = match request.exec_id.as_str() {
                "" => {
                    let exit = container.delete().await?;
                    tasks.containers().remove(&request.id);
                    exit
                }
                exec_id => container.delete_exec(exec_id).await?,
            };
            core_sys::trim_memory();
            Ok(api::DeleteResponse { pid: exit.pid, exit_status: exit.status, exited_at: Some(exit.at.into()) })
        })
        .await
    }

    async fn exec(&self, _: Context, request: api::ExecProcessRequest) -> Answer<()> {
        let container = self.get(&request.id)?;
        let config = ExecConfig {
            id: request.exec_id,
            spec: request.spec.unwrap_or_default().value,
            stdio: Stdio {
                stdin: request.stdin,
                stdout: request.stdout,
                stderr: request.stderr,
                terminal: request.terminal,
            },
        };
        container.add_exec(&config).map_err(status)
    }

    async fn state(&self, _: Context, request: api::StateRequest) -> Answer<api::StateResponse> {
        let container = self.get(&request.id)?;
        let process = container.process(&request.exec_id).map_err(status)?;
        let state = process.state();
        Ok(api::StateResponse {
            id: process.id().to_owned(),
            bundle: container.bundle().display().to_string(),
            pid: state.pid,
            status: api_status(state.status),
            stdin: state.stdio.stdin,
            stdout: state.stdio.stdout,
            stderr: state.stdio.stderr,
            terminal: state.stdio.terminal,
            exit_status: state.exit.map_or(0, |exit| exit.status),
            exited_at: state.exit.map(|exit| exit.at.into()),
            exec_id: request.exec_id,
        })
    }

    async fn wait(&self, _: Context, request: api::WaitRequest) -> Answer<api::WaitResponse> {
        // Only the process is held: a wait must not keep a deleted container.
        let process = self.get(&request.id)?.process(&request.exec_id).map_err(status)?;
        let exit = process.wait().await;
        Ok(api::WaitResponse { exit_status: exit.status, exited_at: Some(exit.at.into()) })
    }

    async fn kill(&self, _: Context, request: api::KillRequest) -> Answer<()> {
        let container = self.get(&request.id)?;
        finish(async move { container.kill(&request.exec_id, request.signal, request.all).await }).await
    }

    async fn pause(&self, _: Context, request: api::PauseRequest) -> Answer<()> {
        let container = self.get(&request.id)?;
        finish(async move { container.pause().await }).await
    }

    async fn resume(&self, _: Context, request: api::ResumeRequest) -> Answer<()> {
        let container = self.get(&request.id)?;
        finish(async move { container.resume().await }).await
    }

    async fn update(&self, _: Context, request: api::UpdateTaskRequest) -> Answer<()> {
        let container = self.get(&request.id)?;
        let resources =
            request.resources.ok_or_else(|| status(Error::invalid_argument("an update needs resources")))?;
        finish(async move { container.update(resources.value).await }).await
    }

    async fn resize_pty(&self, _: Context, request: api::ResizePtyRequest) -> Answer<()> {
        let process = self.get(&request.id)?.process(&request.exec_id).map_err(status)?;
        let side = |cells: u32| u16::try_from(cells).unwrap_or(u16::MAX);
        process.resize(side(request.width), side(request.height)).map_err(status)
    }

    async fn close_io(&self, _: Context, request: api::CloseIoRequest) -> Answer<()> {
        self.get(&request.id)?.process(&request.exec_id).map_err(status)?.close_stdin();
        Ok(())
    }

    async fn pids(&self, _: Context, request: api::PidsRequest) -> Answer<api::PidsResponse> {
        let container = self.get(&request.id)?;
        let pids = match container.cgroup() {
            Some(cgroup) => cgroup.processes().map_err(|error| status(Error::io("list processes", error)))?,
            None => vec![container.init().pid()],
        };
        let execs: HashMap<u32, String> = container.exec_pids().into_iter().map(|(id, pid)| (pid, id)).collect();
        let describe = |pid: u32| task_types::ProcessInfo { pid, info: execs.get(&pid).cloned().map(process_details) };
        Ok(api::PidsResponse { processes: pids.into_iter().map(describe).collect() })
    }

    async fn stats(&self, _: Context, request: api::StatsRequest) -> Answer<api::StatsResponse> {
        let container = self.get(&request.id)?;
        let cgroup = container.cgroup().ok_or_else(|| status(Error::not_found("cgroup does not exist")))?;
        let stats = cgroup.stats().map_err(|error| status(Error::io("read the cgroup", error)))?;
        Ok(api::StatsResponse { stats: Some(metrics::pack(stats)) })
    }

    async fn connect(&self, _: Context, request: api::ConnectRequest) -> Answer<api::ConnectResponse> {
        let task_pid = self.get(&request.id).map_or(0, |container| container.init().pid());
        Ok(api::ConnectResponse { shim_pid: std::process::id(), task_pid, version: String::new() })
    }

    async fn shutdown(&self, _: Context, _: api::ShutdownRequest) -> Answer<()> {
        if self.0.containers().is_empty() && !self.0.held.load(Ordering::SeqCst) {
            self.0.shutdown.notify_one();
        }
        Ok(())
    }
}
