//! `containerd.services.tasks.v1.Tasks`: running containers and their processes.
//!
//! What a task is made of comes from the container's record; everything else is asked of its shim. The events
//! `/tasks/*` are published by shims, and by the task manager for dead ones: none is made here.

use std::{borrow::Cow, sync::Arc, time::SystemTime};

use containerd_api::{any, runc::v1::Options, services::tasks::v1 as api, types, v1::types as wire};
use containerd_api_grpc::services::tasks::v1::tasks_server;
use core_events::Publisher;
use core_metadata::{Container, Database};
use core_runtime_v2::{CreateOptions, ExecRequest, ExitStatus, Io, State, Task, TaskManager};
use core_types::{Filter, Scope, filter::Fields};
use tonic::{Request, Response, Status};

use crate::{
    GrpcService, convert,
    grpc::serve,
    scope::scope,
    status::{required, status},
};

/// Name of the options that runc's shim takes.
const RUNC_OPTIONS: &str = "containerd.runc.v1.Options";

/// The service, ready to be offered. It publishes nothing itself; `_events` is what the tasks' shims publish to.
pub fn service(tasks: Arc<TaskManager>, database: Database, _events: Arc<dyn Publisher>) -> GrpcService {
    serve!(tasks_server::TasksServer, Tasks { tasks, database })
}

struct Tasks {
    tasks: Arc<TaskManager>,
    database: Database,
}

impl Tasks {
    async fn container(&self, scope: &Scope, id: &str) -> Result<Container, Status> {
        self.database.containers(scope).get(id).await.map_err(status)
    }

    /// The task of a container; both have to be there.
    async fn task(&self, scope: &Scope, id: &str) -> Result<Task, Status> {
        self.container(scope, id).await?;
        self.tasks.get(&scope.namespace, id).map_err(status)
    }
}

/// An empty answer.
fn empty(result: core_types::Result<()>) -> Result<Response<()>, Status> {
    result.map(Response::new).map_err(status)
}

/// What the container and the request say of a task, put together.
#[allow(deprecated, reason = "older sandbox controllers name the task service in runc's options")]
fn create_options(container: Container, request: api::CreateTaskRequest) -> Result<CreateOptions, Status> {
    if request.checkpoint.is_some() {
        return Err(Status::unimplemented("restoring a checkpoint is not implemented: create the task without one"));
    }
    let mut task_address = request.task_api_address;
    let mut task_version = request.task_api_version;
    if let Some(options) = request.options.as_ref().filter(|options| any::is(options, RUNC_OPTIONS)) {
        let options: Options = any::unpack(RUNC_OPTIONS, options)
            .map_err(|error| Status::invalid_argument(format!("invalid task create options: {error}")))?;
        if !options.criu_image_path.is_empty() {
            return Err(Status::unimplemented("restoring from criu_image_path is not implemented"));
        }
        if task_address.is_empty() {
            task_address = options.task_api_address;
        }
        if task_version == 0 {
            task_version = options.task_api_version;
        }
    }
    let own = request.options.filter(|options| !options.value.is_empty()).map(convert::any_from);
    Ok(CreateOptions {
        runtime: if request.runtime_path.is_empty() { container.runtime.name } else { request.runtime_path },
        options: own.or(container.runtime.options),
        spec: container.spec,
        rootfs: convert::mounts_from(request.rootfs),
        io: Io { stdin: request.stdin, stdout: request.stdout, stderr: request.stderr, terminal: request.terminal },
        checkpoint: String::new(),
        sandbox_id: container.sandbox_id,
        task_address,
        task_version,
    })
}

fn process(id: String, state: State) -> wire::Process {
    use core_runtime_v2::Status as From;
    let status = match state.status {
        From::Unknown => wire::Status::Unknown,
        From::Created => wire::Status::Created,
        From::Running => wire::Status::Running,
        From::Stopped => wire::Status::Stopped,
        From::Paused => wire::Status::Paused,
        From::Pausing => wire::Status::Pausing,
    };
    wire::Process {
        container_id: String::new(),
        id,
        pid: state.pid,
        status: status.into(),
        stdin: state.io.stdin,
        stdout: state.io.stdout,
        stderr: state.io.stderr,
        terminal: state.io.terminal,
        exit_status: state.exit_status,
        exited_at: state.exited_at.and_then(convert::timestamp),
    }
}

fn deleted(id: String, exit: ExitStatus) -> Response<api::DeleteResponse> {
    Response::new(api::DeleteResponse {
        id,
        pid: exit.pid,
        exit_status: exit.status,
        exited_at: exit.exited_at.and_then(convert::timestamp),
    })
}

/// A task, as filters of metrics see it.
struct Filtered<'a>(&'a Task);

impl Fields for Filtered<'_> {
    fn field(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        match path {
            ["id"] => Some(Cow::Borrowed(self.0.id())),
            ["namespace"] => Some(Cow::Borrowed(self.0.namespace().as_str())),
            _ => None,
        }
    }
}

async fn metric(task: &Task) -> Option<types::Metric> {
    let timestamp = SystemTime::now();
    match task.stats().await {
        Ok(stats) => Some(types::Metric {
            timestamp: convert::timestamp(timestamp),
            id: task.id().to_owned(),
            data: Some(convert::any_to(stats)),
        }),
        Err(error) => {
            if !error.is_not_found() {
                tracing::warn!(id = task.id(), %error, "no metrics");
            }
            None
        }
    }
}

#[tonic::async_trait]
impl tasks_server::Tasks for Tasks {
    async fn create(
        &self,
        request: Request<api::CreateTaskRequest>,
    ) -> Result<Response<api::CreateTaskResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let container_id = request.container_id.clone();
        let container = self.container(&scope, &container_id).await?;
        let options = create_options(container, request)?;
        let created = self.tasks.create(&scope.namespace, &container_id, options).await;
        let (_, pid) = created.map_err(status)?;
        Ok(Response::new(api::CreateTaskResponse { container_id, pid }))
    }

    async fn start(&self, request: Request<api::StartRequest>) -> Result<Response<api::StartResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let task = self.task(&scope, &request.container_id).await?;
        let pid = task.start(&request.exec_id).await.map_err(status)?;
        Ok(Response::new(api::StartResponse { pid }))
    }

    async fn delete(&self, request: Request<api::DeleteTaskRequest>) -> Result<Response<api::DeleteResponse>, Status> {
        let scope = scope(&request)?;
        let id = request.into_inner().container_id;
        self.task(&scope, &id).await?;
        let exit = self.tasks.delete(&scope.namespace, &id).await.map_err(status)?;
        Ok(deleted(String::new(), exit))
    }

    async fn delete_process(
        &self,
        request: Request<api::DeleteProcessRequest>,
    ) -> Result<Response<api::DeleteResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let task = self.task(&scope, &request.container_id).await?;
        let exit = task.delete_process(&request.exec_id).await.map_err(status)?;
        Ok(deleted(request.exec_id, exit))
    }

    async fn get(&self, request: Request<api::GetRequest>) -> Result<Response<api::GetResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let task = self.task(&scope, &request.container_id).await?;
        let state = task.state(&request.exec_id).await.map_err(status)?;
        let id = if request.exec_id.is_empty() { request.container_id } else { request.exec_id };
        Ok(Response::new(api::GetResponse { process: Some(process(id, state)) }))
    }

    async fn list(&self, request: Request<api::ListTasksRequest>) -> Result<Response<api::ListTasksResponse>, Status> {
        let scope = scope(&request)?;
        let states = self.tasks.states(&scope.namespace).await;
        let tasks = states.into_iter().map(|state| process(state.id.clone(), state)).collect();
        Ok(Response::new(api::ListTasksResponse { tasks }))
    }

    async fn kill(&self, request: Request<api::KillRequest>) -> Result<Response<()>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let task = self.task(&scope, &request.container_id).await?;
        empty(task.kill(&request.exec_id, request.signal, request.all).await)
    }

    async fn exec(&self, request: Request<api::ExecProcessRequest>) -> Result<Response<()>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        if request.exec_id.is_empty() {
            return Err(Status::invalid_argument("exec id cannot be empty"));
        }
        let task = self.task(&scope, &request.container_id).await?;
        let spec = required(request.spec, "spec")?;
        let exec = ExecRequest {
            id: request.container_id,
            exec_id: request.exec_id,
            io: Io { stdin: request.stdin, stdout: request.stdout, stderr: request.stderr, terminal: request.terminal },
            spec: Some(convert::any_from(spec)),
        };
        empty(task.exec(exec).await)
    }

    async fn resize_pty(&self, request: Request<api::ResizePtyRequest>) -> Result<Response<()>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let task = self.task(&scope, &request.container_id).await?;
        empty(task.resize_pty(&request.exec_id, request.width, request.height).await)
    }

    async fn close_io(&self, request: Request<api::CloseIoRequest>) -> Result<Response<()>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let task = self.task(&scope, &request.container_id).await?;
        if !request.stdin {
            return Ok(Response::new(()));
        }
        empty(task.close_io(&request.exec_id).await)
    }

    async fn pause(&self, request: Request<api::PauseTaskRequest>) -> Result<Response<()>, Status> {
        let scope = scope(&request)?;
        empty(self.task(&scope, &request.into_inner().container_id).await?.pause().await)
    }

    async fn resume(&self, request: Request<api::ResumeTaskRequest>) -> Result<Response<()>, Status> {
        let scope = scope(&request)?;
        empty(self.task(&scope, &request.into_inner().container_id).await?.resume().await)
    }

    async fn list_pids(
        &self,
        request: Request<api::ListPidsRequest>,
    ) -> Result<Response<api::ListPidsResponse>, Status> {
        let scope = scope(&request)?;
        let task = self.task(&scope, &request.into_inner().container_id).await?;
        let processes = task.pids().await.map_err(status)?;
        let processes = processes
            .into_iter()
            .map(|process| wire::ProcessInfo { pid: process.pid, info: process.info.map(convert::any_to) })
            .collect();
        Ok(Response::new(api::ListPidsResponse { processes }))
    }

    async fn checkpoint(
        &self,
        request: Request<api::CheckpointTaskRequest>,
    ) -> Result<Response<api::CheckpointTaskResponse>, Status> {
        let scope = scope(&request)?;
        self.task(&scope, &request.into_inner().container_id).await?;
        Err(Status::unimplemented("checkpoints of tasks are not implemented"))
    }

    async fn update(&self, request: Request<api::UpdateTaskRequest>) -> Result<Response<()>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let task = self.task(&scope, &request.container_id).await?;
        empty(task.update(request.resources.map(convert::any_from), request.annotations).await)
    }

    async fn metrics(&self, request: Request<api::MetricsRequest>) -> Result<Response<api::MetricsResponse>, Status> {
        let scope = scope(&request)?;
        let filter = Filter::parse_all(&request.get_ref().filters).map_err(status)?;
        let mut tasks = self.tasks.list(Some(&scope.namespace));
        tasks.retain(|task| filter.matches(&Filtered(task)));
        let metrics = futures::future::join_all(tasks.iter().map(metric)).await;
        Ok(Response::new(api::MetricsResponse { metrics: metrics.into_iter().flatten().collect() }))
    }

    async fn wait(&self, request: Request<api::WaitRequest>) -> Result<Response<api::WaitResponse>, Status> {
        let scope = scope(&request)?;
        let request = request.into_inner();
        let task = self.task(&scope, &request.container_id).await?;
        let exit = task.wait(&request.exec_id).await.map_err(status)?;
        let exited_at = exit.exited_at.and_then(convert::timestamp);
        Ok(Response::new(api::WaitResponse { exit_status: exit.status, exited_at }))
    }
}

#[cfg(test)]
mod tests;
