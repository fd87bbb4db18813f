use k8s_cri::v1::*;

use crate::node::{Node, skip};

#[tokio::test]
async fn after_a_kill_everything_is_as_it_was() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let runs = node.container("while true; do echo tick; sleep 0.05; done");
    let runs = node.run(&pod, &pod_config, runs).await;
    let made = node.container("true");
    let made = node.create(&pod, &pod_config, made).await.unwrap();
    let ends = node.container("until [ -e /dev/shm/go ]; do sleep 0.05; done; exit 9");
    let ends = node.run(&pod, &pod_config, ends).await;
    let before = node.status(&runs).await;
    // It ends while no daemon runs.
    node.output(&runs, "(sleep 1; touch /dev/shm/go) >/dev/null 2>&1 &").await;
    node.daemon.end(nix::sys::signal::Signal::SIGKILL);
    std::thread::sleep(std::time::Duration::from_secs(2));
    node.restarted().await;

    assert_eq!(node.pod_status(&pod).await.state(), PodSandboxState::SandboxReady);
    let after = node.status(&runs).await;
    assert_eq!((after.state(), after.started_at), (ContainerState::ContainerRunning, before.started_at));
    assert_eq!(node.status(&made).await.state(), ContainerState::ContainerCreated);
    let ended = node.ended(&ends).await;
    assert_eq!(ended.exit_code, 9, "the exit while no daemon ran");
    assert_eq!(node.output(&runs, "echo still").await, "still\n");
    // Its log goes on.
    let lines = node.log(&after).len();
    for attempt in 0.. {
        if node.log(&after).len() > lines + 3 {
            break;
        }
        assert!(attempt < 600, "the log does not go on");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    node.runtime.start_container(StartContainerRequest { container_id: made.clone() }).await.unwrap();
    assert_eq!(node.ended(&made).await.exit_code, 0);
    node.remove_pod(&pod).await;
    node.assert_clean();
}

#[tokio::test]
async fn thirty_pods_are_found_again() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let mut starts = tokio::task::JoinSet::new();
    for number in 0..30 {
        let (pod, config) = (node.pod(), node.container("sleep 1000"));
        let mut runtime = node.runtime.clone();
        starts.spawn(async move {
            let request = RunPodSandboxRequest { config: Some(pod.clone()), ..Default::default() };
            let id = runtime.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
            let request =
                CreateContainerRequest { pod_sandbox_id: id.clone(), config: Some(config), sandbox_config: Some(pod) };
            let container = runtime.create_container(request).await.unwrap().into_inner().container_id;
            // Every third is only made.
            if number % 3 != 0 {
                runtime.start_container(StartContainerRequest { container_id: container }).await.unwrap();
            }
            id
        });
    }
    let pods = starts.join_all().await;
    let mut before = state(&mut node).await;
    node.restart().await;
    // The first answer is right.
    let mut after = state(&mut node).await;
    before.sort();
    after.sort();
    assert_eq!(after, before);
    assert_eq!(after.iter().filter(|(_, state)| state == "CONTAINER_RUNNING").count(), 20);
    let running = after.iter().find(|(_, state)| state == "CONTAINER_RUNNING").unwrap().0.clone();
    assert_eq!(node.output(&running, "echo here").await, "here\n");
    let mut removals = tokio::task::JoinSet::new();
    for pod in pods {
        let mut runtime = node.runtime.clone();
        removals.spawn(async move {
            runtime.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: pod }).await.unwrap();
        });
    }
    removals.join_all().await;
    node.assert_clean();
}

/// The state of each pod and container.
async fn state(node: &mut Node) -> Vec<(String, String)> {
    let pods = node.runtime.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap().into_inner().items;
    let containers = node.runtime.list_containers(ListContainersRequest::default()).await.unwrap().into_inner();
    let pods = pods.into_iter().map(|pod| (pod.id.clone(), pod.state().as_str_name().to_owned()));
    let containers = containers.containers.into_iter();
    let containers = containers.map(|container| (container.id.clone(), container.state().as_str_name().to_owned()));
    pods.chain(containers).collect()
}

#[tokio::test]
async fn half_a_pod_is_taken_apart_and_its_name_is_free() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    node.moody_network().await;
    // The image that holds pods is there.
    let first = node.pod();
    let first = node.run_pod(&first).await;
    node.remove_pod(&first).await;
    for call in ["ADD", "DEL"] {
        std::fs::remove_file(node.world.dir().join(format!("called.{call}"))).unwrap();
    }
    node.set_mood("ADD", "hang");
    let config = node.pod();
    let request = RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
    let mut runtime = node.runtime.clone();
    let half = tokio::spawn(async move { runtime.run_pod_sandbox(request).await });
    node.appears("called.ADD").await;
    node.daemon.end(nix::sys::signal::Signal::SIGKILL);
    half.await.unwrap().unwrap_err();
    // What was left of the plugin ends.
    node.set_mood("ADD", "");
    node.restarted().await;
    node.appears("called.DEL").await;
    let listed = node.runtime.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap().into_inner().items;
    assert_eq!(listed.len(), 0);
    // The name is free once the rest is gone too.
    let request = RunPodSandboxRequest { config: Some(config), ..Default::default() };
    for attempt in 0.. {
        match node.runtime.run_pod_sandbox(request.clone()).await {
            Ok(ran) => return node.finish(&ran.into_inner().pod_sandbox_id).await,
            Err(error) => assert!(attempt < 600 && error.code() == tonic::Code::AlreadyExists, "{error}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}
