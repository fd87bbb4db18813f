use containerd_test::eventually;
use k8s_cri::v1::*;

use crate::node::{Node, skip};

#[tokio::test]
async fn a_pod_has_a_network_and_goes_without_a_trace() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let config = PodSandboxConfig { hostname: "weather".into(), ..node.pod() };
    let pod = node.run_pod(&config).await;
    let status = node.pod_status(&pod).await;
    assert_eq!(status.state(), PodSandboxState::SandboxReady);
    assert_eq!(status.metadata, config.metadata);
    let ip = status.network.unwrap().ip;
    assert!(ip.starts_with("10.88."), "{ip}");

    let first = node.container("sleep 1000");
    let first = node.run(&pod, &config, first).await;
    let second = node.container("sleep 1000");
    let second = node.run(&pod, &config, second).await;
    for container in [&first, &second] {
        assert_eq!(node.output(container, "hostname").await.trim(), "weather");
        assert_eq!(node.output(container, "cat /etc/hostname").await.trim(), "weather");
    }
    // Both are in one network and one shared memory.
    node.output(&first, "echo shared > /dev/shm/note").await;
    assert_eq!(node.output(&second, "cat /dev/shm/note").await, "shared\n");
    let address = node.output(&second, "cat /proc/net/fib_trie").await;
    assert!(address.contains(&ip), "{address}");
    assert_eq!(
        node.output(&first, "readlink /proc/self/ns/net").await,
        node.output(&second, "readlink /proc/self/ns/net").await
    );

    let listed = node.runtime.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap().into_inner().items;
    assert_eq!(listed.iter().map(|item| &item.id).collect::<Vec<_>>(), [&pod]);
    node.remove_pod(&pod).await;
    let listed = node.runtime.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap().into_inner().items;
    assert_eq!(listed, []);
    node.assert_clean();
    // Both are idempotent.
    node.remove_pod(&pod).await;
}

#[tokio::test]
async fn one_shim_serves_the_whole_pod() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let config = node.pod();
    let pod = node.run_pod(&config).await;
    for _ in 0..3 {
        let container = node.container("sleep 1000");
        node.run(&pod, &config, container).await;
    }
    let shims = node.world.command_lines().iter().filter(|line| line.contains("containerd-shim-runc-v2")).count();
    assert_eq!(shims, 1);
    node.remove_pod(&pod).await;
    node.assert_clean();
}

#[tokio::test]
async fn a_pod_on_the_hosts_network_has_its_namespaces() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let options = NamespaceOption { network: NamespaceMode::Node.into(), ..NamespaceOption::default() };
    let security = LinuxSandboxSecurityContext { namespace_options: Some(options.clone()), ..Default::default() };
    let linux = LinuxPodSandboxConfig { security_context: Some(security), ..Default::default() };
    let config = PodSandboxConfig { linux: Some(linux), ..node.pod() };
    let pod = node.run_pod(&config).await;
    let mut container = node.container("sleep 1000");
    container.linux.as_mut().unwrap().security_context =
        Some(LinuxContainerSecurityContext { namespace_options: Some(options), ..Default::default() });
    let container = node.run(&pod, &config, container).await;
    let ours = std::fs::read_link("/proc/thread-self/ns/net").unwrap().display().to_string();
    assert_eq!(node.output(&container, "readlink /proc/self/ns/net").await.trim(), ours);
    assert_eq!(node.pod_status(&pod).await.network.unwrap().ip, "");
    node.remove_pod(&pod).await;
    node.assert_clean();
}

#[tokio::test]
async fn a_pod_whose_pause_process_dies_is_not_ready_and_can_be_removed() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let config = node.pod();
    let pod = node.run_pod(&config).await;
    let tasks = node.daemon.go_ctr(&["-n", "k8s.io", "tasks", "ls"]).ok();
    let line = tasks.lines().find(|line| line.starts_with(&pod)).unwrap();
    let pid: i32 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    let mut runtime = node.runtime.clone();
    let handle = tokio::runtime::Handle::current();
    // Not on this thread: it must go on serving the connection.
    let id = pod.clone();
    tokio::task::spawn_blocking(move || {
        eventually("the pod is not ready", || {
            let request = PodSandboxStatusRequest { pod_sandbox_id: id.clone(), verbose: false };
            let status = handle.block_on(runtime.pod_sandbox_status(request)).unwrap().into_inner().status.unwrap();
            (status.state() == PodSandboxState::SandboxNotready).then_some(())
        });
    })
    .await
    .unwrap();
    let refused = node.container("true");
    assert_eq!(node.create(&pod, &config, refused).await.unwrap_err().code(), tonic::Code::FailedPrecondition);
    node.remove_pod(&pod).await;
    node.assert_clean();
}

#[tokio::test]
async fn a_failed_attachment_leaves_nothing_and_says_why() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let broken = r#"{"cniVersion":"1.0.0","name":"test","plugins":[{"type":"bridge","bridge":"cni0","ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/16"}]]}},{"type":"no-such-plugin"}]}"#;
    let good = node.world.dir().join("net.d/10-test.conflist");
    let before = std::fs::read_to_string(&good).unwrap();
    std::fs::write(&good, broken).unwrap();
    let config = node.pod();
    let request = RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
    let error = loop {
        // The new configuration is seen soon.
        match node.runtime.run_pod_sandbox(request.clone()).await {
            Err(error) => break error,
            Ok(ran) => node.remove_pod(&ran.into_inner().pod_sandbox_id).await,
        }
    };
    assert!(error.message().contains("no-such-plugin"), "{error}");
    node.assert_clean();
    std::fs::write(&good, before).unwrap();
    let pod = loop {
        if let Ok(ran) = node.runtime.run_pod_sandbox(request.clone()).await {
            break ran.into_inner().pod_sandbox_id;
        }
    };
    node.remove_pod(&pod).await;
    node.assert_clean();
}
