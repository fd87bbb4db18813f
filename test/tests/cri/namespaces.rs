use std::{
    fs,
    io::Read,
    net::TcpStream,
    process::Command,
    time::{Duration, Instant},
};

use containerd_test::Output;
use k8s_cri::v1::*;
use tonic::Code;

use crate::node::{Node, secured, skip};

fn security(options: &NamespaceOption) -> LinuxContainerSecurityContext {
    LinuxContainerSecurityContext { namespace_options: Some(options.clone()), ..Default::default() }
}

fn of_pod(options: &NamespaceOption) -> LinuxPodSandboxConfig {
    let context = LinuxSandboxSecurityContext { namespace_options: Some(options.clone()), ..Default::default() };
    LinuxPodSandboxConfig { security_context: Some(context), ..Default::default() }
}

fn ours(kind: &str) -> String {
    fs::read_link(format!("/proc/thread-self/ns/{kind}")).unwrap().display().to_string()
}

const PID: &str = "readlink /proc/self/ns/pid";

#[tokio::test]
async fn processes_are_seen_as_far_as_the_pid_mode_says() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let option = |mode: NamespaceMode, target: &str| NamespaceOption {
        pid: mode.into(),
        target_id: target.into(),
        ..NamespaceOption::default()
    };
    let mut containers = Vec::new();
    for mode in [NamespaceMode::Pod, NamespaceMode::Pod, NamespaceMode::Container, NamespaceMode::Container] {
        let config = secured(node.container("sleep 1000"), security(&option(mode, "")));
        containers.push(node.run(&pod, &pod_config, config).await);
    }
    let target = option(NamespaceMode::Target, &containers[2]);
    let config = secured(node.container("sleep 1000"), security(&target));
    containers.push(node.run(&pod, &pod_config, config).await);
    let mut seen = Vec::new();
    for container in &containers {
        seen.push(node.output(container, PID).await.trim().to_owned());
    }
    assert_eq!(seen[0], seen[1], "of the pod");
    assert!(seen[0] != seen[2] && seen[2] != seen[3] && seen[0] != seen[3], "of one container: {seen:?}");
    assert_eq!(seen[4], seen[2], "the target's");
    assert!(!seen.contains(&ours("pid")), "{seen:?}");
    let first = node.output(&containers[2], "cat /proc/1/cmdline").await;
    assert!(first.starts_with("sh") || first.starts_with("sleep"), "{first:?}");

    let ended = node.container("true");
    let ended = node.run(&pod, &pod_config, ended).await;
    node.ended(&ended).await;
    for (target, code) in [("no-such", Code::NotFound), (ended.as_str(), Code::FailedPrecondition)] {
        let config = secured(node.container("true"), security(&option(NamespaceMode::Target, target)));
        let error = node.refused(&pod, &pod_config, config).await;
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains("target_id"), "{error}");
    }
    node.finish(&pod).await;
}

#[tokio::test]
async fn a_pod_shares_namespaces_with_the_host_where_it_asks_for_that() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let host = NamespaceMode::Node.into();
    let options = NamespaceOption { network: host, pid: host, ipc: host, ..NamespaceOption::default() };
    let pod_config = PodSandboxConfig { linux: Some(of_pod(&options)), ..node.pod() };
    let pod = node.run_pod(&pod_config).await;
    let config = secured(node.container("sleep 1000"), security(&options));
    let container = node.run(&pod, &pod_config, config).await;
    for kind in ["pid", "ipc", "net", "uts"] {
        let theirs = node.output(&container, &format!("readlink /proc/self/ns/{kind}")).await;
        assert_eq!(theirs.trim(), ours(kind), "{kind}");
    }
    node.remove_pod(&pod).await;

    // And else none.
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let config = secured(node.container("sleep 1000"), security(&NamespaceOption::default()));
    let container = node.run(&pod, &pod_config, config).await;
    for kind in ["pid", "ipc", "net", "uts", "mnt"] {
        let theirs = node.output(&container, &format!("readlink /proc/self/ns/{kind}")).await;
        assert_ne!(theirs.trim(), ours(kind), "{kind}");
    }
    node.finish(&pod).await;
}

#[tokio::test]
async fn names_resolvers_and_kernel_settings_are_the_pods() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let dns = DnsConfig {
        servers: vec!["10.0.0.53".into(), "fd00::53".into()],
        searches: vec!["test.svc.local".into(), "local".into()],
        options: vec!["ndots:5".into()],
    };
    let sysctls = [("kernel.shm_rmid_forced", "1"), ("net.ipv4.ip_local_port_range", "20000 30000")];
    let linux = LinuxPodSandboxConfig {
        sysctls: sysctls.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..Default::default()
    };
    let pod_config =
        PodSandboxConfig { dns_config: Some(dns), hostname: "name-of-pod".into(), linux: Some(linux), ..node.pod() };
    let pod = node.run_pod(&pod_config).await;
    let container = node.container("sleep 1000");
    let container = node.run(&pod, &pod_config, container).await;
    assert_eq!(
        node.output(&container, "cat /etc/resolv.conf").await,
        "search test.svc.local local\nnameserver 10.0.0.53\nnameserver fd00::53\noptions ndots:5\n"
    );
    assert_eq!(node.output(&container, "hostname; cat /etc/hostname").await, "name-of-pod\nname-of-pod\n");
    assert_eq!(node.output(&container, "cat /proc/sys/kernel/shm_rmid_forced").await, "1\n");
    assert_eq!(node.output(&container, "cat /proc/sys/net/ipv4/ip_local_port_range").await, "20000\t30000\n");
    // Without privileges a container may bind low ports and ping.
    assert_eq!(node.output(&container, "cat /proc/sys/net/ipv4/ip_unprivileged_port_start").await, "0\n");
    node.remove_pod(&pod).await;

    // Settings of the host cannot be set.
    let mut request = RunPodSandboxRequest { config: Some(node.pod()), ..Default::default() };
    for name in ["kernel.panic", "../../etc/passwd", "net.ipv4.no_such"] {
        let linux = request.config.as_mut().unwrap().linux.as_mut().unwrap();
        linux.sysctls = [(name.to_owned(), "1".to_owned())].into();
        let error = node.runtime.run_pod_sandbox(request.clone()).await.unwrap_err();
        assert!(error.message().contains(name.rsplit(['.', '/']).next().unwrap()), "{error}");
    }
    node.assert_clean();
}

#[tokio::test]
async fn ports_of_the_host_reach_the_pod() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    if Output::of(Command::new("iptables").args(["-t", "nat", "-L", "-n"])).code != 0 {
        eprintln!("skipped: iptables cannot translate addresses here");
        return;
    }
    let mapping = PortMapping { container_port: 8080, host_port: 18080, ..PortMapping::default() };
    let pod_config = PodSandboxConfig { port_mappings: vec![mapping], ..node.pod() };
    let pod = node.run_pod(&pod_config).await;
    let container = node.container("while true; do echo greetings | nc -l -p 8080; done");
    node.run(&pod, &pod_config, container).await;
    // Of the bridge, which is the host's.
    let start = Instant::now();
    let greeting = loop {
        let mut text = String::new();
        if let Ok(mut stream) = TcpStream::connect("10.88.0.1:18080") {
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let _ = stream.read_to_string(&mut text);
        }
        if !text.is_empty() {
            break text;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "nothing answers");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(greeting, "greetings\n");
    node.remove_pod(&pod).await;
    let rules = Output::of(Command::new("iptables-save").args(["-t", "nat"])).stdout;
    assert!(!rules.contains("18080"), "{rules}");
    node.assert_clean();
}
