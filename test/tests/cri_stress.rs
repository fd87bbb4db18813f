//! Many pods at once, and a daemon that is killed while they come and go: nothing may be left of them.
//!
//! Small by default. `CRI_STRESS_PODS=50 CRI_STRESS_ROUNDS=20` makes it large, `CRI_STRESS_SEED` repeats the moments
//! of an earlier run, which it prints.

// Helpers of a test are tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

/// What pods leave on a machine beside what [`containerd_test::State`] sees.
#[path = "cri_stress/machine.rs"]
mod machine;
/// A node: registry, networks, daemon, and requests as kubelet makes them.
#[allow(dead_code, unused_imports)]
#[path = "cri/node.rs"]
mod node;

use std::time::{Duration, Instant};

use containerd_test::{State, unique};
use k8s_cri::v1::{runtime_service_client::RuntimeServiceClient, *};
use machine::Machine;
use nix::sys::signal::Signal;
use node::{Node, skip};
use tokio::task::JoinSet;
use tonic::{Status, transport::Channel};

/// How long all pods of a round may take to go.
const PATIENCE: Duration = Duration::from_secs(300);

type Runtime = RuntimeServiceClient<Channel>;

/// Repeatable moments.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[tokio::test]
async fn nothing_is_left_of_pods_when_the_daemon_is_killed() {
    if skip() {
        return;
    }
    let (pods, rounds) = (setting("CRI_STRESS_PODS", 8), setting("CRI_STRESS_ROUNDS", 3));
    let mut random = Random(setting("CRI_STRESS_SEED", u64::from(std::process::id()) * 7919));
    eprintln!("{pods} pods, {rounds} rounds, CRI_STRESS_SEED={}", random.0);
    let mut node = Node::start().await;
    let parent = format!("/{}", unique("cri-stress"));
    // What the first pod makes once for all: bridge, chains of iptables, the snapshot of the image.
    let whole = round(&mut node, 1, &parent, None).await;
    gone(&mut node).await;
    node.restart().await;
    let before = (State::of(&node.world, &node.daemon), Machine::of(&parent));
    for number in 0..rounds {
        // From the first request to the last, and sometimes afterwards.
        let kill = Duration::from_millis(random.below(whole.as_millis() as u64 * pods.div_ceil(2) + 200));
        let again = Duration::from_millis(random.below(1500));
        let start = Instant::now();
        round(&mut node, pods, &parent, Some(kill)).await;
        let ran = start.elapsed();
        removed_while_killed(&mut node, again).await;
        gone(&mut node).await;
        before.0.is_back(&format!("round {number}, killed after {kill:?}"), || State::of(&node.world, &node.daemon));
        before.1.is_back(&parent, &format!("round {number}, killed after {kill:?}"));
        eprintln!("round {number}: killed after {kill:?}, ran {ran:?}, all gone after {:?}", start.elapsed());
    }
    // A daemon that lives on keeps no file of them open.
    round(&mut node, 1, &parent, None).await;
    gone(&mut node).await;
    let files = machine::open_files(node.daemon.pid());
    round(&mut node, pods, &parent, None).await;
    gone(&mut node).await;
    machine::files_are_closed(node.daemon.pid(), &files);
    before.0.is_back("after the last round", || State::of(&node.world, &node.daemon));
    before.1.is_back(&parent, "after the last round");
}

/// Runs pods at once, and removes every second of them at once; kills the daemon at a moment. Answers how long it took.
async fn round(node: &mut Node, pods: u64, parent: &str, kill: Option<Duration>) -> Duration {
    let start = Instant::now();
    let mut work = JoinSet::new();
    for number in 0..pods {
        let mut pod = node.pod();
        pod.linux.get_or_insert_default().cgroup_parent = parent.to_owned();
        pod.port_mappings =
            vec![PortMapping { container_port: 80, host_port: 20_000 + number as i32, ..PortMapping::default() }];
        let container = node.container("echo started; exec sleep 1000");
        work.spawn(live(node.runtime.clone(), pod, container, number % 2 == 0));
    }
    if let Some(kill) = kill {
        tokio::time::sleep(kill).await;
        node.restart().await;
    }
    while let Some(done) = work.join_next().await {
        let done = done.unwrap();
        if kill.is_none() {
            done.expect("no daemon was killed");
        } else if let Err(error) = done {
            assert!(excused(&error), "{error}");
        }
    }
    start.elapsed()
}

/// The life of one pod; what fails is not tried again, as kubelet makes another pod then.
async fn live(
    mut runtime: Runtime,
    pod: PodSandboxConfig,
    container: ContainerConfig,
    remove: bool,
) -> Result<(), Status> {
    let request = RunPodSandboxRequest { config: Some(pod.clone()), ..RunPodSandboxRequest::default() };
    let id = runtime.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id;
    let request =
        CreateContainerRequest { pod_sandbox_id: id.clone(), config: Some(container), sandbox_config: Some(pod) };
    let container = runtime.create_container(request).await?.into_inner().container_id;
    runtime.start_container(StartContainerRequest { container_id: container.clone() }).await?;
    let cmd = ["sh", "-c", "echo here"].map(str::to_owned).into();
    let request = ExecSyncRequest { container_id: container, cmd, timeout: 120 };
    let done = runtime.exec_sync(request).await?.into_inner();
    assert_eq!((done.exit_code, &done.stdout[..]), (0, &b"here\n"[..]));
    if remove {
        runtime.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: id.clone() }).await?;
        runtime.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: id }).await?;
    }
    Ok(())
}

/// Whether a request failed because the daemon was killed: its connection broke, or what it was about is gone.
fn excused(error: &Status) -> bool {
    use tonic::Code::{Cancelled, FailedPrecondition, Internal, NotFound, Unavailable, Unknown};
    matches!(error.code(), Cancelled | FailedPrecondition | Internal | NotFound | Unavailable | Unknown)
}

/// Asks for the removal of all pods, and kills the daemon meanwhile.
async fn removed_while_killed(node: &mut Node, kill: Duration) {
    let mut work = JoinSet::new();
    for pod in listed(&mut node.runtime).await {
        let mut runtime = node.runtime.clone();
        work.spawn(async move { remove(&mut runtime, &pod).await });
    }
    tokio::time::sleep(kill).await;
    node.daemon.end(Signal::SIGKILL);
    node.restarted().await;
    work.join_all().await;
}

async fn listed(runtime: &mut Runtime) -> Vec<String> {
    let pods = runtime.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap().into_inner().items;
    pods.into_iter().map(|pod| pod.id).collect()
}

async fn remove(runtime: &mut Runtime, pod: &str) -> Result<(), Status> {
    runtime.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: pod.into() }).await?;
    runtime.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: pod.into() }).await?;
    Ok(())
}

/// Removes all that is listed until nothing is, as kubelet does.
async fn gone(node: &mut Node) {
    let start = Instant::now();
    let mut last = None;
    loop {
        let pods = listed(&mut node.runtime).await;
        if pods.is_empty() {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "pods do not go: {pods:?}: {last:?}\n{}", node.daemon.log());
        let mut work = JoinSet::new();
        for pod in pods {
            let mut runtime = node.runtime.clone();
            work.spawn(async move { remove(&mut runtime, &pod).await });
        }
        for removed in work.join_all().await {
            if let Err(error) = removed {
                eprintln!("remove: {error}");
                last = Some(error);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    let containers = node.runtime.list_containers(ListContainersRequest::default()).await.unwrap().into_inner();
    assert_eq!(containers.containers, vec![], "containers without a pod");
}
