use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use core_types::{Error, Result};

use crate::{
    Container, Event, Exit, Process, Status, Stdio,
    create::{launch, read_pid},
    stdio::Owner,
};

/// Exit code of a process that could not be started; containerd's number for an exit that is not known.
pub(crate) const NOT_STARTED: u32 = 255;

/// What is to be executed in a container.
#[derive(Clone, Debug, Default)]
pub struct ExecConfig {
    /// The exec's id, unique in the container.
    pub id: String,
    /// The JSON of the runtime specification's `Process`.
    pub spec: Vec<u8>,
    /// Its streams.
    pub stdio: Stdio,
}

/// The files of an exec in the bundle, removed when it is done with them. Ids come from outside and are not
/// made into names.
struct Files {
    spec: PathBuf,
    pid: PathBuf,
}

impl Files {
    fn new(container: &Container) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let file = |kind: &str| container.bundle.join(format!(".exec-{number}.{kind}"));
        Self { spec: file("json"), pid: file("pid") }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What is left goes with the bundle.
        let _ = fs::remove_file(&self.spec);
        let _ = fs::remove_file(&self.pid);
    }
}

/// Counts an exec that is starting or running.
pub(crate) struct Busy(Arc<Container>);

impl Busy {
    fn new(container: &Arc<Container>) -> Self {
        container.busy.send_modify(|count| *count += 1);
        Self(container.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl Container {
    /// Makes an exec known; it is started later.
    ///
    /// # Errors
    /// AlreadyExists; FailedPrecondition when the container is paused or has ended; InvalidArgument when the
    /// specification is no JSON.
    pub fn add_exec(&self, config: &ExecConfig) -> Result<()> {
        match self.init.status() {
            Status::Created | Status::Running => {}
            status => {
                return Err(Error::failed_precondition(format!("cannot exec in a {} state", status.name())));
            }
        }
        let spec = prepare(config)?;
        if config.id.is_empty() || config.id == self.id {
            return Err(Error::invalid_argument("an exec needs an id of its own"));
        }
        let process = Process::new(&config.id, config.stdio.clone());
        process.set_spec(spec);
        let mut execs = self.execs();
        if execs.contains_key(&config.id) {
            return Err(Error::already_exists(format!("id {}", config.id)));
        }
        execs.insert(config.id.clone(), Arc::new(process));
        drop(execs);
        self.host.emit(Event::ExecAdded { id: self.id.clone(), exec_id: config.id.clone() });
        Ok(())
    }

    /// Starts an exec. One that fails to start is a stopped process from then on, with the exit code
    /// 255: whoever waits for it gets an answer.
    ///
    /// # Errors
    /// NotFound; FailedPrecondition when it was started before or init has ended; the runtime's own message.
    pub async fn start_exec(self: &Arc<Self>, exec_id: &str) -> Result<u32> {
        let process = self.process(exec_id)?;
        let _operation = process.operation.lock().await;
        if process.status() != Status::Created || process.pid() != 0 {
            let status = process.status().name();
            return Err(Error::failed_precondition(format!("cannot start a {status} process")));
        }
        let started = self.launch_exec(&process).await;
        if started.is_err() && process.pid() == 0 {
            process.set_exited(Exit { pid: 0, status: NOT_STARTED, at: SystemTime::now() });
        }
        started
    }

    async fn launch_exec(self: &Arc<Self>, process: &Arc<Process>) -> Result<u32> {
        if self.exited() {
            let message = format!("container {} init process is not running", self.id);
            return Err(Error::failed_precondition(message));
        }
        let busy = Busy::new(self);
        let files = Files::new(self);
        fs::write(&files.spec, process.spec())
            .map_err(|error| Error::io(format_args!("write {}", files.spec.display()), error))?;
        let owner = Owner { id: &self.id, namespace: &self.host.namespace, uid: self.owner.0, gid: self.owner.1 };
        let window = self.host.reaper.window();
        let call = async |console: Option<&std::path::Path>, streams| {
            self.runtime.exec(&self.id, &files.spec, &files.pid, console, streams).await
        };
        let launched = launch(process.stdio(), owner, &self.host, call).await?;
        let pid = read_pid(&files.pid)?;
        let exit = self.host.reaper.watch(pid);
        drop(window);
        let failed = match launched {
            Ok(io) => {
                process.set_created(pid, io);
                None
            }
            Err(error) => {
                process.set_created(pid, Default::default());
                Some(error)
            }
        };
        process.set_status(Status::Running);
        if let Some(error) = failed {
            // It runs without its terminal: of no use to anybody.
            let _ = process.signal(9, &self.host.reaper).await;
            tokio::spawn(self.clone().exec_exit(process.clone(), exit, busy));
            return Err(error);
        }
        self.host.emit(Event::ExecStarted { id: self.id.clone(), exec_id: process.id().to_owned(), pid });
        tokio::spawn(self.clone().exec_exit(process.clone(), exit, busy));
        Ok(pid)
    }

    /// Forgets an exec, which must have ended or never been started.
    ///
    /// # Errors
    /// NotFound; FailedPrecondition while it runs.
    pub async fn delete_exec(&self, exec_id: &str) -> Result<Exit> {
        let process = self.process(exec_id)?;
        let _operation = process.operation.lock().await;
        if process.status() != Status::Stopped && process.pid() != 0 {
            let status = process.status().name();
            return Err(Error::failed_precondition(format!("cannot delete a {status} process")));
        }
        if let Some(io) = process.take_io() {
            io.finish().await;
        }
        self.execs().remove(exec_id);
        // One that was never started has no exit of its own.
        Ok(process.exit().unwrap_or(Exit { pid: 0, status: 0, at: SystemTime::UNIX_EPOCH }))
    }
}

/// The process to hand to the runtime: the request says whether it has a terminal.
fn prepare(config: &ExecConfig) -> Result<Vec<u8>> {
    let bad = |error: serde_json::Error| Error::invalid_argument(format!("process specification: {error}"));
    let mut spec: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&config.spec).map_err(bad)?;
    spec.insert("terminal".into(), config.stdio.terminal.into());
    serde_json::to_vec(&spec).map_err(bad)
}
