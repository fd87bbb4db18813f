use std::{fs, time::Duration};

use containerd_api_cri::v1 as own;
use k8s_cri::v1::*;
use tonic::Code;

use crate::node::{Node, connect, skip};

#[tokio::test]
async fn the_node_tells_how_it_is() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let version = node.runtime.version(VersionRequest::default()).await.unwrap().into_inner();
    assert_eq!((version.runtime_name.as_str(), version.runtime_api_version.as_str()), ("containerd", "v1"));
    let status = node.runtime.status(StatusRequest { verbose: true }).await.unwrap().into_inner();
    for condition in &status.status.as_ref().unwrap().conditions {
        assert!(condition.status, "{condition:?}");
    }
    let handlers: Vec<&str> = status.runtime_handlers.iter().map(|handler| handler.name.as_str()).collect();
    assert_eq!(handlers, ["", "runc"]);
    assert!(status.features.unwrap().supplemental_groups_policy);
    for key in ["config", "cniconfig"] {
        serde_json::from_str::<serde_json::Value>(&status.info[key]).unwrap();
    }
    let config = node.runtime.runtime_config(RuntimeConfigRequest {}).await.unwrap().into_inner();
    assert_eq!(config.linux.unwrap().cgroup_driver(), CgroupDriver::Cgroupfs);

    fs::remove_file(node.world.dir().join("net.d/10-test.conflist")).unwrap();
    let directory = node.world.dir().join("net.d").display().to_string();
    for attempt in 0.. {
        let status = node.runtime.status(StatusRequest::default()).await.unwrap().into_inner().status.unwrap();
        let network = status.conditions.iter().find(|condition| condition.r#type == "NetworkReady").unwrap();
        if !network.status {
            assert!(network.message.contains(&directory) && !network.reason.is_empty(), "{network:?}");
            break;
        }
        assert!(attempt < 1500, "the network is gone and nobody says so");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let request = RunPodSandboxRequest { config: Some(node.pod()), ..Default::default() };
    let error = node.runtime.run_pod_sandbox(request).await.unwrap_err();
    assert!(error.message().contains(&directory), "{error}");
    node.assert_clean();
}

#[tokio::test]
async fn lists_are_filtered_and_streamed() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let labels = |value: &str| [("tier".to_owned(), value.to_owned())].into();
    let front_config = PodSandboxConfig { labels: labels("front"), ..node.pod() };
    let front = node.run_pod(&front_config).await;
    let back_config = PodSandboxConfig { labels: labels("back"), ..node.pod() };
    let back = node.run_pod(&back_config).await;
    let config = ContainerConfig { labels: labels("front"), ..node.container("sleep 1000") };
    let runs = node.run(&front, &front_config, config).await;
    let config = node.container("true");
    let made = node.create(&front, &front_config, config).await.unwrap();
    let config = node.container("true");
    let ended = node.run(&back, &back_config, config).await;
    node.ended(&ended).await;
    node.runtime.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: back.clone() }).await.unwrap();

    let state = |state: PodSandboxState| Some(PodSandboxStateValue { state: state.into() });
    let pods = [
        (PodSandboxFilter::default(), vec![&front, &back]),
        (PodSandboxFilter { id: front[..12].into(), ..Default::default() }, vec![&front]),
        (PodSandboxFilter { id: "zzz".into(), ..Default::default() }, vec![]),
        (PodSandboxFilter { label_selector: labels("back"), ..Default::default() }, vec![&back]),
        (PodSandboxFilter { state: state(PodSandboxState::SandboxReady), ..Default::default() }, vec![&front]),
        (PodSandboxFilter { state: state(PodSandboxState::SandboxNotready), ..Default::default() }, vec![&back]),
        (PodSandboxFilter { id: front.clone(), label_selector: labels("back"), ..Default::default() }, vec![]),
    ];
    for (filter, mut wanted) in pods {
        let request = ListPodSandboxRequest { filter: Some(filter.clone()) };
        let listed = node.runtime.list_pod_sandbox(request).await.unwrap().into_inner().items;
        let mut ids: Vec<&String> = listed.iter().map(|item| &item.id).collect();
        ids.sort();
        wanted.sort();
        assert_eq!(ids, wanted, "{filter:?}");
    }
    let state = |state: ContainerState| Some(ContainerStateValue { state: state.into() });
    let containers = [
        (ContainerFilter::default(), vec![&runs, &made, &ended]),
        (ContainerFilter { id: made[..12].into(), ..Default::default() }, vec![&made]),
        (ContainerFilter { pod_sandbox_id: front[..12].into(), ..Default::default() }, vec![&runs, &made]),
        (ContainerFilter { label_selector: labels("front"), ..Default::default() }, vec![&runs]),
        (ContainerFilter { state: state(ContainerState::ContainerRunning), ..Default::default() }, vec![&runs]),
        (ContainerFilter { state: state(ContainerState::ContainerCreated), ..Default::default() }, vec![&made]),
        (ContainerFilter { state: state(ContainerState::ContainerExited), ..Default::default() }, vec![&ended]),
        (ContainerFilter { pod_sandbox_id: "zzz".into(), ..Default::default() }, vec![]),
    ];
    for (filter, mut wanted) in containers {
        let request = ListContainersRequest { filter: Some(filter.clone()) };
        let listed = node.runtime.list_containers(request).await.unwrap().into_inner().containers;
        let mut ids: Vec<&String> = listed.iter().map(|item| &item.id).collect();
        ids.sort();
        wanted.sort();
        assert_eq!(ids, wanted, "{filter:?}");
    }
    // An id that is the start of one is that one.
    assert_eq!(node.status(&runs[..16]).await.id, runs);
    assert_eq!(node.pod_status(&front[..16]).await.id, front);
    streams_tell_the_same(&mut node).await;
    node.remove_pod(&front).await;
    node.finish(&back).await;
}

/// The lists in parts, which are newer than the messages of `k8s-cri`.
async fn streams_tell_the_same(node: &mut Node) {
    let mut newer = own::runtime_service_client::RuntimeServiceClient::new(connect(&node.daemon).await);
    let mut stream = newer.stream_pod_sandboxes(own::StreamPodSandboxesRequest::default()).await.unwrap().into_inner();
    let mut pods = Vec::new();
    while let Some(part) = stream.message().await.unwrap() {
        pods.extend(part.pod_sandboxes.into_iter().map(|pod| pod.id));
    }
    let mut stream = newer.stream_containers(own::StreamContainersRequest::default()).await.unwrap().into_inner();
    let mut containers = Vec::new();
    while let Some(part) = stream.message().await.unwrap() {
        containers.extend(part.containers.into_iter().map(|container| container.id));
    }
    let mut stream =
        newer.stream_container_stats(own::StreamContainerStatsRequest::default()).await.unwrap().into_inner();
    let mut stats = 0;
    while let Some(part) = stream.message().await.unwrap() {
        stats += part.container_stats.len();
    }
    let mut stream =
        newer.stream_pod_sandbox_stats(own::StreamPodSandboxStatsRequest::default()).await.unwrap().into_inner();
    let mut pod_stats = 0;
    while let Some(part) = stream.message().await.unwrap() {
        pod_stats += part.pod_sandbox_stats.len();
    }
    let mut stream =
        newer.stream_pod_sandbox_metrics(own::StreamPodSandboxMetricsRequest::default()).await.unwrap().into_inner();
    let mut metrics = 0;
    while let Some(part) = stream.message().await.unwrap() {
        metrics += part.pod_sandbox_metrics.len();
    }
    assert_eq!((pods.len(), containers.len(), stats, pod_stats, metrics), (2, 3, 1, 1, 1));
}

#[tokio::test]
async fn more_is_told_to_people_and_what_cannot_be_done_is_said() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let config = node.container("sleep 1000");
    let id = node.run(&pod, &pod_config, config).await;
    let info = node.information(&id).await;
    assert!(info["pid"].as_i64().unwrap() > 1);
    assert_eq!(info["sandboxID"], pod);
    assert_eq!(info["snapshotter"], "overlayfs");
    assert_eq!(info["runtimeSpec"]["process"]["args"][2], "sleep 1000");
    assert_eq!(info["config"]["command"][0], "sh");
    let request = PodSandboxStatusRequest { pod_sandbox_id: pod.clone(), verbose: true };
    let status = node.runtime.pod_sandbox_status(request).await.unwrap().into_inner();
    let info: serde_json::Value = serde_json::from_str(&status.info["info"]).unwrap();
    assert!(info["pid"].as_i64().unwrap() > 1);
    assert_eq!(info["config"]["metadata"]["name"], pod_config.metadata.as_ref().unwrap().name);
    let plain =
        node.runtime.pod_sandbox_status(PodSandboxStatusRequest { pod_sandbox_id: pod.clone(), verbose: false });
    assert!(plain.await.unwrap().into_inner().info.is_empty());

    let request = CheckpointContainerRequest { container_id: id, location: "/tmp/x".into(), timeout: 1 };
    let error = node.runtime.checkpoint_container(request).await.unwrap_err();
    assert!(error.code() == Code::Unimplemented && error.message().contains("checkpoint"), "{error}");
    node.finish(&pod).await;
}
