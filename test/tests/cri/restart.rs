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
