use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use k8s_cri::v1::*;
use tonic::Code;

use crate::node::{Node, skip};

/// A file of the cgroup of a process: of a controller of version 1, or of version 2.
fn limit(pid: i32, controller: &str, old: &str, new: &str) -> String {
    let table = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let line = table.lines().find(|line| line.split(':').nth(1).unwrap().split(',').any(|name| name == controller));
    let path = match line {
        Some(line) => {
            PathBuf::from(format!("/sys/fs/cgroup/{controller}{}/{old}", line.splitn(3, ':').nth(2).unwrap()))
        }
        None => {
            let line = table.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
            PathBuf::from(format!("/sys/fs/cgroup{line}/{new}"))
        }
    };
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).trim().to_owned()
}

fn limited(mut config: ContainerConfig, resources: LinuxContainerResources) -> ContainerConfig {
    config.linux.as_mut().unwrap().resources = Some(resources);
    config
}

const MEGABYTE: i64 = 1 << 20;

#[tokio::test]
async fn limits_are_set_and_changed() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let resources = LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 50_000,
        cpu_shares: 512,
        memory_limit_in_bytes: 64 * MEGABYTE,
        // No controller of huge pages is needed for a limit of none.
        hugepage_limits: vec![HugepageLimit { page_size: "2MB".into(), limit: 0 }],
        ..Default::default()
    };
    let config = limited(node.container("sleep 1000"), resources.clone());
    let id = node.run(&pod, &pod_config, config.clone()).await;
    let pid = node.pid(&id).await;
    let memory = |pid| limit(pid, "memory", "memory.limit_in_bytes", "memory.max");
    let quota = |pid| limit(pid, "cpu", "cpu.cfs_quota_us", "cpu.max");
    assert_eq!(memory(pid), (64 * MEGABYTE).to_string());
    assert!(quota(pid).starts_with("50000"), "{}", quota(pid));

    let more = LinuxContainerResources { memory_limit_in_bytes: 96 * MEGABYTE, cpu_quota: 75_000, ..resources.clone() };
    let update = |id: &str, linux: &LinuxContainerResources| UpdateContainerResourcesRequest {
        container_id: id.into(),
        linux: Some(linux.clone()),
        ..Default::default()
    };
    node.runtime.update_container_resources(update(&id, &more)).await.unwrap();
    assert_eq!(memory(pid), (96 * MEGABYTE).to_string());
    assert!(quota(pid).starts_with("75000"), "{}", quota(pid));
    let told = node.status(&id).await.resources.unwrap().linux.unwrap();
    assert_eq!((told.memory_limit_in_bytes, told.cpu_quota, told.cpu_shares), (96 * MEGABYTE, 75_000, 512));
    // One that was only made starts with what it was changed to.
    let mut config = config;
    config.metadata.as_mut().unwrap().attempt = 1;
    config.log_path += ".1";
    let made = node.create(&pod, &pod_config, config).await.unwrap();
    node.runtime.update_container_resources(update(&made, &more)).await.unwrap();
    node.runtime.start_container(StartContainerRequest { container_id: made.clone() }).await.unwrap();
    assert_eq!(memory(node.pid(&made).await), (96 * MEGABYTE).to_string());

    let ended = node.container("true");
    let ended = node.run(&pod, &pod_config, ended).await;
    node.ended(&ended).await;
    for (id, code) in [(ended.as_str(), Code::FailedPrecondition), ("no-such", Code::NotFound)] {
        let error = node.runtime.update_container_resources(update(id, &more)).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
    }
    node.finish(&pod).await;
}

#[tokio::test]
async fn a_container_that_runs_out_of_memory_says_so() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let resources = LinuxContainerResources { memory_limit_in_bytes: 16 * MEGABYTE, ..Default::default() };
    let config = limited(node.container("exec tail /dev/zero"), resources);
    let id = node.run(&pod, &pod_config, config).await;
    let ended = node.ended(&id).await;
    assert_eq!(ended.exit_code, 137);
    // The word of the kernel can come after the end.
    for attempt in 0.. {
        let reason = node.status(&id).await.reason;
        if reason == "OOMKilled" {
            break;
        }
        assert!(attempt < 1500, "reason {reason:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // One that is killed for another reason does not.
    let killed = node.container("kill -9 $$");
    let killed = node.run(&pod, &pod_config, killed).await;
    let killed = node.ended(&killed).await;
    assert_eq!((killed.exit_code, killed.reason.as_str()), (137, "Error"));
    node.finish(&pod).await;
}

#[tokio::test]
async fn usage_of_containers_and_pods() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let pod_config = PodSandboxConfig { labels: [("tier".to_owned(), "test".to_owned())].into(), ..node.pod() };
    let pod = node.run_pod(&pod_config).await;
    let mut config = node.container("i=0; while true; do i=$((i+1)); done");
    config.labels.insert("work".into(), "hard".into());
    let busy = node.run(&pod, &pod_config, config).await;
    let idle = node.container("sleep 1000");
    let idle = node.run(&pod, &pod_config, idle).await;
    let value = |value: &Option<UInt64Value>| value.as_ref().map_or(0, |value| value.value);
    for attempt in 0.. {
        let request = ContainerStatsRequest { container_id: busy.clone() };
        let stats = node.runtime.container_stats(request).await.unwrap().into_inner().stats.unwrap();
        let (cpu, memory) = (stats.cpu.unwrap_or_default(), stats.memory.unwrap_or_default());
        assert_eq!(stats.attributes.unwrap().id, busy);
        if value(&cpu.usage_core_nano_seconds) > 0
            && value(&cpu.usage_nano_cores) > 0
            && value(&memory.working_set_bytes) > 0
        {
            assert!(cpu.timestamp > 0 && memory.timestamp > 0);
            let disk = stats.writable_layer.unwrap();
            assert!(fs::exists(disk.fs_id.unwrap().mountpoint).unwrap());
            break;
        }
        assert!(attempt < 1500, "{cpu:?} {memory:?}");
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    let request = PodSandboxStatsRequest { pod_sandbox_id: pod.clone() };
    let stats = node.runtime.pod_sandbox_stats(request).await.unwrap().into_inner().stats.unwrap();
    let linux = stats.linux.unwrap();
    assert_eq!(linux.containers.len(), 2);
    assert_eq!(stats.attributes.unwrap().labels["tier"], "test");
    let network = linux.network.unwrap().default_interface.unwrap();
    assert_eq!(network.name, "eth0");
    assert!(linux.cpu.is_some() && linux.memory.is_some() && value(&linux.process.unwrap().process_count) > 0);

    let filters = [
        (ContainerStatsFilter { id: busy[..10].into(), ..Default::default() }, vec![&busy]),
        (ContainerStatsFilter { pod_sandbox_id: pod.clone(), ..Default::default() }, vec![&busy, &idle]),
        (
            ContainerStatsFilter {
                label_selector: [("work".to_owned(), "hard".to_owned())].into(),
                ..Default::default()
            },
            vec![&busy],
        ),
        (ContainerStatsFilter { id: "no-such".into(), ..Default::default() }, vec![]),
    ];
    for (filter, mut wanted) in filters {
        let request = ListContainerStatsRequest { filter: Some(filter) };
        let listed = node.runtime.list_container_stats(request).await.unwrap().into_inner().stats;
        let mut ids: Vec<String> = listed.into_iter().map(|stats| stats.attributes.unwrap().id).collect();
        ids.sort();
        wanted.sort();
        assert_eq!(ids.iter().collect::<Vec<_>>(), wanted);
    }
    for (label, count) in [("test", 1), ("other", 0)] {
        let filter = PodSandboxStatsFilter {
            label_selector: [("tier".to_owned(), label.to_owned())].into(),
            ..Default::default()
        };
        let request = ListPodSandboxStatsRequest { filter: Some(filter) };
        let listed = node.runtime.list_pod_sandbox_stats(request).await.unwrap().into_inner().stats;
        assert_eq!(listed.len(), count, "{label}");
    }
    let request = ContainerStatsRequest { container_id: "no-such".into() };
    assert_eq!(node.runtime.container_stats(request).await.unwrap_err().code(), Code::NotFound);
    metrics_are_described(&mut node, &pod, &[&busy, &idle]).await;
    node.finish(&pod).await;
}

async fn metrics_are_described(node: &mut Node, pod: &str, containers: &[&String]) {
    let descriptors = node.runtime.list_metric_descriptors(ListMetricDescriptorsRequest {}).await.unwrap();
    let descriptors = descriptors.into_inner().descriptors;
    let labels: BTreeMap<&str, usize> =
        descriptors.iter().map(|metric| (metric.name.as_str(), metric.label_keys.len())).collect();
    assert_eq!(labels.len(), descriptors.len(), "a name for each");
    let pods = node.runtime.list_pod_sandbox_metrics(ListPodSandboxMetricsRequest {}).await.unwrap();
    let pods = pods.into_inner().pod_metrics;
    assert_eq!(pods.iter().map(|metrics| metrics.pod_sandbox_id.as_str()).collect::<Vec<_>>(), [pod]);
    assert!(pods[0].metrics.iter().any(|metric| metric.name == "container_network_receive_bytes_total"));
    let mut seen: Vec<&String> = pods[0].container_metrics.iter().map(|metrics| &metrics.container_id).collect();
    let mut wanted = containers.to_vec();
    seen.sort();
    wanted.sort();
    assert_eq!(seen, wanted);
    for container in &pods[0].container_metrics {
        let memory = container.metrics.iter().find(|metric| metric.name == "container_memory_usage_bytes").unwrap();
        assert!(memory.value.unwrap().value > 0);
        for metric in container.metrics.iter().chain(&pods[0].metrics) {
            assert_eq!(labels.get(metric.name.as_str()), Some(&metric.label_values.len()), "{}", metric.name);
        }
    }
}
