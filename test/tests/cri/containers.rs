use k8s_cri::v1::*;

use crate::node::{Node, skip};

#[tokio::test]
async fn a_container_from_its_making_to_its_removal() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let mut config = node.container("echo out; echo err >&2; echo -n rest; exit 3");
    config.envs.push(KeyValue { key: "COLOUR".into(), value: "red".into() });
    config.labels.insert("app".into(), "test".into());
    let id = node.create(&pod, &pod_config, config.clone()).await.unwrap();
    let made = node.status(&id).await;
    assert_eq!(made.state(), ContainerState::ContainerCreated);
    assert!(made.created_at > 0 && made.started_at == 0 && made.finished_at == 0);
    node.runtime.start_container(StartContainerRequest { container_id: id.clone() }).await.unwrap();
    let ended = node.ended(&id).await;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (3, "Error"));
    assert!(ended.finished_at >= ended.started_at && ended.started_at >= ended.created_at);
    assert_eq!(ended.labels["app"], "test");
    // Lines of two streams have no order among them.
    let mut lines = node.log(&ended);
    lines.sort();
    // The last line has no end.
    assert_eq!(lines, ["stderr F err", "stdout F out", "stdout P rest"]);

    let again = node.runtime.start_container(StartContainerRequest { container_id: id.clone() }).await.unwrap_err();
    assert_eq!(again.code(), tonic::Code::FailedPrecondition);
    node.runtime.remove_container(RemoveContainerRequest { container_id: id.clone() }).await.unwrap();
    node.runtime.remove_container(RemoveContainerRequest { container_id: id.clone() }).await.unwrap();
    let gone = ContainerStatusRequest { container_id: id, verbose: false };
    assert_eq!(node.runtime.container_status(gone).await.unwrap_err().code(), tonic::Code::NotFound);
    node.remove_pod(&pod).await;
    node.assert_clean();
}

#[tokio::test]
async fn stopping_sends_the_signal_then_kills() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let polite = node.container("trap 'exit 7' TERM; while true; do sleep 0.05; done");
    let polite = node.run(&pod, &pod_config, polite).await;
    let stubborn = node.container("trap '' TERM; while true; do sleep 0.05; done");
    let stubborn = node.run(&pod, &pod_config, stubborn).await;
    for (id, timeout) in [(&polite, 60), (&stubborn, 1)] {
        let request = StopContainerRequest { container_id: id.clone(), timeout };
        node.runtime.stop_container(request.clone()).await.unwrap();
        node.runtime.stop_container(request).await.unwrap();
    }
    assert_eq!(node.status(&polite).await.exit_code, 7);
    assert_eq!(node.status(&stubborn).await.exit_code, 137);
    node.remove_pod(&pod).await;
    node.assert_clean();
}

#[tokio::test]
async fn commands_answer_their_output_and_exit_code() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let container = node.container("sleep 1000");
    let container = node.run(&pod, &pod_config, container).await;
    let done = node.exec(&container, "echo out; echo err >&2; exit 5").await;
    assert_eq!((done.exit_code, &done.stdout[..], &done.stderr[..]), (5, &b"out\n"[..], &b"err\n"[..]));
    let slow = ExecSyncRequest {
        container_id: container.clone(),
        cmd: ["sleep", "1000"].map(str::to_owned).into(),
        timeout: 1,
    };
    assert_eq!(node.runtime.exec_sync(slow).await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
    let left = node.output(&container, "ps | grep -c '[s]leep 1000'").await;
    assert_eq!(left.trim(), "1", "the command that took too long is gone, the container's own is there");
    let missing = ExecSyncRequest { container_id: container, cmd: vec!["/no/such".into()], timeout: 10 };
    assert!(node.runtime.exec_sync(missing).await.is_err());
    node.remove_pod(&pod).await;
    node.assert_clean();
}
