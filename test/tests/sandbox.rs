//! Sandboxes over the socket, by the controller that runs each as a shim: what is between their creation and their end,
//! with the daemon killed and with the shim killed.

// Helpers of a test are tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::{path::Path, process::Command, time::Duration};

use containerd_api::events::{SandboxCreate, SandboxExit, SandboxStart};
use containerd_client::{
    self as client,
    services::v1::{
        Container, CreateContainerRequest, CreateTaskRequest, DeleteContainerRequest, DeleteTaskRequest, GetRequest,
        StartRequest, SubscribeRequest, WaitRequest,
        container::Runtime,
        containers_client::ContainersClient,
        events_client::EventsClient,
        sandbox::{controller_client::ControllerClient, store_client::StoreClient, *},
        tasks_client::TasksClient,
    },
    types::{Envelope, Sandbox, sandbox},
    with_namespace,
};
use containerd_test::{Daemon, Output, State, World, eventually, skip_without, unique};
use nix::sys::signal::Signal;
use prost::Message;
use tonic::{Code, Request, Status, Streaming, transport::Channel};

const SPEC: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";
const RUNC: &str = "io.containerd.runc.v2";
const SHIM: &str = "shim";
const NAMESPACE: &str = "sandboxes";

/// A request, in the namespace and within a time.
fn asked<T>(message: T) -> Request<T> {
    let mut request: Request<T> = with_namespace!(message, NAMESPACE);
    request.set_timeout(Duration::from_secs(60));
    request
}

/// A client of one sandbox.
struct Pod {
    id: String,
    channel: Channel,
}

impl Pod {
    async fn of(daemon: &Daemon, id: &str) -> Self {
        Self { id: id.to_owned(), channel: client::connect(daemon.address()).await.unwrap() }
    }

    fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone())
    }

    fn record(&self, runtime: &str) -> Sandbox {
        // Go's shim wants one.
        let spec = runtime.starts_with('/').then(|| prost_types::Any { type_url: SPEC.into(), value: b"{}".to_vec() });
        Sandbox {
            spec,
            sandbox_id: self.id.clone(),
            runtime: Some(sandbox::Runtime { name: runtime.into(), options: None }),
            sandboxer: SHIM.into(),
            ..Default::default()
        }
    }

    async fn store(&self) -> Sandbox {
        let request = StoreCreateRequest { sandbox: Some(self.record(RUNC)) };
        StoreClient::new(self.channel.clone()).create(asked(request)).await.unwrap().into_inner().sandbox.unwrap()
    }

    async fn unstore(&self) {
        let request = StoreDeleteRequest { sandbox_id: self.id.clone() };
        StoreClient::new(self.channel.clone()).delete(asked(request)).await.unwrap();
    }

    async fn create(&self, runtime: &str) -> Result<(), Status> {
        let request = ControllerCreateRequest {
            sandbox_id: self.id.clone(),
            sandboxer: SHIM.into(),
            sandbox: Some(self.record(runtime)),
            netns_path: "/run/netns/none".into(),
            ..Default::default()
        };
        let answer = self.controller().create(asked(request)).await?.into_inner();
        assert_eq!(answer.sandbox_id, self.id);
        Ok(())
    }

    async fn start(&self) -> Result<ControllerStartResponse, Status> {
        let request = ControllerStartRequest { sandbox_id: self.id.clone(), sandboxer: SHIM.into() };
        Ok(self.controller().start(asked(request)).await?.into_inner())
    }

    async fn status(&self) -> Result<ControllerStatusResponse, Status> {
        let request = ControllerStatusRequest { sandbox_id: self.id.clone(), sandboxer: SHIM.into(), verbose: true };
        Ok(self.controller().status(asked(request)).await?.into_inner())
    }

    async fn stop(&self) -> Result<(), Status> {
        let request = ControllerStopRequest { sandbox_id: self.id.clone(), sandboxer: SHIM.into(), timeout_secs: 0 };
        self.controller().stop(asked(request)).await.map(drop)
    }

    async fn shutdown(&self) -> Result<(), Status> {
        let request = ControllerShutdownRequest { sandbox_id: self.id.clone(), sandboxer: SHIM.into() };
        self.controller().shutdown(asked(request)).await.map(drop)
    }

    /// Waits beside everything else.
    fn wait(&self) -> tokio::task::JoinHandle<Result<ControllerWaitResponse, Status>> {
        let (mut controller, sandbox_id) = (self.controller(), self.id.clone());
        tokio::spawn(async move {
            let request = ControllerWaitRequest { sandbox_id, sandboxer: SHIM.into() };
            Ok(controller.wait(asked(request)).await?.into_inner())
        })
    }

    /// Runs a container in the sandbox.
    async fn run(&self, world: &World, id: &str) {
        let container = Container {
            id: id.into(),
            runtime: Some(Runtime { name: RUNC.into(), options: None }),
            spec: Some(prost_types::Any { type_url: SPEC.into(), value: spec(&world.dir().join(id)) }),
            sandbox: self.id.clone(),
            ..Default::default()
        };
        let request = CreateContainerRequest { container: Some(container) };
        ContainersClient::new(self.channel.clone()).create(asked(request)).await.unwrap();
        let request = CreateTaskRequest { container_id: id.into(), ..Default::default() };
        self.tasks().create(asked(request)).await.unwrap();
        let request = StartRequest { container_id: id.into(), ..Default::default() };
        self.tasks().start(asked(request)).await.unwrap();
    }

    fn tasks(&self) -> TasksClient<Channel> {
        TasksClient::new(self.channel.clone())
    }

    /// Deletes a container and its task, which may have gone; answers its exit code.
    async fn remove(&self, id: &str) -> Option<u32> {
        let request = DeleteTaskRequest { container_id: id.into() };
        let code = match self.tasks().delete(asked(request)).await {
            Ok(answer) => Some(answer.into_inner().exit_status),
            Err(error) if error.code() == Code::NotFound => None,
            Err(error) => panic!("{error}"),
        };
        let request = DeleteContainerRequest { id: id.into() };
        ContainersClient::new(self.channel.clone()).delete(asked(request)).await.unwrap();
        code
    }

    async fn events(&self) -> Streaming<Envelope> {
        let filters = vec![format!("topic~=^/sandboxes/,namespace=={NAMESPACE}")];
        let subscribed = EventsClient::new(self.channel.clone()).subscribe(SubscribeRequest { filters }).await;
        subscribed.unwrap().into_inner()
    }
}

/// A specification that sleeps.
fn spec(dir: &Path) -> Vec<u8> {
    let root = dir.join("rootfs");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    let _ = std::fs::remove_file(dir.join("config.json"));
    Output::of(Command::new("runc").arg("spec").current_dir(dir)).ok();
    let text = std::fs::read_to_string(dir.join("config.json")).unwrap();
    let text = text
        .replace("\"terminal\": true", "\"terminal\": false")
        .replace("\"sh\"", "\"/bin/busybox\", \"sleep\", \"98765\"")
        .replace("\"rootfs\"", &format!("\"{}\"", root.display()));
    text.into_bytes()
}

fn shims(world: &World) -> usize {
    world.command_lines().iter().filter(|line| line.contains("containerd-shim-runc-v2 ")).count()
}

async fn next(events: &mut Streaming<Envelope>) -> (String, Vec<u8>) {
    let event = tokio::time::timeout(Duration::from_secs(60), events.message()).await.expect("an event in time");
    let event = event.unwrap().unwrap();
    (event.topic, event.event.unwrap().value)
}

async fn told(events: &mut Streaming<Envelope>, topic: &str, event: &impl Message) {
    assert_eq!(next(events).await, (topic.into(), event.encode_to_vec()));
}

fn begin() -> Option<(World, Daemon, State)> {
    if skip_without(&["runc", "ctr", "busybox"]) {
        return None;
    }
    let world = World::new();
    let daemon = Daemon::start(&world);
    // Directories of the namespace are made once.
    daemon.go_ctr(&["namespaces", "create", NAMESPACE]).ok();
    for plugin in ["io.containerd.runtime.v2.task", "io.containerd.sandbox.controller.v1.shim"] {
        for dir in [daemon.root(), daemon.state()] {
            std::fs::create_dir_all(dir.join(plugin).join(NAMESPACE)).unwrap();
        }
    }
    let before = State::of(&world, &daemon);
    Some((world, daemon, before))
}

#[tokio::test]
async fn a_sandbox_and_a_task_in_its_shim_across_a_killed_daemon() {
    let Some((world, mut daemon, before)) = begin() else { return };
    let (id, task) = (unique("pod"), unique("c"));
    let pod = Pod::of(&daemon, &id).await;
    let mut events = pod.events().await;
    assert_eq!(pod.store().await.sandboxer, SHIM);
    pod.create(RUNC).await.unwrap();
    told(&mut events, "/sandboxes/create", &SandboxCreate { sandbox_id: id.clone() }).await;
    assert_eq!(pod.create(RUNC).await.unwrap_err().code(), Code::AlreadyExists);
    assert_eq!(pod.status().await.unwrap().state, "SANDBOX_NOTREADY");
    let started = pod.start().await.unwrap();
    told(&mut events, "/sandboxes/start", &SandboxStart { sandbox_id: id.clone() }).await;
    assert!(started.address.starts_with("ttrpc+unix:///run/containerd/s/"), "{}", started.address);
    assert_eq!((started.pid, started.version), (0, 3));
    assert_eq!(pod.start().await.unwrap_err().code(), Code::FailedPrecondition);
    pod.run(&world, &task).await;
    assert_eq!(shims(&world), 1, "{:?}", world.command_lines());

    assert_eq!(daemon.end(Signal::SIGKILL), 137);
    daemon.restart();
    let pod = Pod::of(&daemon, &id).await;
    let mut events = pod.events().await;
    let status = pod.status().await.unwrap();
    assert_eq!((status.state.as_str(), status.address.as_str()), ("SANDBOX_READY", started.address.as_str()));
    assert_eq!((status.created_at, status.info["containers"].as_str()), (started.created_at, "1"));
    let request = ControllerPlatformRequest { sandbox_id: id.clone(), sandboxer: SHIM.into() };
    let platform = pod.controller().platform(asked(request)).await.unwrap().into_inner().platform.unwrap();
    assert_eq!(platform.os, "linux");
    let request = ControllerMetricsRequest { sandbox_id: id.clone(), sandboxer: SHIM.into() };
    assert_eq!(pod.controller().metrics(asked(request)).await.unwrap().into_inner().metrics, None);

    let waiting = pod.wait();
    pod.stop().await.unwrap();
    pod.stop().await.unwrap();
    let exit = waiting.await.unwrap().unwrap();
    assert!(exit.exit_status == 0 && exit.exited_at.is_some(), "{exit:?}");
    let (topic, event) = next(&mut events).await;
    let event = SandboxExit::decode(&*event).unwrap();
    assert_eq!(
        (topic.as_str(), event.sandbox_id.as_str(), event.exited_at),
        ("/sandboxes/exit", id.as_str(), exit.exited_at)
    );
    assert_eq!(pod.status().await.unwrap().state, "SANDBOX_NOTREADY");
    assert_eq!(pod.remove(&task).await, Some(137));
    pod.shutdown().await.unwrap();
    pod.shutdown().await.unwrap();
    pod.unstore().await;
    assert_eq!(pod.status().await.unwrap_err().code(), Code::NotFound);
    assert_eq!(pod.wait().await.unwrap().unwrap_err().code(), Code::NotFound);
    before.is_back("nothing left of the sandbox", || State::of(&world, &daemon));
    // The next event is of another sandbox: the end was told once.
    let other = Pod { id: unique("other"), channel: pod.channel.clone() };
    other.create(RUNC).await.unwrap();
    assert_eq!(next(&mut events).await.0, "/sandboxes/create");
    other.shutdown().await.unwrap();
    before.is_back("nothing left of one never started", || State::of(&world, &daemon));
}

#[tokio::test]
async fn a_killed_shim_ends_its_sandbox_and_its_tasks() {
    let Some((world, mut daemon, before)) = begin() else { return };
    let (id, task) = (unique("pod"), unique("c"));
    let pod = Pod::of(&daemon, &id).await;
    for daemon_runs in [true, false] {
        let pod = Pod::of(&daemon, &id).await;
        pod.create(RUNC).await.unwrap();
        pod.start().await.unwrap();
        pod.run(&world, &task).await;
        let shim: i32 = pod.status().await.unwrap().info["shim_pid"].parse().unwrap();
        let waiting = pod.wait();
        let request = WaitRequest { container_id: task.clone(), ..Default::default() };
        let mut tasks = pod.tasks();
        let task_waiting = tokio::spawn(async move { tasks.wait(asked(request)).await });
        // Both waits have come to the daemon once it answered what came after them.
        pod.status().await.unwrap();
        if !daemon_runs {
            assert_eq!(daemon.end(Signal::SIGKILL), 137);
        }
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(shim), Signal::SIGKILL).unwrap();
        if daemon_runs {
            let exit = waiting.await.unwrap().unwrap();
            assert!(exit.exit_status == 137 && exit.exited_at.is_some(), "{exit:?}");
            assert_eq!(task_waiting.await.unwrap().unwrap().into_inner().exit_status, 137);
        } else {
            daemon.restart();
        }
        let pod = Pod::of(&daemon, &id).await;
        let mut code = None;
        for _ in 0..600 {
            code = pod.status().await.err().map(|error| error.code());
            if code == Some(Code::NotFound) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(code, Some(Code::NotFound));
        pod.stop().await.unwrap();
        pod.shutdown().await.unwrap();
        let request = GetRequest { container_id: task.clone(), ..Default::default() };
        for _ in 0..600 {
            if pod.tasks().get(asked(request.clone())).await.is_err_and(|error| error.code() == Code::NotFound) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(pod.remove(&task).await, None, "the task went with its shim");
        eventually("the container ends", || {
            (!world.command_lines().iter().any(|line| line.contains("98765"))).then_some(())
        });
        before.is_back("nothing left of a killed shim", || State::of(&world, &daemon));
    }
    drop(pod);
}

#[tokio::test]
async fn what_cannot_be_says_why_and_leaves_nothing() {
    let Some((world, daemon, before)) = begin() else { return };
    let pod = Pod::of(&daemon, &unique("pod")).await;
    // A shim that does not serve the sandbox API, and one that is none.
    let script = world.dir().join("no-shim");
    std::fs::write(&script, "#!/bin/sh\necho this is no shim >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let error = pod.create(script.to_str().unwrap()).await.unwrap_err();
    assert!(error.message().contains("this is no shim"), "{error}");
    let error = pod.create("io.containerd.none.v9").await.unwrap_err();
    assert!(error.code() == Code::NotFound && error.message().contains("io.containerd.none.v9"), "{error}");
    if Path::new("/usr/bin/containerd-shim-runc-v2").exists() {
        let error = pod.create("/usr/bin/containerd-shim-runc-v2").await.unwrap_err();
        assert_eq!(error.code(), Code::Unimplemented, "{error}");
    }
    for (sandboxer, code) in [("", Code::InvalidArgument), ("none", Code::NotFound)] {
        let request =
            ControllerStatusRequest { sandbox_id: pod.id.clone(), sandboxer: sandboxer.into(), verbose: false };
        let error = pod.controller().status(asked(request)).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
    }
    for id in ["", "../up", "a/b"] {
        let bad = Pod { id: id.into(), channel: pod.channel.clone() };
        assert_eq!(bad.create(RUNC).await.unwrap_err().code(), Code::InvalidArgument, "{id:?}");
    }
    assert_eq!(pod.start().await.unwrap_err().code(), Code::NotFound);
    let request = ControllerCreateRequest {
        sandbox_id: pod.id.clone(),
        sandboxer: SHIM.into(),
        sandbox: Some(pod.record(RUNC)),
        rootfs: vec![client::types::Mount { r#type: "bind".into(), source: "/".into(), ..Default::default() }],
        ..Default::default()
    };
    let error = pod.controller().create(asked(request)).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented, "{error}");
    before.is_back("nothing left of what was refused", || State::of(&world, &daemon));
}
