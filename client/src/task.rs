use containerd_api::{
    any,
    runc::v1::Options,
    services::tasks::v1::{
        CreateTaskRequest, ExecProcessRequest, GetRequest, ListPidsRequest, ListTasksRequest, MetricsRequest,
        PauseTaskRequest, ResumeTaskRequest,
    },
    types::Metric,
    v1::types::{Process as Message, ProcessInfo},
};
use prost_types::Any;
use serde_json::{Map, Value};

use crate::{Client, Container, Error, FifoSet, Process, Result, Stdio, Streams, convert, io::ProcessIo};

/// Type URL under which the process of an exec is sent.
const PROCESS_TYPE_URL: &str = "types.containerd.io/opencontainers/runtime-spec/1/Process";
/// Name of runc's options.
pub(crate) const RUNC_OPTIONS: &str = "containerd.runc.v1.Options";

/// A container that runs, or is ready to.
#[derive(Debug)]
pub struct Task {
    client: Client,
    process: Process,
}

/// How to make a task.
#[derive(Clone, Debug, Default)]
pub struct NewTask {
    /// Change the root with `chroot` instead of `pivot_root`.
    pub no_pivot_root: bool,
    /// Owner of the streams, for user namespaces.
    pub io_owner: Option<(u32, u32)>,
}

impl Client {
    /// Tasks of the namespace.
    ///
    /// # Errors
    /// What the daemon says.
    pub async fn tasks(&self) -> Result<Vec<Message>> {
        let answer = self.tasks_service().list(ListTasksRequest { filter: String::new() }).await?;
        Ok(answer.into_inner().tasks)
    }
}

impl Container {
    /// Makes a task with its root file system and streams; [`Process::start`] of its first process runs it.
    ///
    /// # Errors
    /// AlreadyExists when it has one; what the runtime says. FIFOs are removed then.
    pub async fn new_task(&self, stdio: Stdio, options: NewTask) -> Result<Task> {
        let record = self.record();
        let mut request = CreateTaskRequest {
            container_id: self.id().to_owned(),
            options: self.task_options(&options)?,
            ..CreateTaskRequest::default()
        };
        if !record.snapshot_key.is_empty() {
            let mut mounts = self.client().snapshotter(&record.snapshotter).mounts(&record.snapshot_key).await?;
            self.label_mounts(&mut mounts)?;
            request.rootfs = convert::mounts_to_api(&mounts);
        }
        let io = ProcessIo::prepare(stdio, self.id())?;
        request.stdin.clone_from(&io.stdin);
        request.stdout.clone_from(&io.stdout);
        request.stderr.clone_from(&io.stderr);
        request.terminal = io.terminal;
        let answer = self.client().tasks_service().create(request).await?.into_inner();
        Ok(Task::new(self, answer.pid, Some(io)))
    }

    /// The task that is there, without its streams.
    ///
    /// # Errors
    /// NotFound when there is none.
    pub async fn task(&self) -> Result<Task> {
        let message = self.task_info().await?;
        Ok(Task::new(self, message.pid, None))
    }

    /// The task that is there; deleting it removes its FIFOs too.
    ///
    /// # Errors
    /// NotFound when there is none.
    pub async fn task_with_fifos(&self) -> Result<Task> {
        let message = self.task_info().await?;
        let io = ProcessIo::attach_nothing(FifoSet::adopt(&message.stdin, &message.stdout, &message.stderr));
        Ok(Task::new(self, message.pid, Some(io)))
    }

    /// The task that is there, with its streams connected to `streams`.
    ///
    /// # Errors
    /// NotFound when there is none, FailedPrecondition when its streams are no FIFOs.
    pub async fn attach(&self, mut streams: Streams) -> Result<Task> {
        let message = self.task_info().await?;
        let fifos = FifoSet::adopt(&message.stdin, &message.stdout, &message.stderr);
        if fifos.stdout().as_os_str().is_empty() && fifos.stdin().as_os_str().is_empty() {
            return Err(core_types::Error::failed_precondition(format!(
                "the streams of task {} are not FIFOs on this host, so there is nothing to attach to",
                self.id()
            ))
            .into());
        }
        streams.terminal = message.terminal;
        let io = ProcessIo::attach(fifos, streams)?;
        Ok(Task::new(self, message.pid, Some(io)))
    }

    async fn task_info(&self) -> Result<Message> {
        let request = GetRequest { container_id: self.id().to_owned(), exec_id: String::new() };
        let answer = self.client().tasks_service().get(request).await?.into_inner();
        answer.process.ok_or(Error::Incomplete("task"))
    }

    fn task_options(&self, options: &NewTask) -> Result<Option<Any>> {
        if !options.no_pivot_root && options.io_owner.is_none() {
            return Ok(None);
        }
        let runtime = self.record().runtime.as_ref();
        let mut runc = match runtime.and_then(|runtime| runtime.options.as_ref()) {
            Some(given) => any::unpack::<Options>(RUNC_OPTIONS, given)
                .map_err(|_| Error::invalid("no-pivot and user namespaces need a runtime that takes runc's options"))?,
            None => Options::default(),
        };
        runc.no_pivot_root |= options.no_pivot_root;
        if let Some((uid, gid)) = options.io_owner {
            (runc.io_uid, runc.io_gid) = (uid, gid);
        }
        Ok(Some(any::pack(RUNC_OPTIONS, &runc)))
    }

    /// Gives the root mounts the SELinux label of the specification.
    fn label_mounts(&self, mounts: &mut [core_mount::Mount]) -> Result<()> {
        let spec = self.spec()?;
        let label = spec.text("/linux/mountLabel");
        if !label.is_empty() {
            for mount in mounts.iter_mut().filter(|mount| mount.kind != "bind") {
                mount.options.push(format!("context=\"{label}\""));
            }
        }
        Ok(())
    }
}

impl Task {
    fn new(container: &Container, pid: u32, io: Option<ProcessIo>) -> Self {
        let client = container.client().clone();
        let process = Process::new(client.clone(), container.id().to_owned(), String::new(), pid, io);
        Self { client, process }
    }

    /// Id of the container, which is the task's too.
    pub fn id(&self) -> &str {
        self.process.container_id()
    }

    /// The first process.
    pub fn init(&self) -> &Process {
        &self.process
    }

    /// The first process, to start or delete it; deleting it deletes the task.
    pub fn init_mut(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The first process alone.
    pub fn into_init(self) -> Process {
        self.process
    }

    /// Freezes all processes.
    ///
    /// # Errors
    /// What the runtime says.
    pub async fn pause(&self) -> Result<()> {
        self.client.tasks_service().pause(PauseTaskRequest { container_id: self.id().to_owned() }).await?;
        Ok(())
    }

    /// Lets frozen processes go on.
    ///
    /// # Errors
    /// What the runtime says.
    pub async fn resume(&self) -> Result<()> {
        self.client.tasks_service().resume(ResumeTaskRequest { container_id: self.id().to_owned() }).await?;
        Ok(())
    }

    /// Ids of all processes, with what the runtime tells of them.
    ///
    /// # Errors
    /// What the runtime says.
    pub async fn pids(&self) -> Result<Vec<ProcessInfo>> {
        let request = ListPidsRequest { container_id: self.id().to_owned() };
        Ok(self.client.tasks_service().list_pids(request).await?.into_inner().processes)
    }

    /// What it uses of the host, as the runtime counts it.
    ///
    /// # Errors
    /// NotFound when the runtime has nothing.
    pub async fn metrics(&self) -> Result<Metric> {
        let request = MetricsRequest { filters: vec![format!("id=={}", self.id())] };
        let answer = self.client.tasks_service().metrics(request).await?.into_inner();
        let mut metrics = answer.metrics.into_iter();
        metrics.next().ok_or_else(|| core_types::Error::not_found(format!("no metrics of {}", self.id())).into())
    }

    /// Makes another process in the container; [`Process::start`] runs it. `process` is the `process` object of
    /// a specification.
    ///
    /// # Errors
    /// AlreadyExists for an id in use. FIFOs are removed then.
    pub async fn exec(&self, exec_id: &str, process: Map<String, Value>, stdio: Stdio) -> Result<Process> {
        let json = serde_json::to_vec(&Value::Object(process)).map_err(|error| Error::invalid(error.to_string()))?;
        let io = ProcessIo::prepare(stdio, exec_id)?;
        let request = ExecProcessRequest {
            container_id: self.id().to_owned(),
            exec_id: exec_id.to_owned(),
            stdin: io.stdin.clone(),
            stdout: io.stdout.clone(),
            stderr: io.stderr.clone(),
            terminal: io.terminal,
            spec: Some(Any { type_url: PROCESS_TYPE_URL.to_owned(), value: json }),
        };
        self.client.tasks_service().exec(request).await?;
        Ok(Process::new(self.client.clone(), self.id().to_owned(), exec_id.to_owned(), 0, Some(io)))
    }

    /// A process that was made by [`exec`](Self::exec) earlier.
    ///
    /// # Errors
    /// NotFound when it is not there.
    pub async fn load_process(&self, exec_id: &str) -> Result<Process> {
        let process = Process::new(self.client.clone(), self.id().to_owned(), exec_id.to_owned(), 0, None);
        let info = process.info().await?;
        let io = ProcessIo::attach_nothing(FifoSet::adopt(&info.stdin, &info.stdout, &info.stderr));
        Ok(Process::new(self.client.clone(), self.id().to_owned(), exec_id.to_owned(), info.pid, Some(io)))
    }
}
