use std::{fs, time::Duration};

use k8s_cri::v1::*;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::node::{Node, skip};

#[tokio::test]
async fn a_cni_plugin_that_crashes_or_talks_nonsense_leaves_nothing() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    node.moody_network().await;
    let config = node.pod();
    let request = RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
    for (mood, word) in [("crash", "signal"), ("garbage", "json"), ("fail", "in a bad mood")] {
        node.set_mood("ADD", mood);
        let error = node.runtime.run_pod_sandbox(request.clone()).await.unwrap_err();
        let message = error.message().to_lowercase();
        assert!(message.contains("moody") && message.contains(word), "{mood}: {error}");
        assert!(fs::exists(node.world.dir().join("called.DEL")).unwrap(), "what ADD began is taken back");
        fs::remove_file(node.world.dir().join("called.DEL")).unwrap();
        node.assert_clean();
    }
    node.set_mood("ADD", "");
    let pod = node.run_pod(&config).await;
    assert_eq!(node.pod_status(&pod).await.network.unwrap().ip, "10.99.0.2");
    node.finish(&pod).await;
}

#[tokio::test]
async fn a_network_that_cannot_be_detached_keeps_the_pod_until_it_can() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    node.moody_network().await;
    let config = node.pod();
    let pod = node.run_pod(&config).await;
    let container = node.container("sleep 1000");
    let container = node.run(&pod, &config, container).await;
    for mood in ["fail", "crash"] {
        node.set_mood("DEL", mood);
        let request = StopPodSandboxRequest { pod_sandbox_id: pod.clone() };
        let error = node.runtime.stop_pod_sandbox(request).await.unwrap_err();
        assert!(error.message().contains("moody"), "{error}");
        let request = RemovePodSandboxRequest { pod_sandbox_id: pod.clone() };
        node.runtime.remove_pod_sandbox(request).await.unwrap_err();
        assert_eq!(node.pod_status(&pod).await.state(), PodSandboxState::SandboxNotready);
        assert_eq!(
            node.status(&container).await.state(),
            ContainerState::ContainerExited,
            "it is stopped all the same"
        );
    }
    // A restart changes nothing.
    node.restart().await;
    assert_eq!(node.pod_status(&pod).await.state(), PodSandboxState::SandboxNotready);
    let request = StopPodSandboxRequest { pod_sandbox_id: pod.clone() };
    node.runtime.stop_pod_sandbox(request).await.unwrap_err();
    node.set_mood("DEL", "");
    // Also when its namespace is gone.
    node.finish(&pod).await;
}

#[tokio::test]
async fn a_caller_that_gives_up_on_a_hanging_plugin_finds_its_pod_later() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    node.moody_network().await;
    node.set_mood("ADD", "hang");
    let config = node.pod();
    let request = RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
    let mut runtime = node.runtime.clone();
    let first = request.clone();
    let gives_up = tokio::spawn(async move { runtime.run_pod_sandbox(first).await });
    node.appears("called.ADD").await;
    gives_up.abort();
    // Others are served meanwhile, and the pod is not there yet.
    let listed = node.runtime.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap().into_inner().items;
    assert_eq!(listed.len(), 0);
    let mut runtime = node.runtime.clone();
    let again = tokio::spawn(async move { runtime.run_pod_sandbox(request).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    node.set_mood("ADD", "");
    let pod = again.await.unwrap().unwrap().into_inner().pod_sandbox_id;
    let listed = node.runtime.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap().into_inner().items;
    assert_eq!(listed.iter().map(|item| &item.id).collect::<Vec<_>>(), [&pod], "one pod for both requests");
    node.finish(&pod).await;
}

#[tokio::test]
async fn a_pod_whose_shim_is_killed_is_not_ready_and_can_be_removed() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    for while_down in [false, true] {
        let config = node.pod();
        let pod = node.run_pod(&config).await;
        let runs = node.container("sleep 1000");
        let runs = node.run(&pod, &config, runs).await;
        let ended = node.container("exit 3");
        let ended = node.run(&pod, &config, ended).await;
        node.ended(&ended).await;
        if while_down {
            node.daemon.end(Signal::SIGKILL);
        }
        let shims = node.shims();
        assert_eq!(shims.len(), 1);
        kill(Pid::from_raw(shims[0]), Signal::SIGKILL).unwrap();
        if while_down {
            node.restarted().await;
        }
        node.pod_becomes(&pod, PodSandboxState::SandboxNotready).await;
        assert_ne!(node.ended(&runs).await.exit_code, 0, "nobody knows, so it did not succeed");
        assert_eq!(node.status(&ended).await.exit_code, 3, "known before");
        let exec = ExecSyncRequest { container_id: runs, cmd: vec!["true".into()], timeout: 10 };
        assert_eq!(node.runtime.exec_sync(exec).await.unwrap_err().code(), tonic::Code::FailedPrecondition);
        let refused = node.container("true");
        let error = node.refused(&pod, &config, refused).await;
        assert_eq!(error.code(), tonic::Code::FailedPrecondition);
        node.remove_pod(&pod).await;
        node.assert_clean();
    }
}
