use k8s_cri::v1::*;
use tonic::Code;

use crate::node::{Node, skip};

#[tokio::test]
async fn wrong_requests_name_what_is_wrong() {
    if skip() {
        return;
    }
    let mut node = Node::start().await;
    let run = |config: Option<PodSandboxConfig>, handler: &str| RunPodSandboxRequest {
        config,
        runtime_handler: handler.into(),
    };
    let cases = [
        ("config", run(None, "")),
        ("metadata", run(Some(PodSandboxConfig::default()), "")),
        ("runtime_handler", run(Some(node.pod()), "no-such-handler")),
        ("log_directory", run(Some(PodSandboxConfig { log_directory: "/a/../b".into(), ..node.pod() }), "")),
        ("hostname", run(Some(PodSandboxConfig { hostname: "x".repeat(100), ..node.pod() }), "")),
    ];
    for (field, request) in cases {
        let error = node.runtime.run_pod_sandbox(request).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{field}");
        assert!(error.message().contains(field), "{field}: {error}");
    }
    let pod_config = node.pod();
    let pod = node.run_pod(&pod_config).await;
    let missing = ContainerConfig {
        image: Some(ImageSpec { image: "no/such:image".into(), ..Default::default() }),
        ..node.container("true")
    };
    assert_eq!(node.create(&pod, &pod_config, missing).await.unwrap_err().code(), Code::NotFound);
    let config = node.container("true");
    assert_eq!(node.create("nosuchpod", &pod_config, config).await.unwrap_err().code(), Code::NotFound);
    let negative = StopContainerRequest { container_id: "x".into(), timeout: -1 };
    assert_eq!(node.runtime.stop_container(negative).await.unwrap_err().code(), Code::InvalidArgument);
    // A name is taken for as long as its pod is there.
    let twice = run(Some(PodSandboxConfig { hostname: "other".into(), ..pod_config.clone() }), "");
    assert_eq!(node.runtime.run_pod_sandbox(twice).await.unwrap_err().code(), Code::AlreadyExists);
    node.remove_pod(&pod).await;
    node.assert_clean();
}
