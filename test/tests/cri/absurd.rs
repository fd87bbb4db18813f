//! Requests with values that no caller sends who knows what it does, many of them, made by chance that is the same in
//! each run.

use std::time::Duration;

use k8s_cri::v1::*;
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use tonic::{Code, Status};

use crate::node::{Node, skip};

/// A text that is no good for most fields.
fn text() -> impl Strategy<Value = String> {
    let known =
        ["", "\0", "..", "../../etc/passwd", "/", "a/../b", " ", "-", "\n", "%s", "\u{202e}x", "a\0b", "//", "."];
    prop_oneof![
        prop::sample::select(known.to_vec()).prop_map(str::to_owned),
        Just("x".repeat(5_000)),
        Just("x".repeat(300_000)),
        "\\PC{0,40}",
    ]
}

fn number() -> impl Strategy<Value = i64> {
    let known = [i64::MIN, -1, 0, 1, 7, 65_536, i64::from(i32::MAX), i64::from(i32::MIN), i64::MAX];
    prop_oneof![prop::sample::select(known.to_vec()), any::<i64>()]
}

/// One change of a request: which, and with what.
type Change = (u8, String, i64);

fn changes() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec((any::<u8>(), text(), number()), 1..3)
}

fn change_pod(config: &mut PodSandboxConfig, (which, text, number): &Change) {
    let text = || text.clone();
    let small = *number as i32;
    let metadata = config.metadata.as_mut();
    let linux = config.linux.get_or_insert_default();
    match which % 16 {
        0 => config.metadata = None,
        1 => metadata.into_iter().for_each(|metadata| metadata.name = text()),
        2 => metadata.into_iter().for_each(|metadata| metadata.namespace = text()),
        3 => metadata.into_iter().for_each(|metadata| metadata.uid = text()),
        4 => config.hostname = text(),
        5 => config.log_directory = text(),
        6 => {
            config.dns_config = Some(DnsConfig { servers: vec![text()], searches: vec![text()], options: vec![text()] })
        }
        7 => config.port_mappings.push(PortMapping { protocol: small, ..Default::default() }),
        8 => config.port_mappings.push(PortMapping {
            container_port: small,
            host_port: small,
            host_ip: text(),
            ..Default::default()
        }),
        9 => linux.cgroup_parent = text(),
        10 => {
            linux.sysctls.insert(text(), text());
        }
        11 => options(linux).network = small,
        12 => options(linux).pid = small,
        13 => {
            options(linux).userns_options = Some(UserNamespace {
                mode: small,
                uids: vec![IdMapping { host_id: *number as u32, container_id: 0, length: *number as u32 }],
                gids: Vec::new(),
            })
        }
        14 => {
            config.labels.insert(text(), text());
        }
        _ => {
            config.annotations.insert("kubernetes.io/ingress-bandwidth".into(), text());
        }
    }
}

fn options(linux: &mut LinuxPodSandboxConfig) -> &mut NamespaceOption {
    linux.security_context.get_or_insert_default().namespace_options.get_or_insert_default()
}

fn change_container(config: &mut ContainerConfig, (which, text, number): &Change) {
    let text = || text.clone();
    let small = *number as i32;
    let linux = config.linux.get_or_insert_default();
    let security = linux.security_context.get_or_insert_default();
    let resources = linux.resources.get_or_insert_default();
    match which % 28 {
        0 => config.metadata = None,
        1 => config.metadata.iter_mut().for_each(|metadata| metadata.name = text()),
        2 => config.image = None,
        3 => config.image.iter_mut().for_each(|image| image.image = text()),
        4 => config.command = vec![text()],
        5 => config.args = vec![text(); 3],
        6 => config.working_dir = text(),
        7 => config.envs.push(KeyValue { key: text(), value: text() }),
        8 => config.mounts.push(Mount { container_path: text(), host_path: "/tmp".into(), ..Default::default() }),
        9 => config.mounts.push(Mount { container_path: "/x".into(), host_path: text(), ..Default::default() }),
        10 => config.mounts.push(Mount {
            container_path: "/x".into(),
            host_path: "/tmp".into(),
            propagation: small,
            ..Default::default()
        }),
        11 => config.devices.push(Device { container_path: text(), host_path: text(), permissions: text() }),
        12 => config.log_path = text(),
        13 => security.run_as_user = Some(Int64Value { value: *number }),
        14 => security.run_as_username = text(),
        15 => security.run_as_group = Some(Int64Value { value: *number }),
        16 => security.supplemental_groups = vec![*number],
        17 => security.capabilities = Some(Capability { add_capabilities: vec![text()], ..Default::default() }),
        18 => security.seccomp = Some(SecurityProfile { profile_type: small, localhost_ref: text() }),
        19 => security.masked_paths = vec![text()],
        20 => security.namespace_options.get_or_insert_default().pid = small,
        21 => security.namespace_options.get_or_insert_default().target_id = text(),
        22 => resources.cpu_quota = *number,
        23 => resources.memory_limit_in_bytes = *number,
        24 => resources.cpuset_cpus = text(),
        25 => resources.hugepage_limits = vec![HugepageLimit { page_size: text(), limit: *number as u64 }],
        26 => resources.oom_score_adj = *number,
        _ => security.supplemental_groups_policy = small,
    }
}

/// Whether a refusal is one of those that tell the caller that the request is wrong.
fn is_refusal(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument | Code::NotFound | Code::FailedPrecondition | Code::AlreadyExists | Code::Unimplemented
    ) && !status.message().is_empty()
}

async fn bounded<T>(what: &impl std::fmt::Debug, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(100), work).await;
    done.unwrap_or_else(|_| panic!("no answer: {what:?}"))
}

/// The start of what a request looks like.
fn short(changes: &[Change]) -> String {
    format!("{changes:?}").chars().take(300).collect()
}

#[tokio::test]
async fn pods_that_make_no_sense_are_refused_and_leave_nothing() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let mut runner = TestRunner::deterministic();
    let mut wrong = Vec::new();
    for _ in 0..100 {
        let changes = changes().new_tree(&mut runner).unwrap().current();
        let mut config = node.pod();
        changes.iter().for_each(|change| change_pod(&mut config, change));
        let request = RunPodSandboxRequest { config: Some(config), ..Default::default() };
        match bounded(&changes, node.runtime.run_pod_sandbox(request)).await {
            Ok(ran) => node.remove_pod(&ran.into_inner().pod_sandbox_id).await,
            Err(status) if is_refusal(&status) => {}
            Err(status) => wrong.push(format!("{:?} {:.300}: {}", status.code(), status.message(), short(&changes))),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(!node.daemon.log().contains("panicked"));
    node.assert_clean();
}

#[tokio::test]
async fn containers_that_make_no_sense_are_refused_and_leave_nothing() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let mut runner = TestRunner::deterministic();
    let mut wrong = Vec::new();
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    for _ in 0..200 {
        let changes = changes().new_tree(&mut runner).unwrap().current();
        let mut config = node.container("true");
        changes.iter().for_each(|change| change_container(&mut config, change));
        match bounded(&changes, node.create(&pod, &pod_config, config)).await {
            Ok(id) => {
                // It may well not start; then it says why.
                let start = StartContainerRequest { container_id: id.clone() };
                if let Err(error) = bounded(&changes, node.runtime.start_container(start)).await {
                    assert!(!error.message().is_empty(), "{changes:?}");
                }
                let remove = RemoveContainerRequest { container_id: id };
                bounded(&changes, node.runtime.remove_container(remove)).await.unwrap();
            }
            Err(status) if is_refusal(&status) => {}
            Err(status) => wrong.push(format!("{:?} {:.300}: {}", status.code(), status.message(), short(&changes))),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(!node.daemon.log().contains("panicked"));
    node.finish(&pod).await;
}

#[tokio::test]
async fn ids_that_make_no_sense_are_not_found() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let config = node.container("sleep 1000");
    let id = node.run(&pod, &pod_config, config).await;
    let mut runner = TestRunner::deterministic();
    for _ in 0..60 {
        let (text, number) = (text(), number()).new_tree(&mut runner).unwrap().current();
        let container_id = text.clone();
        let refused = |what: &str, status: Status| {
            assert!(is_refusal(&status), "{what} of {:.60?}: {status:.300?}", text);
        };
        let request = ContainerStatusRequest { container_id: container_id.clone(), verbose: true };
        refused("status", node.runtime.container_status(request).await.unwrap_err());
        let request = PodSandboxStatusRequest { pod_sandbox_id: container_id.clone(), verbose: true };
        refused("pod status", node.runtime.pod_sandbox_status(request).await.unwrap_err());
        let request = StartContainerRequest { container_id: container_id.clone() };
        refused("start", node.runtime.start_container(request).await.unwrap_err());
        let request = ExecSyncRequest { container_id: container_id.clone(), cmd: vec![text.clone()], timeout: number };
        refused("exec", node.runtime.exec_sync(request).await.unwrap_err());
        let request = ReopenContainerLogRequest { container_id: container_id.clone() };
        refused("reopen", node.runtime.reopen_container_log(request).await.unwrap_err());
        let request = UpdateContainerResourcesRequest { container_id: container_id.clone(), ..Default::default() };
        refused("update", node.runtime.update_container_resources(request).await.unwrap_err());
        // Those that want it gone have what they want.
        let request = StopContainerRequest { container_id: container_id.clone(), timeout: number };
        if let Err(status) = node.runtime.stop_container(request).await {
            refused("stop", status);
        }
        if let Err(status) = node.runtime.remove_container(RemoveContainerRequest { container_id }).await {
            refused("remove", status);
        }
        // Commands in a container that is there.
        let timeout = number.clamp(i64::MIN, 5);
        let request = ExecSyncRequest { container_id: id.clone(), cmd: vec![text.clone()], timeout };
        if let Err(status) = bounded(&text, node.runtime.exec_sync(request)).await {
            assert!(!status.message().is_empty());
        }
    }
    assert_eq!(node.status(&id).await.state(), ContainerState::ContainerRunning);
    assert!(!node.daemon.log().contains("panicked"));
    node.finish(&pod).await;
}
