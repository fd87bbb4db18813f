use std::{future::Future, time::Duration};

use async_trait::async_trait;
use containerd_api::task::{v2, v3};
use containerd_ttrpc::{Client, Context, Status as RpcStatus};
use core_runtime_v2::{
    Any, CreateRequest, ExecRequest, ExitStatus, Io, KillRequest, Process, ShimClient, ShimInfo, State,
};
use core_types::{Labels, Result};

use crate::{
    connector::Limits,
    convert::{any_from, any_to, error, mount, process, task_status, time},
};

/// Turns an answer's error into ours.
async fn done<T>(answer: impl Future<Output = std::result::Result<T, RpcStatus>>) -> Result<T> {
    answer.await.map_err(error)
}

/// The two versions have the same messages under different names.
macro_rules! task_client {
    ($(#[$doc:meta])* $name:ident, $api:ident) => {
        $(#[$doc])*
        pub(crate) struct $name {
            connection: Client,
            task: $api::task_ttrpc::Client,
            context: Context,
            limits: Limits,
        }

        impl $name {
            pub(crate) fn new(connection: Client, context: Context, limits: Limits) -> Self {
                Self { task: $api::task_ttrpc::Client::new(connection.clone()), connection, context, limits }
            }

            fn within(&self, limit: Duration) -> Context {
                Context { timeout: Some(limit), metadata: self.context.metadata.clone() }
            }

            fn short(&self) -> Context {
                self.within(self.limits.short)
            }

            fn long(&self) -> Context {
                self.within(self.limits.long)
            }
        }

        #[async_trait]
        impl ShimClient for $name {
            async fn state(&self, id: &str, exec_id: &str) -> Result<State> {
                let request = $api::StateRequest { id: id.to_owned(), exec_id: exec_id.to_owned() };
                let state = done(self.task.state(&self.short(), &request)).await?;
                Ok(State {
                    id: state.id,
                    exec_id: state.exec_id,
                    bundle: state.bundle,
                    pid: state.pid,
                    status: task_status(state.status),
                    io: Io {
                        stdin: state.stdin,
                        stdout: state.stdout,
                        stderr: state.stderr,
                        terminal: state.terminal,
                    },
                    exit_status: state.exit_status,
                    exited_at: time(state.exited_at),
                })
            }

            async fn create(&self, request: CreateRequest) -> Result<u32> {
                let request = $api::CreateTaskRequest {
                    id: request.id,
                    bundle: request.bundle,
                    rootfs: request.rootfs.into_iter().map(mount).collect(),
                    terminal: request.io.terminal,
                    stdin: request.io.stdin,
                    stdout: request.io.stdout,
                    stderr: request.io.stderr,
                    checkpoint: request.checkpoint,
                    parent_checkpoint: String::new(),
                    options: request.options.map(any_to),
                };
                Ok(done(self.task.create(&self.long(), &request)).await?.pid)
            }

            async fn start(&self, id: &str, exec_id: &str) -> Result<u32> {
                let request = $api::StartRequest { id: id.to_owned(), exec_id: exec_id.to_owned() };
                Ok(done(self.task.start(&self.long(), &request)).await?.pid)
            }

            async fn delete(&self, id: &str, exec_id: &str) -> Result<ExitStatus> {
                let request = $api::DeleteRequest { id: id.to_owned(), exec_id: exec_id.to_owned() };
                let exit = done(self.task.delete(&self.long(), &request)).await?;
                Ok(ExitStatus { pid: exit.pid, status: exit.exit_status, exited_at: time(exit.exited_at) })
            }

            async fn pids(&self, id: &str) -> Result<Vec<Process>> {
                let request = $api::PidsRequest { id: id.to_owned() };
                let answer = done(self.task.pids(&self.short(), &request)).await?;
                Ok(answer.processes.into_iter().map(process).collect())
            }

            async fn pause(&self, id: &str) -> Result<()> {
                done(self.task.pause(&self.long(), &$api::PauseRequest { id: id.to_owned() })).await
            }

            async fn resume(&self, id: &str) -> Result<()> {
                done(self.task.resume(&self.long(), &$api::ResumeRequest { id: id.to_owned() })).await
            }

            async fn checkpoint(&self, id: &str, path: &str, options: Option<Any>) -> Result<()> {
                let request = $api::CheckpointTaskRequest {
                    id: id.to_owned(),
                    path: path.to_owned(),
                    options: options.map(any_to),
                };
                done(self.task.checkpoint(&self.long(), &request)).await
            }

            async fn kill(&self, request: KillRequest) -> Result<()> {
                let request = $api::KillRequest {
                    id: request.id,
                    exec_id: request.exec_id,
                    signal: request.signal,
                    all: request.all,
                };
                done(self.task.kill(&self.short(), &request)).await
            }

            async fn exec(&self, request: ExecRequest) -> Result<()> {
                let request = $api::ExecProcessRequest {
                    id: request.id,
                    exec_id: request.exec_id,
                    terminal: request.io.terminal,
                    stdin: request.io.stdin,
                    stdout: request.io.stdout,
                    stderr: request.io.stderr,
                    spec: request.spec.map(any_to),
                };
                done(self.task.exec(&self.long(), &request)).await
            }

            async fn resize_pty(&self, id: &str, exec_id: &str, width: u32, height: u32) -> Result<()> {
                let request =
                    $api::ResizePtyRequest { id: id.to_owned(), exec_id: exec_id.to_owned(), width, height };
                done(self.task.resize_pty(&self.short(), &request)).await
            }

            async fn close_io(&self, id: &str, exec_id: &str) -> Result<()> {
                let request =
                    $api::CloseIoRequest { id: id.to_owned(), exec_id: exec_id.to_owned(), stdin: true };
                done(self.task.close_io(&self.short(), &request)).await
            }

            async fn update(&self, id: &str, resources: Option<Any>, annotations: Labels) -> Result<()> {
                let request =
                    $api::UpdateTaskRequest { id: id.to_owned(), resources: resources.map(any_to), annotations };
                done(self.task.update(&self.long(), &request)).await
            }

            async fn wait(&self, id: &str, exec_id: &str) -> Result<ExitStatus> {
                let request = $api::WaitRequest { id: id.to_owned(), exec_id: exec_id.to_owned() };
                let exit = done(self.task.wait(&self.context, &request)).await?;
                Ok(ExitStatus { pid: 0, status: exit.exit_status, exited_at: time(exit.exited_at) })
            }

            async fn stats(&self, id: &str) -> Result<Any> {
                let request = $api::StatsRequest { id: id.to_owned() };
                let answer = done(self.task.stats(&self.short(), &request)).await?;
                let none = || core_types::Error::internal(format!("the shim of task {id} sent no stats"));
                answer.stats.map(any_from).ok_or_else(none)
            }

            async fn connect(&self, id: &str) -> Result<ShimInfo> {
                let request = $api::ConnectRequest { id: id.to_owned() };
                let answer = done(self.task.connect(&self.short(), &request)).await?;
                Ok(ShimInfo { shim_pid: answer.shim_pid, task_pid: answer.task_pid })
            }

            async fn shutdown(&self, id: &str, now: bool) -> Result<()> {
                done(self.task.shutdown(&self.short(), &$api::ShutdownRequest { id: id.to_owned(), now })).await
            }

            async fn closed(&self) {
                self.connection.closed().await;
            }
        }
    };
}

task_client!(
    /// `containerd.task.v2.Task`, of shims before 2.0.
    V2,
    v2
);
task_client!(
    /// `containerd.task.v3.Task`.
    V3,
    v3
);
