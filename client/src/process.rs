use std::time::{Duration, SystemTime};

use containerd_api::{
    services::tasks::v1::{
        CloseIoRequest, DeleteProcessRequest, DeleteTaskRequest, GetRequest, KillRequest, ResizePtyRequest,
        StartRequest, WaitRequest,
    },
    v1::types::{Process as Message, Status},
};

use crate::{Client, Error, Result, convert, io::ProcessIo};

/// How long output may pause after the end of a process before it counts as complete.
const DRAIN_IDLE: Duration = Duration::from_secs(3);
/// How often, and how many times, closing the input is tried.
const CLOSE_PAUSE: Duration = Duration::from_millis(100);
const CLOSE_TRIES: usize = 50;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitStatus {
    /// Its exit code; 128 and the signal's number when it was killed.
    pub code: u32,
    /// When it ended.
    pub exited_at: SystemTime,
}

/// What state a process is in.
pub type ProcessStatus = Status;

/// The first process of a task, or one that was started beside it.
pub struct Process {
    client: Client,
    container: String,
    exec: String,
    pid: u32,
    io: Option<ProcessIo>,
}

impl Process {
    pub(crate) fn new(client: Client, container: String, exec: String, pid: u32, io: Option<ProcessIo>) -> Self {
        let mut process = Self { client, container, exec, pid, io };
        process.pass_input();
        process
    }

    /// Id of the container.
    pub fn container_id(&self) -> &str {
        &self.container
    }

    /// Its id beside the first process, whose id is empty.
    pub fn exec_id(&self) -> &str {
        &self.exec
    }

    /// Its process id on the host; 0 before it is started.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Starts it.
    ///
    /// # Errors
    /// What the runtime says; the streams are taken down then.
    pub async fn start(&mut self) -> Result<u32> {
        let request = StartRequest { container_id: self.container.clone(), exec_id: self.exec.clone() };
        match self.client.tasks_service().start(request).await {
            Ok(answer) => {
                self.pid = answer.into_inner().pid;
                Ok(self.pid)
            }
            Err(status) => {
                self.io = None;
                Err(status.into())
            }
        }
    }

    /// Waits for its end. The future is independent of this value, so it can be spawned before the start.
    pub fn wait(&self) -> impl Future<Output = Result<ExitStatus>> + Send + 'static {
        let client = self.client.clone();
        let request = WaitRequest { container_id: self.container.clone(), exec_id: self.exec.clone() };
        async move {
            let answer = client.tasks_service().wait(request).await?.into_inner();
            Ok(ExitStatus {
                code: answer.exit_status,
                exited_at: convert::timestamp_to_system(answer.exited_at.as_ref()),
            })
        }
    }

    /// Sends a signal to it; with `all`, to every process of the container.
    ///
    /// # Errors
    /// NotFound when it has ended.
    pub async fn kill(&self, signal: u32, all: bool) -> Result<()> {
        self.signaller()(signal, all).await
    }

    /// A function that sends signals to it, for use in another task.
    pub fn signaller(&self) -> impl Fn(u32, bool) -> SignalFuture + Send + Sync + 'static + use<> {
        let client = self.client.clone();
        let (container, exec) = (self.container.clone(), self.exec.clone());
        move |signal, all| {
            let client = client.clone();
            let request = KillRequest { container_id: container.clone(), exec_id: exec.clone(), signal, all };
            Box::pin(async move {
                client.tasks_service().kill(request).await?;
                Ok(())
            })
        }
    }

    /// Sets the size of its terminal.
    ///
    /// # Errors
    /// What the daemon says.
    pub async fn resize(&self, columns: u32, rows: u32) -> Result<()> {
        let request = ResizePtyRequest {
            container_id: self.container.clone(),
            exec_id: self.exec.clone(),
            width: columns,
            height: rows,
        };
        self.client.tasks_service().resize_pty(request).await?;
        Ok(())
    }

    /// Closes its input.
    ///
    /// # Errors
    /// What the daemon says.
    pub async fn close_stdin(&self) -> Result<()> {
        close_stdin(&self.client, &self.container, &self.exec).await
    }

    /// What the daemon knows of it: state, exit code, streams.
    ///
    /// # Errors
    /// NotFound when it is not there.
    pub async fn info(&self) -> Result<Message> {
        let request = GetRequest { container_id: self.container.clone(), exec_id: self.exec.clone() };
        let answer = self.client.tasks_service().get(request).await?.into_inner();
        answer.process.ok_or(Error::Incomplete("process"))
    }

    /// Its state.
    ///
    /// # Errors
    /// NotFound when it is not there.
    pub async fn status(&self) -> Result<ProcessStatus> {
        Ok(ProcessStatus::try_from(self.info().await?.status).unwrap_or(Status::Unknown))
    }

    /// Removes it after its end, once all its output has been passed on; its FIFOs go with it.
    ///
    /// # Errors
    /// FailedPrecondition while it runs.
    pub async fn delete(&mut self) -> Result<ExitStatus> {
        if let Some(io) = &mut self.io {
            let state = self.client.tasks_service();
            let request = GetRequest { container_id: self.container.clone(), exec_id: self.exec.clone() };
            if ended(state, request).await {
                io.drain(DRAIN_IDLE).await;
            }
        }
        let mut service = self.client.tasks_service();
        let answer = if self.exec.is_empty() {
            service.delete(DeleteTaskRequest { container_id: self.container.clone() }).await
        } else {
            let request = DeleteProcessRequest { container_id: self.container.clone(), exec_id: self.exec.clone() };
            service.delete_process(request).await
        };
        let gone = answer.as_ref().err().is_none_or(|status| status.code() == tonic::Code::NotFound);
        if gone && let Some(mut io) = self.io.take() {
            io.remove();
        }
        let answer = answer?.into_inner();
        Ok(ExitStatus { code: answer.exit_status, exited_at: convert::timestamp_to_system(answer.exited_at.as_ref()) })
    }

    /// Kills it if it runs, waits for its end and removes it.
    ///
    /// # Errors
    /// What the daemon says.
    pub async fn kill_and_delete(&mut self) -> Result<ExitStatus> {
        const KILL: u32 = 9;
        let running = matches!(self.status().await?, Status::Running | Status::Paused | Status::Pausing);
        if running {
            let wait = tokio::spawn(self.wait());
            match self.kill(KILL, self.exec.is_empty()).await {
                Ok(()) => {
                    let _ = wait.await;
                }
                Err(error) if error.is_not_found() => wait.abort(),
                Err(error) => {
                    wait.abort();
                    return Err(error);
                }
            }
        }
        self.delete().await
    }

    /// Lets go of the process: it runs on, and its FIFOs stay for a later attach.
    pub fn detach(mut self) {
        if let Some(io) = &mut self.io {
            io.keep();
        }
    }

    fn pass_input(&mut self) {
        let Some(io) = &mut self.io else { return };
        let client = self.client.clone();
        let (container, exec) = (self.container.clone(), self.exec.clone());
        io.start_input(async move {
            // The shim holds the FIFO open on its own side, so the end must be told; before the start it
            // cannot be.
            for _ in 0..CLOSE_TRIES {
                if close_stdin(&client, &container, &exec).await.is_ok() {
                    return;
                }
                tokio::time::sleep(CLOSE_PAUSE).await;
            }
        });
    }
}

/// What sending a signal gives.
pub type SignalFuture = std::pin::Pin<Box<dyn Future<Output = Result<()>> + Send>>;

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process")
            .field("container", &self.container)
            .field("exec", &self.exec)
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

type TasksService = containerd_api_grpc::services::tasks::v1::tasks_client::TasksClient<crate::Service>;

async fn ended(mut service: TasksService, request: GetRequest) -> bool {
    let Ok(answer) = service.get(request).await else { return false };
    answer.into_inner().process.is_some_and(|process| process.status == i32::from(Status::Stopped))
}

async fn close_stdin(client: &Client, container: &str, exec: &str) -> Result<()> {
    let request = CloseIoRequest { container_id: container.to_owned(), exec_id: exec.to_owned(), stdin: true };
    client.tasks_service().close_io(request).await?;
    Ok(())
}
