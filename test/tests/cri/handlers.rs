use std::{fs, os::unix::fs::PermissionsExt};

use containerd_test::skip_without;
use k8s_cri::v1::*;
use tonic::Code;

use crate::node::{Node, secured, skip};

const HANDLERS: &str = r#"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.crun]
runtime_type = "io.containerd.runc.v2"
pod_annotations = ["org.example.*"]
snapshotter = "native"
privileged_without_host_devices = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.crun.options]
BinaryName = "@DIR@/crun"
Root = "@DIR@/crun-root"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.missing]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.missing.options]
BinaryName = "/no/such/runtime"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.no-shim]
runtime_type = "io.containerd.nowhere.v1"
"#;

#[tokio::test]
async fn pods_run_with_the_runtime_that_they_name() {
    if skip() {
        return;
    }
    // crun runs with one version of cgroups alone; then the wrapper is the difference.
    let mixed = fs::exists("/sys/fs/cgroup/unified").unwrap();
    let program = if mixed || skip_without(&["crun"]) { "runc" } else { "crun" };
    let mut node = Node::start_with(HANDLERS).await;
    // It notes what it is asked for.
    let wrapper = node.world.dir().join("crun");
    let script = format!("#!/bin/sh\necho \"$@\" >> {}/asked\nexec {program} \"$@\"\n", node.world.dir().display());
    fs::write(&wrapper, script).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let context = LinuxSandboxSecurityContext { privileged: true, ..Default::default() };
    let pod_config = PodSandboxConfig {
        annotations: [("org.example.a".to_owned(), "b".to_owned()), ("com.other".to_owned(), "c".to_owned())].into(),
        linux: Some(LinuxPodSandboxConfig { security_context: Some(context), ..Default::default() }),
        ..node.pod()
    };
    let request = RunPodSandboxRequest { config: Some(pod_config.clone()), runtime_handler: "crun".into() };
    let pod = node.runtime.run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id;
    assert_eq!(node.pod_status(&pod).await.runtime_handler, "crun");
    let privileged = LinuxContainerSecurityContext { privileged: true, ..Default::default() };
    let config = secured(node.container("sleep 1000"), privileged);
    let id = node.run(&pod, &pod_config, config).await;
    assert_eq!(node.output(&id, "ls /dev/kmsg 2>/dev/null || echo none").await, "none\n");
    let info = node.information(&id).await;
    assert_eq!(info["snapshotter"], "native");
    assert_eq!(info["runtimeSpec"]["annotations"]["org.example.a"], "b");
    assert!(info["runtimeSpec"]["annotations"].get("com.other").is_none());
    assert!(
        node.world.dir().join("crun-root").join(&id).exists() || {
            let asked = fs::read_to_string(node.world.dir().join("asked")).unwrap();
            asked.contains("crun-root") && asked.contains(&id)
        }
    );
    // The default beside it.
    let plain = node.pod();
    let other = node.run_pod(&plain).await;
    let config = node.container("sleep 1000");
    let id = node.run(&other, &plain, config).await;
    assert_eq!(node.information(&id).await["snapshotter"], "overlayfs");
    let asked = fs::read_to_string(node.world.dir().join("asked")).unwrap();
    assert!(!asked.contains(&id), "{asked}");
    node.remove_pod(&other).await;
    node.finish(&pod).await;
}

#[tokio::test]
async fn runtimes_that_are_not_there_are_named_and_leave_nothing() {
    if skip() {
        return;
    }
    let mut node = Node::start_with(HANDLERS).await;
    for (handler, word) in [("missing", "/no/such/runtime"), ("no-shim", "nowhere"), ("unknown", "unknown")] {
        let config = node.pod();
        let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: handler.into() };
        let error = node.runtime.run_pod_sandbox(request).await.unwrap_err();
        assert!(error.message().contains(word), "{error}");
        if handler == "unknown" {
            assert_eq!(error.code(), Code::InvalidArgument);
            assert!(error.message().contains("crun, missing, no-shim, runc"), "{error}");
        }
        node.assert_clean();
        // Its name is free.
        let pod = node.run_pod(&config).await;
        node.remove_pod(&pod).await;
    }
    node.assert_clean();
}
