//! A shim that is played, a shim binary that is a script, and a place for both.

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use async_trait::async_trait;
use core_events::{Envelope, Event, Publisher};
use core_runtime_v2::{
    Any, Config, Connector, CreateOptions, CreateRequest, ExecRequest, ExitStatus, KillRequest, Process, ShimClient,
    ShimInfo, State, Status, TaskManager, Timeouts,
};
use core_types::{Error, ErrorKind, Labels, Namespace, Result};
use tokio::sync::watch;

/// What happens to who connects.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// They are connected.
    Alive,
    /// The socket refuses.
    Refused,
    /// Nothing happens, ever.
    Silent,
}

/// The played shim.
pub(crate) struct Shim {
    tasks: watch::Sender<BTreeMap<String, State>>,
    pub(crate) shutdowns: AtomicUsize,
    pub(crate) connections: AtomicUsize,
    pub(crate) create_error: Mutex<Option<(ErrorKind, String)>>,
    reach: Mutex<Reach>,
    /// Rises when all connections break.
    epoch: watch::Sender<u32>,
    stopped: Mutex<bool>,
}

impl Shim {
    pub(crate) fn reach(&self, reach: Reach) {
        *self.reach.lock().unwrap() = reach;
    }
    pub(crate) fn die(&self, then: Reach) {
        self.reach(then);
        self.epoch.send_modify(|epoch| *epoch += 1);
    }
    pub(crate) fn forget(&self, id: &str) {
        self.tasks.send_modify(|tasks| drop(tasks.remove(id)));
    }
    pub(crate) fn exit_all(&self, status: u32) {
        self.tasks.send_modify(|tasks| tasks.values_mut().for_each(|task| end(task, status)));
    }
    pub(crate) fn stop(&self) {
        *self.stopped.lock().unwrap() = true;
    }
}

fn end(task: &mut State, status: u32) {
    task.status = Status::Stopped;
    task.exit_status = status;
    task.exited_at = Some(SystemTime::now());
}

fn exit(task: &State) -> ExitStatus {
    ExitStatus { pid: task.pid, status: task.exit_status, exited_at: task.exited_at }
}

struct Client {
    shim: Arc<Shim>,
    epoch: u32,
}

impl Client {
    /// Every request fails on a broken connection and hangs in a stopped shim.
    async fn alive(&self) -> Result<()> {
        if *self.shim.stopped.lock().unwrap() {
            return std::future::pending().await;
        }
        let broken = *self.shim.epoch.borrow() != self.epoch;
        if broken { Err(Error::unavailable("closed")) } else { Ok(()) }
    }

    async fn task<T>(&self, id: &str, change: impl FnOnce(&mut State) -> T + Send) -> Result<T> {
        self.alive().await?;
        let mut changed = Err(Error::not_found("no such task"));
        self.shim.tasks.send_modify(|tasks| {
            if let Some(task) = tasks.get_mut(id) {
                changed = Ok(change(task));
            }
        });
        changed
    }
}

#[async_trait]
impl ShimClient for Client {
    async fn state(&self, id: &str, _exec_id: &str) -> Result<State> {
        self.task(id, |task| task.clone()).await
    }
    async fn create(&self, request: CreateRequest) -> Result<u32> {
        self.alive().await?;
        if let Some((kind, message)) = self.shim.create_error.lock().unwrap().take() {
            return Err(Error::new(kind, message));
        }
        let state = State { id: request.id.clone(), pid: 42, status: Status::Created, ..State::default() };
        self.shim.tasks.send_modify(|tasks| drop(tasks.insert(request.id, state)));
        Ok(42)
    }
    async fn start(&self, id: &str, _exec_id: &str) -> Result<u32> {
        self.task(id, |task| {
            task.status = Status::Running;
            task.pid
        })
        .await
    }
    async fn delete(&self, id: &str, _exec_id: &str) -> Result<ExitStatus> {
        let state = self.task(id, |task| task.clone()).await?;
        if state.status == Status::Running {
            return Err(Error::failed_precondition("it runs"));
        }
        self.shim.forget(id);
        Ok(exit(&state))
    }
    async fn pids(&self, _id: &str) -> Result<Vec<Process>> {
        Ok(Vec::new())
    }
    async fn pause(&self, _id: &str) -> Result<()> {
        Ok(())
    }
    async fn resume(&self, _id: &str) -> Result<()> {
        Ok(())
    }
    async fn checkpoint(&self, _id: &str, _path: &str, _options: Option<Any>) -> Result<()> {
        Ok(())
    }
    async fn kill(&self, request: KillRequest) -> Result<()> {
        self.task(&request.id, |task| end(task, 128 + request.signal)).await
    }
    async fn exec(&self, _request: ExecRequest) -> Result<()> {
        Ok(())
    }
    async fn resize_pty(&self, _id: &str, _exec_id: &str, _width: u32, _height: u32) -> Result<()> {
        Ok(())
    }
    async fn close_io(&self, _id: &str, _exec_id: &str) -> Result<()> {
        Ok(())
    }
    async fn update(&self, _id: &str, _resources: Option<Any>, _annotations: Labels) -> Result<()> {
        Ok(())
    }
    async fn wait(&self, id: &str, _exec_id: &str) -> Result<ExitStatus> {
        let mut tasks = self.shim.tasks.subscribe();
        let ended = tasks.wait_for(|tasks| tasks.get(id).is_none_or(|task| task.status == Status::Stopped));
        tokio::select! {
            tasks = ended => tasks.unwrap().get(id).map(exit).ok_or_else(|| Error::not_found("no such task")),
            () = self.closed() => Err(Error::unavailable("closed")),
        }
    }
    async fn stats(&self, _id: &str) -> Result<Any> {
        Err(Error::unimplemented("no stats"))
    }
    async fn connect(&self, id: &str) -> Result<ShimInfo> {
        self.task(id, |task| ShimInfo { shim_pid: 0, task_pid: task.pid }).await
    }
    async fn shutdown(&self, _id: &str, _now: bool) -> Result<()> {
        self.alive().await?;
        self.shim.shutdowns.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    async fn closed(&self) {
        let mut epochs = self.shim.epoch.subscribe();
        let _ = epochs.wait_for(|epoch| *epoch != self.epoch).await;
    }
}

struct Played(Arc<Shim>);

#[async_trait]
impl Connector for Played {
    async fn connect(
        &self,
        _namespace: &Namespace,
        _protocol: &str,
        _version: u32,
        _address: &Path,
        _deadline: Duration,
    ) -> Result<Arc<dyn ShimClient>> {
        let reach = *self.0.reach.lock().unwrap();
        match reach {
            Reach::Alive => {
                self.0.connections.fetch_add(1, Ordering::SeqCst);
                Ok(Arc::new(Client { shim: self.0.clone(), epoch: *self.0.epoch.borrow() }))
            }
            Reach::Refused => Err(Error::unavailable("refused")),
            Reach::Silent => std::future::pending().await,
        }
    }
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Publisher for Heard {
    fn publish(&self, _namespace: &Namespace, topic: &str, _event: Event) -> Result<()> {
        self.0.lock().unwrap().push(topic.to_owned());
        Ok(())
    }
}

/// Where a test plays.
pub(crate) struct Bed {
    dir: tempfile::TempDir,
    pub(crate) namespace: Namespace,
    pub(crate) shim: Arc<Shim>,
    heard: Arc<Heard>,
}

impl Bed {
    pub(crate) fn new() -> Self {
        let shim = Shim {
            tasks: watch::Sender::default(),
            shutdowns: AtomicUsize::default(),
            connections: AtomicUsize::default(),
            create_error: Mutex::default(),
            reach: Mutex::new(Reach::Alive),
            epoch: watch::Sender::new(0),
            stopped: Mutex::default(),
        };
        let bed = Self {
            dir: tempfile::tempdir().unwrap(),
            namespace: Namespace::new("ns").unwrap(),
            shim: Arc::new(shim),
            heard: Arc::default(),
        };
        bed.script("case $action in start) cat >/dev/null; printf unix:///nowhere/s;; esac");
        bed
    }

    pub(crate) fn script(&self, script: &str) {
        let temp = self.dir.path().join("new");
        std::fs::write(&temp, format!("#!/bin/sh\nfor action; do :; done\n{script}\n")).unwrap();
        std::fs::set_permissions(&temp, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(&temp, self.binary()).unwrap();
    }

    pub(crate) fn binary(&self) -> PathBuf {
        self.dir.path().join("containerd-shim-fake-v1")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub(crate) fn manager(&self) -> TaskManager {
        let mut config = Config::new(self.root(), self.state(), "/run/x.sock".into(), "/run/x.sock.ttrpc".into());
        config.executable = self.dir.path().join("containerd");
        config.search_path = Some(Vec::new());
        let brief = Duration::from_secs(2);
        config.timeouts = Timeouts {
            load: brief,
            state: brief,
            short: brief,
            cleanup: Duration::from_secs(30),
            ..Timeouts::default()
        };
        TaskManager::new(config, Arc::new(Played(self.shim.clone())), self.heard.clone()).unwrap()
    }

    pub(crate) fn options(&self) -> CreateOptions {
        CreateOptions { runtime: "io.containerd.fake.v1".into(), ..CreateOptions::default() }
    }

    pub(crate) fn published(&self) -> Vec<String> {
        self.heard.0.lock().unwrap().clone()
    }

    pub(crate) fn exit_event(&self, id: &str) -> Envelope {
        let mut value = vec![0x0a, id.len() as u8];
        value.extend(id.bytes());
        value.extend([0x12, id.len() as u8]);
        value.extend(id.bytes());
        let any = Any { type_url: "containerd.events.TaskExit".into(), value: value.into() };
        Envelope {
            timestamp: SystemTime::now(),
            namespace: self.namespace.clone(),
            topic: "/tasks/exit".into(),
            event: Event::Encoded(any),
        }
    }

    /// Whether no task left anything on disk.
    pub(crate) fn is_clean(&self) -> bool {
        let empty = |dir: PathBuf| std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none());
        empty(self.state().join("ns")) && empty(self.root().join("ns"))
    }
}

/// Polls until it is so.
pub(crate) async fn eventually(mut so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !so() {
        assert!(Instant::now() < until, "it did not come to be");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
