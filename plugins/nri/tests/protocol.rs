//! The runtime's side against plugins that speak the published protocol over a socket.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use containerd_api_nri::v1alpha1::*;
use containerd_ttrpc::{Client, Context, Router, Server, Status};
use core_types::Result;
use plugin_nri::{Config, Nri, RuntimeCallbacks, mux};
use tokio::{net::UnixStream, task::JoinSet};

const PLUGIN: &str = "nri.pkg.api.v1alpha1.Plugin";
const RUNTIME: &str = "nri.pkg.api.v1alpha1.Runtime";

/// What happened, in order.
type Log = Arc<Mutex<Vec<String>>>;

#[derive(Default)]
struct Runtime {
    pods: usize,
    updates: Mutex<Vec<ContainerUpdate>>,
}

#[async_trait]
impl RuntimeCallbacks for Runtime {
    async fn pods_and_containers(&self) -> Result<(Vec<PodSandbox>, Vec<Container>)> {
        let pod = |n| PodSandbox { id: format!("pod{n}"), name: "x".repeat(1 << 20), ..PodSandbox::default() };
        Ok(((0..self.pods).map(pod).collect(), vec![Container { id: "old".into(), ..Container::default() }]))
    }

    async fn update_containers(&self, updates: Vec<ContainerUpdate>) -> Result<Vec<ContainerUpdate>> {
        self.updates.lock().unwrap().extend(updates.clone());
        Ok(updates.into_iter().filter(|update| update.container_id == "fails").collect())
    }
}

type Create = Box<dyn Fn(CreateContainerRequest) -> std::result::Result<CreateContainerResponse, Status> + Send + Sync>;

/// A plugin.
struct Plugin {
    client: Client,
    tasks: JoinSet<()>,
}

struct Behaviour {
    events: i32,
    create: Create,
    /// Never answers a creation.
    hangs: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self { events: 0, create: Box::new(|_| Ok(CreateContainerResponse::default())), hangs: false }
    }
}

fn router(name: &'static str, log: &Log, behaviour: Behaviour) -> Router {
    let mut router = Router::default();
    let note = |what: &'static str| {
        let log = log.clone();
        move |more: String| log.lock().unwrap().push(format!("{name} {what}{more}"))
    };
    let (events, noted) = (behaviour.events, note("configure"));
    router.unary(PLUGIN, "Configure", move |_, request: ConfigureRequest| {
        assert_eq!(request.runtime_name, "containerd");
        noted(String::new());
        async move { Ok(ConfigureResponse { events }) }
    });
    let noted = note("synchronize");
    router.unary(PLUGIN, "Synchronize", move |_, request: SynchronizeRequest| {
        noted(format!(" {} {}", request.pods.len(), request.containers.len()));
        async move { Ok(SynchronizeResponse { more: request.more, update: Vec::new() }) }
    });
    let noted = note("shutdown");
    router.unary(PLUGIN, "Shutdown", move |_, _: Empty| {
        noted(String::new());
        async { Ok(Empty {}) }
    });
    let noted = note("run");
    router.unary(PLUGIN, "RunPodSandbox", move |_, request: RunPodSandboxRequest| {
        noted(format!(" {}", request.pod.unwrap().id));
        async { Ok(RunPodSandboxResponse {}) }
    });
    let noted = note("state");
    router.unary(PLUGIN, "StateChange", move |_, request: StateChangeEvent| {
        noted(format!(" {}", request.event));
        async { Ok(Empty {}) }
    });
    let (noted, create, hangs) = (note("create"), behaviour.create, behaviour.hangs);
    router.unary(PLUGIN, "CreateContainer", move |_, request: CreateContainerRequest| {
        noted(String::new());
        let answer = create(request);
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            answer
        }
    });
    router
}

impl Plugin {
    async fn connect(socket: &Path, router: Router) -> Self {
        let (read, write) = UnixStream::connect(socket).await.unwrap().into_split();
        let mut tasks = JoinSet::new();
        let (plugin, runtime) = mux::split(read, write, &mut tasks);
        tasks.spawn(Server::serve_halves(plugin.read, plugin.write, Arc::new(router)));
        Self { client: Client::from_halves(runtime.read, runtime.write), tasks }
    }

    async fn register(&self, index: &str, name: &str) -> std::result::Result<Empty, Status> {
        let request =
            RegisterPluginRequest { plugin_name: name.into(), plugin_idx: index.into(), nri_version: String::new() };
        let context = Context::with_timeout(Duration::from_secs(20));
        self.client.call(RUNTIME, "RegisterPlugin", &context, &request).await
    }

    fn crash(mut self) {
        self.tasks.abort_all();
    }
}

struct World {
    nri: Nri,
    runtime: Arc<Runtime>,
    config: Config,
    log: Log,
    _directory: tempfile::TempDir,
}

impl World {
    async fn with(pods: usize, change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config {
            socket_path: directory.path().join("nri/nri.sock"),
            plugin_path: directory.path().join("plugins"),
            plugin_config_path: directory.path().join("conf.d"),
            plugin_registration_timeout: Duration::from_secs(30),
            plugin_request_timeout: Duration::from_secs(20),
            ..Config::default()
        };
        change(&mut config);
        let runtime = Arc::new(Runtime { pods, ..Runtime::default() });
        let nri = Nri::start(config.clone(), runtime.clone()).await.unwrap();
        Self { nri, runtime, config, log: Log::default(), _directory: directory }
    }

    async fn new() -> Self {
        Self::with(0, |_| {}).await
    }

    async fn plugin(&self, index: &'static str, name: &'static str, behaviour: Behaviour) -> Plugin {
        let plugin = Plugin::connect(&self.config.socket_path, router(name, &self.log, behaviour)).await;
        plugin.register(index, name).await.unwrap();
        let listed = format!("{index}-{name}");
        eventually(|| format!("{:?}", self.nri).contains(&listed)).await;
        plugin
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    async fn create(&self) -> Result<plugin_nri::Adjusted> {
        let pod = PodSandbox { id: "pod".into(), ..PodSandbox::default() };
        self.nri.create_container(&pod, &Container { id: "new".into(), ..Container::default() }).await
    }
}

async fn eventually(mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "did not come to be");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn annotate(key: &'static str, value: &'static str) -> Behaviour {
    let adjust = ContainerAdjustment {
        annotations: BTreeMap::from([(key.to_owned(), value.to_owned())]),
        ..ContainerAdjustment::default()
    };
    let create = move |_| Ok(CreateContainerResponse { adjust: Some(adjust.clone()), ..Default::default() });
    Behaviour { create: Box::new(create), ..Behaviour::default() }
}

#[tokio::test]
async fn plugins_are_called_in_order_and_see_what_those_before_did() {
    let world = World::new().await;
    assert!(!world.nri.active());
    let second = Behaviour {
        create: Box::new(|request| {
            assert_eq!(request.container.unwrap().annotations.get("a").map(String::as_str), Some("1"));
            Ok(CreateContainerResponse {
                adjust: Some(ContainerAdjustment { args: vec!["sh".into()], ..Default::default() }),
                update: vec![ContainerUpdate {
                    container_id: "old".into(),
                    linux: Some(LinuxContainerUpdate {
                        resources: Some(LinuxResources { pids: Some(LinuxPids { limit: 7 }), ..Default::default() }),
                    }),
                    ignore_failure: false,
                }],
                evict: vec![ContainerEviction { container_id: "old".into(), reason: "why".into() }],
            })
        }),
        ..Behaviour::default()
    };
    let _b = world.plugin("20", "b", second).await;
    let _a = world.plugin("10", "a", annotate("a", "1")).await;
    let adjusted = world.create().await.unwrap();
    let adjustment = adjusted.adjustment.unwrap();
    assert_eq!((adjustment.annotations["a"].as_str(), adjustment.args), ("1", vec!["sh".to_owned()]));
    assert_eq!((adjusted.updates.len(), adjusted.evictions.len()), (1, 1));
    let log = world.log();
    assert_eq!(&log[log.len() - 2..], ["a create", "b create"]);
    world.nri.stop().await;
    assert!(world.log().iter().any(|line| line == "a shutdown"));
    assert!(!world.nri.active());
}

#[tokio::test]
async fn two_plugins_that_set_the_same_are_an_error_that_names_both() {
    let world = World::new().await;
    let _a = world.plugin("10", "a", annotate("k", "1")).await;
    let _b = world.plugin("20", "b", annotate("k", "2")).await;
    let error = world.create().await.unwrap_err();
    assert!(error.message().contains("10-a") && error.message().contains("20-b"), "{error}");
}

#[tokio::test]
async fn a_refusal_fails_the_request_and_keeps_the_plugin() {
    let world = World::new().await;
    let refuse = Behaviour { create: Box::new(|_| Err(Status::new(7, "not here"))), ..Behaviour::default() };
    let _a = world.plugin("10", "a", refuse).await;
    assert!(world.create().await.unwrap_err().message().contains("not here"));
    assert!(world.nri.active());
}

#[tokio::test]
async fn a_plugin_that_does_not_answer_is_let_go_and_the_request_goes_on() {
    let world = World::with(0, |config| config.plugin_request_timeout = Duration::from_secs(1)).await;
    let _a = world.plugin("10", "a", Behaviour { hangs: true, ..Behaviour::default() }).await;
    let _b = world.plugin("20", "b", annotate("k", "1")).await;
    let adjusted = world.create().await.unwrap();
    assert!(adjusted.adjustment.is_some());
    eventually(|| format!("{:?}", world.nri) == "[\"20-b\"]").await;
}

#[tokio::test]
async fn a_plugin_that_crashes_in_a_call_is_let_go_and_the_request_goes_on() {
    let world = World::new().await;
    let crashing = world.plugin("10", "a", Behaviour { hangs: true, ..Behaviour::default() }).await;
    let _b = world.plugin("20", "b", annotate("k", "1")).await;
    let crash = async {
        eventually(|| world.log().iter().any(|line| line == "a create")).await;
        crashing.crash();
    };
    let (adjusted, ()) = tokio::join!(world.create(), crash);
    assert!(adjusted.unwrap().adjustment.is_some());
    eventually(|| format!("{:?}", world.nri) == "[\"20-b\"]").await;
}

#[tokio::test]
async fn bad_registrations_are_refused() {
    let world = World::with(0, |config| config.plugin_registration_timeout = Duration::from_secs(2)).await;
    for (index, name) in [("1", "a"), ("x1", "a"), ("10", ""), ("10", "a/b")] {
        let plugin = Plugin::connect(&world.config.socket_path, router("bad", &world.log, Behaviour::default())).await;
        assert!(plugin.register(index, name).await.is_err(), "{index} {name}");
        plugin.client.closed().await;
    }
    let silent = Plugin::connect(&world.config.socket_path, Router::default()).await;
    silent.client.closed().await;
    let greedy = Behaviour { events: 1 << 20, ..Behaviour::default() };
    let greedy = Plugin::connect(&world.config.socket_path, router("greedy", &world.log, greedy)).await;
    let _ = greedy.register("10", "greedy").await;
    greedy.client.closed().await;
    assert!(!world.nri.active());
}

#[tokio::test]
async fn a_state_larger_than_a_message_comes_in_parts() {
    let world = World::with(7, |_| {}).await;
    let _a = world.plugin("10", "a", Behaviour::default()).await;
    let log = world.log();
    let parts = log.iter().filter_map(|line| line.strip_prefix("a synchronize "));
    let counts: Vec<(usize, usize)> = parts
        .map(|part| part.split_once(' ').map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap())).unwrap())
        .collect();
    assert!(counts.len() > 1, "{counts:?}");
    assert_eq!(counts.iter().fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1)), (7, 1));
}

#[tokio::test]
async fn only_subscribed_events_come_and_old_plugins_get_them_as_changes_of_state() {
    let world = World::new().await;
    let mask = 1 << (Event::RunPodSandbox as i32 - 1) | 1 << (Event::StopPodSandbox as i32 - 1);
    let _a = world.plugin("10", "a", Behaviour { events: mask, ..Behaviour::default() }).await;
    let before = world.log().len();
    let pod = PodSandbox { id: "pod".into(), ..PodSandbox::default() };
    world.nri.run_pod_sandbox(&pod).await.unwrap();
    world.nri.stop_pod_sandbox(&pod).await.unwrap();
    world.nri.remove_pod_sandbox(&pod).await.unwrap();
    world.create().await.unwrap();
    assert_eq!(&world.log()[before..], ["a run pod", "a state 2"]);
}

#[tokio::test]
async fn a_plugin_updates_containers_unasked() {
    let world = World::new().await;
    let plugin = world.plugin("10", "a", Behaviour::default()).await;
    let update = |id: &str| ContainerUpdate { container_id: id.into(), ..ContainerUpdate::default() };
    let request = UpdateContainersRequest { update: vec![update("old"), update("fails")], evict: Vec::new() };
    let context = Context::with_timeout(Duration::from_secs(20));
    let answer: UpdateContainersResponse =
        plugin.client.call(RUNTIME, "UpdateContainers", &context, &request).await.unwrap();
    assert_eq!(answer.failed, [update("fails")]);
    assert_eq!(world.runtime.updates.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn the_default_validator_and_plugins_reject_adjustments() {
    let world = World::with(0, |config| {
        config.default_validator.enable = true;
        config.default_validator.required_plugins = vec!["a".into()];
    })
    .await;
    assert!(world.create().await.is_err());
    let _a = world.plugin("10", "a", annotate("k", "1")).await;
    world.create().await.unwrap();
    let mut rejecting = router("v", &world.log, Behaviour::default());
    rejecting.unary(
        PLUGIN,
        "ValidateContainerAdjustment",
        |_, request: ValidateContainerAdjustmentRequest| async move {
            let owners = &request.owners.unwrap().owners["new"];
            assert_eq!(owners.compound[&(Field::Annotations as i32)].owners["k"], "10-a");
            Ok(ValidateContainerAdjustmentResponse { reject: true, reason: "no k".into() })
        },
    );
    let plugin = Plugin::connect(&world.config.socket_path, rejecting).await;
    plugin.register("30", "v").await.unwrap();
    eventually(|| format!("{:?}", world.nri).contains("30-v")).await;
    assert!(world.create().await.unwrap_err().message().contains("no k"));
}

#[tokio::test]
async fn plugins_of_the_directory_are_started_and_those_that_fail_left_out() {
    use std::os::unix::fs::PermissionsExt;
    let begun = Instant::now();
    let mut seen = std::path::PathBuf::new();
    let world = World::with(0, |config| {
        config.plugin_registration_timeout = Duration::from_secs(2);
        std::fs::create_dir_all(&config.plugin_path).unwrap();
        seen = config.plugin_path.join("seen");
        let script = format!(
            "#!/bin/sh\n[ -S /proc/self/fd/3 ] && echo $NRI_PLUGIN_IDX $NRI_PLUGIN_NAME $NRI_PLUGIN_SOCKET > {}\n",
            seen.display()
        );
        for (name, text) in [("10-exits", script.as_str()), ("20-hangs", "#!/bin/sh\nexec sleep 60\n"), ("README", "x")]
        {
            let path = config.plugin_path.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    })
    .await;
    assert!(!world.nri.active());
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(std::fs::read_to_string(seen).unwrap(), "10 exits 3\n");
}
