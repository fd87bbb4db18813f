//! A controller over a shim that lives in the test: a script says where it is, the test serves it.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::SystemTime,
};

use containerd_api::{
    events as messages,
    runtime::sandbox::v1::{self as api, sandbox_ttrpc},
};
use containerd_ttrpc::{Context, Router, Server, Status};
use core_events::{Event, Exchange, Subscription};
use core_runtime_v2::{Config, Connector, ShimClient, TaskManager};
use core_sandbox::{NOT_READY, READY};
use tokio::sync::{Notify, watch};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Nobody speaks of tasks here.
struct NoTasks;

#[async_trait]
impl Connector for NoTasks {
    async fn connect(&self, _: &Namespace, _: &str, _: u32, _: &Path, _: Duration) -> Result<Arc<dyn ShimClient>> {
        Err(Error::unimplemented("no tasks"))
    }
}

/// The sandbox service of a shim.
#[derive(Default)]
struct Fake {
    fails: Option<&'static str>,
    started: AtomicUsize,
    created: AtomicUsize,
    ended: watch::Sender<bool>,
    shutdown: Arc<Notify>,
}

impl Fake {
    fn outcome(&self, call: &str) -> std::result::Result<(), Status> {
        match self.fails {
            Some(fails) if fails == call => Err(Status::new(13, format!("{call} does not work"))),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl sandbox_ttrpc::Sandbox for Fake {
    async fn create_sandbox(
        &self,
        _: Context,
        request: api::CreateSandboxRequest,
    ) -> std::result::Result<api::CreateSandboxResponse, Status> {
        assert!(Path::new(&request.bundle_path).join("config.json").exists());
        assert_eq!((request.netns_path.as_str(), request.annotations["a"].as_str()), ("/netns", "b"));
        self.outcome("create")?;
        self.created.fetch_add(1, Ordering::SeqCst);
        Ok(api::CreateSandboxResponse {})
    }

    async fn start_sandbox(
        &self,
        _: Context,
        _: api::StartSandboxRequest,
    ) -> std::result::Result<api::StartSandboxResponse, Status> {
        self.outcome("start")?;
        self.started.fetch_add(1, Ordering::SeqCst);
        Ok(api::StartSandboxResponse { pid: 7, created_at: Some(SystemTime::now().into()), spec: None })
    }

    async fn stop_sandbox(
        &self,
        _: Context,
        request: api::StopSandboxRequest,
    ) -> std::result::Result<api::StopSandboxResponse, Status> {
        assert_eq!(request.timeout_secs, 1);
        self.ended.send_replace(true);
        Ok(api::StopSandboxResponse {})
    }

    async fn wait_sandbox(
        &self,
        _: Context,
        _: api::WaitSandboxRequest,
    ) -> std::result::Result<api::WaitSandboxResponse, Status> {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
        Ok(api::WaitSandboxResponse { exit_status: 3, exited_at: Some(SystemTime::now().into()) })
    }

    async fn sandbox_status(
        &self,
        _: Context,
        request: api::SandboxStatusRequest,
    ) -> std::result::Result<api::SandboxStatusResponse, Status> {
        if self.created.load(Ordering::SeqCst) == 0 {
            return Err(Status::new(5, "no sandbox"));
        }
        let ready = self.started.load(Ordering::SeqCst) > 0 && !*self.ended.borrow();
        let state = if ready { READY } else { NOT_READY }.to_owned();
        Ok(api::SandboxStatusResponse { sandbox_id: request.sandbox_id, state, ..Default::default() })
    }

    async fn shutdown_sandbox(
        &self,
        _: Context,
        _: api::ShutdownSandboxRequest,
    ) -> std::result::Result<api::ShutdownSandboxResponse, Status> {
        self.shutdown.notify_one();
        Ok(api::ShutdownSandboxResponse {})
    }
}

struct World {
    dir: tempfile::TempDir,
    exchange: Arc<Exchange>,
    namespace: Namespace,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let world = Self { dir, exchange: Arc::new(Exchange::new()), namespace: Namespace::new("ns").unwrap() };
        let script = format!(
            "#!/bin/sh\nfor last; do :; done\ncat > /dev/null\n[ \"$last\" = start ] || exit 0\n\
             echo '{{\"version\":3,\"protocol\":\"ttrpc\",\"address\":\"unix://{}\"}}'\n",
            world.socket().display()
        );
        std::fs::write(world.shim(), script).unwrap();
        std::fs::set_permissions(world.shim(), std::fs::Permissions::from_mode(0o755)).unwrap();
        world
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    fn shim(&self) -> PathBuf {
        self.dir.path().join("shim")
    }

    /// Serves a shim until it is told to end, or the task is aborted.
    fn serve(&self, fake: Fake) -> (Arc<Fake>, tokio::task::JoinHandle<()>) {
        let _ = std::fs::remove_file(self.socket());
        let listener = tokio::net::UnixListener::bind(self.socket()).unwrap();
        let (shutdown, fake) = (Arc::clone(&fake.shutdown), Arc::new(fake));
        let mut router = Router::default();
        sandbox_ttrpc::register(&mut router, Arc::clone(&fake));
        let serve = async move { Server::serve(listener, Arc::new(router), shutdown.notified()).await };
        (fake, tokio::spawn(serve))
    }

    async fn controller(&self) -> ShimController {
        let (root, state) = (self.dir.path().join("root"), self.dir.path().join("state"));
        let mut config = Config::new(root.clone(), state.clone(), "grpc".into(), "ttrpc".into());
        config.timeouts.shutdown = SECOND;
        let manager = TaskManager::new(config, Arc::new(NoTasks), self.exchange.clone()).unwrap();
        let dirs = (self.dir.path().join("pods-root"), self.dir.path().join("pods"));
        for dir in [&dirs.0, &dirs.1] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let controller = ShimController::new(manager.sandbox_shims(dirs.0, dirs.1), self.exchange.clone());
        controller.load().await.unwrap();
        controller
    }

    fn record(&self) -> Sandbox {
        let mut sandbox = Sandbox::new("pod");
        sandbox.runtime.name = self.shim().to_string_lossy().into_owned();
        sandbox.spec = Some(Any { type_url: "a.spec".into(), value: b"{}".to_vec().into() });
        sandbox
    }

    async fn create(&self, controller: &ShimController) -> Result<()> {
        let options = CreateOptions {
            netns: Some("/netns".into()),
            annotations: [("a".to_owned(), "b".to_owned())].into(),
            ..CreateOptions::default()
        };
        controller.create(&self.namespace, &self.record(), options).await
    }

    fn events(&self) -> Subscription {
        self.exchange.subscribe(&[]).unwrap()
    }

    fn bundles(&self) -> usize {
        let entries = std::fs::read_dir(self.dir.path().join("pods").join("ns"));
        entries.map_or(0, Iterator::count)
    }
}

async fn topic(events: &mut Subscription) -> String {
    tokio::time::timeout(30 * SECOND, events.next()).await.unwrap().unwrap().topic
}

#[tokio::test]
async fn a_life_is_told_once_also_across_controllers() {
    let world = World::new();
    let (fake, _shim) = world.serve(Fake::default());
    let controller = world.controller().await;
    let mut events = world.events();
    world.create(&controller).await.unwrap();
    assert!(world.create(&controller).await.unwrap_err().is_already_exists());
    assert_eq!(controller.status(&world.namespace, "pod", false).await.unwrap().state, NOT_READY);
    let instance = controller.start(&world.namespace, "pod").await.unwrap();
    assert_eq!((instance.pid, instance.version), (7, 3));
    assert_eq!(instance.address, format!("ttrpc+unix://{}", world.socket().display()));
    assert_eq!(
        (topic(&mut events).await.as_str(), topic(&mut events).await.as_str()),
        ("/sandboxes/create", "/sandboxes/start")
    );
    drop(controller);

    let controller = world.controller().await;
    assert_eq!(controller.status(&world.namespace, "pod", false).await.unwrap().state, READY);
    assert_eq!(fake.started.load(Ordering::SeqCst), 1);
    controller.stop(&world.namespace, "pod", SECOND / 2).await.unwrap();
    let exit = controller.wait(&world.namespace, "pod").await.unwrap();
    assert_eq!(exit.status, 3);
    let told = tokio::time::timeout(30 * SECOND, events.next()).await.unwrap().unwrap();
    let Event::Encoded(any) = told.event else { panic!("{told:?}") };
    let packed = prost_types::Any { type_url: any.type_url, value: any.value.into() };
    let event: messages::SandboxExit = containerd_api::any::unpack("containerd.events.SandboxExit", &packed).unwrap();
    assert_eq!((event.sandbox_id.as_str(), event.exit_status), ("pod", 3));
    drop(controller);

    let controller = world.controller().await;
    assert_eq!(controller.status(&world.namespace, "pod", false).await.unwrap().state, NOT_READY);
    controller.shutdown(&world.namespace, "pod").await.unwrap();
    controller.shutdown(&world.namespace, "pod").await.unwrap();
    controller.stop(&world.namespace, "pod", SECOND).await.unwrap();
    assert!(controller.wait(&world.namespace, "pod").await.unwrap_err().is_not_found());
    assert_eq!((world.bundles(), events.waiting()), (0, 0), "the end is not told again");
}

#[tokio::test]
async fn what_fails_leaves_nothing() {
    for fails in ["create", "start"] {
        let world = World::new();
        let (_, shim) = world.serve(Fake { fails: Some(fails), ..Fake::default() });
        let controller = world.controller().await;
        let error = match world.create(&controller).await {
            Ok(()) => controller.start(&world.namespace, "pod").await.map(drop).unwrap_err(),
            Err(error) => error,
        };
        assert!(error.message().contains(&format!("{fails} does not work")), "{error}");
        shim.await.unwrap();
        assert_eq!(world.bundles(), 0);
        assert!(controller.status(&world.namespace, "pod", false).await.unwrap_err().is_not_found());
        // Its id is free.
        let (_fake, _shim) = world.serve(Fake::default());
        world.create(&controller).await.unwrap();
    }
}

#[tokio::test]
async fn a_dead_shim_is_the_end_of_its_sandbox() {
    let world = World::new();
    let (_, shim) = world.serve(Fake::default());
    let controller = Arc::new(world.controller().await);
    let mut events = world.events();
    world.create(&controller).await.unwrap();
    controller.start(&world.namespace, "pod").await.unwrap();
    let waiting = tokio::spawn({
        let (controller, namespace) = (Arc::clone(&controller), world.namespace.clone());
        async move { controller.wait(&namespace, "pod").await }
    });
    shim.abort();
    let exit = tokio::time::timeout(30 * SECOND, waiting).await.unwrap().unwrap();
    // It may come to the wait too late, too.
    if let Ok(exit) = exit {
        assert!(exit.status == 255 && exit.exited_at.is_some(), "{exit:?}");
    }
    for topic_wanted in ["/sandboxes/create", "/sandboxes/start", "/sandboxes/exit"] {
        assert_eq!(topic(&mut events).await, topic_wanted);
    }
    assert!(controller.status(&world.namespace, "pod", false).await.unwrap_err().is_not_found());
    assert_eq!(world.bundles(), 0);
}

#[tokio::test]
async fn a_shim_without_its_sandbox_is_ended_by_the_next_daemon() {
    let world = World::new();
    let (fake, shim) = world.serve(Fake::default());
    let controller = world.controller().await;
    world.create(&controller).await.unwrap();
    drop(controller);
    // As if the daemon had died between the start of the shim and the creation in it.
    fake.created.store(0, Ordering::SeqCst);
    let controller = world.controller().await;
    tokio::time::timeout(30 * SECOND, shim).await.unwrap().unwrap();
    let gone = async {
        while controller.inner.get(&world.namespace, "pod").is_ok() {
            tokio::time::sleep(SECOND / 100).await;
        }
    };
    tokio::time::timeout(30 * SECOND, gone).await.unwrap();
    assert_eq!(world.bundles(), 0);
}
