use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64},
    },
    time::{Duration, SystemTime},
};

use core_cgroups::Cgroup;
use core_types::{Error, Result};
use tokio::{sync::watch, task::JoinHandle};

use crate::{Event, EventSink, Exit, ExitRecord, OciRuntime, Process, Reaper, Status};

/// How long a deleted container's exit is waited for after the runtime has killed it.
const EXIT: Duration = Duration::from_secs(10);

/// What all containers of a shim share.
#[derive(Clone)]
pub struct Host {
    /// Collects the processes.
    pub reaper: Arc<Reaper>,
    /// Where events go.
    pub events: EventSink,
    /// The containerd namespace.
    pub namespace: String,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Host {
    pub(crate) fn emit(&self, event: Event) {
        (self.events)(event);
    }
}

/// A container: its init process, its execs and the rules between them.
#[derive(Debug)]
pub struct Container {
    pub(crate) host: Host,
    pub(crate) id: String,
    pub(crate) bundle: PathBuf,
    /// Where its root file system is mounted, if the shim mounted one.
    pub(crate) rootfs: Option<PathBuf>,
    pub(crate) runtime: OciRuntime,
    pub(crate) owner: (u32, u32),
    pub(crate) init: Arc<Process>,
    pub(crate) execs: Mutex<HashMap<String, Arc<Process>>>,
    /// How many execs are starting or running: the exit of init is announced after theirs.
    pub(crate) busy: watch::Sender<usize>,
    /// Set as soon as init was collected, before its exit is announced: nothing may start any more.
    pub(crate) init_exited: AtomicBool,
    pub(crate) cgroup: Option<Cgroup>,
    /// Out-of-memory kills that were reported.
    pub(crate) oom_kills: AtomicU64,
    pub(crate) oom_task: Mutex<Option<JoinHandle<()>>>,
}

impl Container {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its bundle.
    pub fn bundle(&self) -> &Path {
        &self.bundle
    }

    /// Its init process.
    pub fn init(&self) -> &Arc<Process> {
        &self.init
    }

    /// Its cgroup, if there is one that can be seen.
    pub fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    pub(crate) fn execs(&self) -> MutexGuard<'_, HashMap<String, Arc<Process>>> {
        self.execs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The processes that were executed beside init: exec id and process id.
    pub fn exec_pids(&self) -> Vec<(String, u32)> {
        self.execs().values().map(|exec| (exec.id().to_owned(), exec.pid())).collect()
    }

    /// A process: init for an empty id.
    ///
    /// # Errors
    /// NotFound.
    pub fn process(&self, exec_id: &str) -> Result<Arc<Process>> {
        if exec_id.is_empty() {
            return Ok(self.init.clone());
        }
        let found = self.execs().get(exec_id).cloned();
        found.ok_or_else(|| Error::not_found(format!("process does not exist {exec_id}")))
    }

    /// Starts init.
    ///
    /// # Errors
    /// FailedPrecondition when it was started before; the runtime's own message.
    pub async fn start(&self) -> Result<u32> {
        let _operation = self.init.operation.lock().await;
        let status = self.init.status();
        if status != Status::Created || self.exited() {
            return Err(Error::failed_precondition(format!("cannot start a {} process", status.name())));
        }
        let pid = self.init.pid();
        self.runtime.start(&self.id, &self.bundle, pid).await?;
        self.init.set_status(Status::Running);
        self.host.emit(Event::Start { id: self.id.clone(), pid });
        Ok(pid)
    }

    pub(crate) fn exited(&self) -> bool {
        self.init_exited.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Sends a signal to a process, or to all of the container.
    ///
    /// # Errors
    /// NotFound when the process has ended; FailedPrecondition before it was started.
    pub async fn kill(&self, exec_id: &str, signal: u32, all: bool) -> Result<()> {
        let process = self.process(exec_id)?;
        if !exec_id.is_empty() {
            return process.signal(signal, &self.host.reaper).await;
        }
        if all {
            return self.runtime.kill(&self.id, signal, true).await;
        }
        match process.status() {
            // Only the runtime knows how to reach frozen processes.
            Status::Paused | Status::Pausing => self.runtime.kill(&self.id, signal, false).await,
            _ => process.signal(signal, &self.host.reaper).await,
        }
    }

    /// Freezes all processes.
    ///
    /// # Errors
    /// FailedPrecondition unless the container runs; the runtime's own message.
    pub async fn pause(&self) -> Result<()> {
        let _operation = self.init.operation.lock().await;
        self.require("pause", Status::Running)?;
        self.init.set_status(Status::Pausing);
        if let Err(error) = self.runtime.pause(&self.id).await {
            self.init.set_status(Status::Running);
            return Err(error);
        }
        self.init.set_status(Status::Paused);
        self.host.emit(Event::Paused { id: self.id.clone() });
        Ok(())
    }

    /// Lets all processes run again.
    ///
    /// # Errors
    /// FailedPrecondition unless the container is paused; the runtime's own message.
    pub async fn resume(&self) -> Result<()> {
        let _operation = self.init.operation.lock().await;
        self.require("resume", Status::Paused)?;
        self.runtime.resume(&self.id).await?;
        self.init.set_status(Status::Running);
        self.host.emit(Event::Resumed { id: self.id.clone() });
        Ok(())
    }

    fn require(&self, doing: &str, wanted: Status) -> Result<()> {
        match self.init.status() {
            status if status == wanted => Ok(()),
            status => Err(Error::failed_precondition(format!("cannot {doing} a {} container", status.name()))),
        }
    }

    /// Changes the limits; `resources` is the JSON of the runtime specification's `LinuxResources`.
    ///
    /// # Errors
    /// FailedPrecondition when the container has ended; the runtime's own message.
    pub async fn update(&self, resources: Vec<u8>) -> Result<()> {
        let _operation = self.init.operation.lock().await;
        if self.init.status() == Status::Stopped {
            return Err(Error::failed_precondition("cannot update a stopped container"));
        }
        self.runtime.update(&self.id, resources).await
    }

    /// Removes the container, which must have ended or never been started. May be repeated after a failure.
    ///
    /// # Errors
    /// FailedPrecondition while it runs; the runtime's own message; when its root cannot be unmounted.
    pub async fn delete(&self) -> Result<Exit> {
        // The exit is announced by a task that needs the lock: so it is released before it is waited for.
        {
            let _operation = self.init.operation.lock().await;
            match self.init.status() {
                Status::Stopped => self.runtime.delete(&self.id, false).await?,
                Status::Created => self.runtime.delete(&self.id, true).await?,
                status => {
                    return Err(Error::failed_precondition(format!("cannot delete a {} process", status.name())));
                }
            }
        }
        let exit = match tokio::time::timeout(EXIT, self.init.wait()).await {
            Ok(exit) => exit,
            Err(_) => Exit { pid: self.init.pid(), status: 255, at: SystemTime::now() },
        };
        if let Some(io) = self.init.take_io() {
            io.finish().await;
        }
        if let Some(task) = self.oom_task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
        if let Some(rootfs) = self.rootfs.clone() {
            let last = crate::create::blocking(move || core_mount::unmount_rootfs(&rootfs)).await?;
            // Not on the runtime, whose end would wait for it.
            let _ = std::thread::Builder::new().name("unmount".into()).spawn(move || drop(last));
        }
        ExitRecord::remove(&self.bundle);
        self.host.emit(Event::Delete { id: self.id.clone(), exit });
        Ok(exit)
    }
}
