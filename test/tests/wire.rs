//! Messages mean the same to independent encoders: the crates `containerd-client`, `containerd-shim-protos`
//! and `k8s-cri` carry types generated elsewhere.

// Helpers of a test are tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::{collections::HashMap, fmt::Debug};

use containerd_client as theirs;
use containerd_shim_protos::{
    self as shim_protos,
    protobuf::{Message as _, MessageField, well_known_types::any::Any as TheirAny},
};
use prost::Message;

/// Sends `message` to the other type and back, and compares what arrived.
fn round_trip<Ours, Theirs>(message: &Ours) -> Theirs
where
    Ours: Message + Default + PartialEq + Debug,
    Theirs: Message + Default,
{
    let there = Theirs::decode(message.encode_to_vec().as_slice()).unwrap();
    let back = Ours::decode(there.encode_to_vec().as_slice()).unwrap();
    assert!(back == *message, "{message:?} came back as {back:?}");
    there
}

fn any(name: &str) -> prost_types::Any {
    prost_types::Any { type_url: name.into(), value: b"value".to_vec() }
}

#[test]
fn containers() {
    use containerd_api::services::containers::v1::{Container, CreateContainerRequest, container::Runtime};
    let request = CreateContainerRequest {
        container: Some(Container {
            id: "c1".into(),
            labels: [("a".into(), "b".into())].into(),
            image: "docker.io/library/busybox:latest".into(),
            runtime: Some(Runtime { name: "io.containerd.runc.v2".into(), options: Some(any("o")) }),
            spec: Some(any("types.containerd.io/opencontainers/runtime-spec/1/Spec")),
            snapshotter: "overlayfs".into(),
            snapshot_key: "c1".into(),
            created_at: Some(prost_types::Timestamp { seconds: 5, nanos: 6 }),
            updated_at: None,
            extensions: [("x".into(), any("y"))].into(),
            sandbox: "pod".into(),
        }),
    };
    let there: theirs::services::v1::CreateContainerRequest = round_trip(&request);
    let container = there.container.unwrap();
    assert_eq!((container.id.as_str(), container.sandbox.as_str()), ("c1", "pod"));
    assert_eq!(container.runtime.unwrap().name, "io.containerd.runc.v2");
}

#[test]
fn content_images_and_snapshots() {
    use containerd_api::{services, types};
    let write = services::content::v1::WriteContentRequest {
        action: 1,
        r#ref: "layer".into(),
        total: 10,
        expected: "sha256:00".into(),
        offset: 4,
        data: b"data".to_vec().into(),
        labels: [("l".into(), "v".into())].into(),
    };
    let there: theirs::services::v1::WriteContentRequest = round_trip(&write);
    assert_eq!((there.r#ref.as_str(), there.offset, there.data.as_slice()), ("layer", 4, b"data".as_slice()));
    let image = services::images::v1::Image {
        name: "n".into(),
        target: Some(types::Descriptor {
            media_type: "m".into(),
            digest: "sha256:00".into(),
            size: 9,
            annotations: [("k".into(), "v".into())].into(),
        }),
        ..Default::default()
    };
    let there: theirs::services::v1::Image = round_trip(&image);
    assert_eq!(there.target.unwrap().size, 9);
    let prepare = services::snapshots::v1::PrepareSnapshotRequest {
        snapshotter: "overlayfs".into(),
        key: "k".into(),
        parent: "p".into(),
        labels: [("a".into(), "b".into())].into(),
    };
    let there: theirs::services::v1::snapshots::PrepareSnapshotRequest = round_trip(&prepare);
    assert_eq!(there.labels, HashMap::from([("a".into(), "b".into())]));
}

#[test]
fn tasks_leases_events_and_transfer() {
    use containerd_api::{events, services, types};
    let create = services::tasks::v1::CreateTaskRequest {
        container_id: "c".into(),
        rootfs: vec![types::Mount {
            r#type: "overlay".into(),
            source: "overlay".into(),
            target: String::new(),
            options: vec!["index=off".into()],
        }],
        stdin: "0".into(),
        stdout: "1".into(),
        stderr: "2".into(),
        terminal: true,
        options: Some(any("containerd.runc.v1.Options")),
        runtime_path: "/usr/bin/crun".into(),
        ..Default::default()
    };
    let there: theirs::services::v1::CreateTaskRequest = round_trip(&create);
    assert_eq!((there.rootfs[0].r#type.as_str(), there.terminal), ("overlay", true));
    let exit = events::TaskExit {
        container_id: "c".into(),
        id: "e".into(),
        pid: 7,
        exit_status: 137,
        exited_at: Some(prost_types::Timestamp { seconds: 1, nanos: 2 }),
    };
    let there: theirs::events::TaskExit = round_trip(&exit);
    assert_eq!((there.pid, there.exit_status), (7, 137));
    let lease = services::leases::v1::CreateRequest { id: "l".into(), labels: [("a".into(), "b".into())].into() };
    let _: theirs::services::v1::CreateRequest = round_trip(&lease);
    let store = types::transfer::ImageStore {
        name: "n".into(),
        platforms: vec![types::Platform { os: "linux".into(), architecture: "amd64".into(), ..Default::default() }],
        all_metadata: true,
        unpacks: vec![types::transfer::UnpackConfiguration::default()],
        ..Default::default()
    };
    let there: theirs::types::transfer::ImageStore = round_trip(&store);
    assert_eq!((there.platforms[0].os.as_str(), there.unpacks.len()), ("linux", 1));
}

/// The same for a peer whose messages are of another library.
fn shim_trip<Ours, Theirs>(message: &Ours) -> Theirs
where
    Ours: Message + Default + PartialEq + Debug,
    Theirs: shim_protos::protobuf::Message,
{
    let there = Theirs::parse_from_bytes(&message.encode_to_vec()).unwrap();
    let back = Ours::decode(there.write_to_bytes().unwrap().as_slice()).unwrap();
    assert!(back == *message, "{message:?} came back as {back:?}");
    there
}

#[test]
fn shim_tasks() {
    use containerd_api::task::v3;
    let create = v3::CreateTaskRequest {
        id: "c".into(),
        bundle: "/b".into(),
        terminal: true,
        stdout: "out".into(),
        options: Some(any("containerd.runc.v1.Options")),
        ..Default::default()
    };
    let there: shim_protos::api::CreateTaskRequest = shim_trip(&create);
    assert_eq!((there.id.as_str(), there.bundle.as_str(), there.terminal), ("c", "/b", true));
    let state = v3::StateResponse { id: "c".into(), pid: 4, status: 2, exit_status: 3, ..Default::default() };
    let there: shim_protos::api::StateResponse = shim_trip(&state);
    assert_eq!((there.pid, there.exit_status), (4, 3));

    let mut request = shim_protos::api::ExecProcessRequest::new();
    request.id = "c".into();
    request.exec_id = "e".into();
    request.spec = MessageField::some(TheirAny { type_url: "t".into(), value: vec![1], ..Default::default() });
    let ours = v3::ExecProcessRequest::decode(request.write_to_bytes().unwrap().as_slice()).unwrap();
    assert_eq!((ours.exec_id.as_str(), ours.spec.unwrap().type_url.as_str()), ("e", "t"));
    let old =
        containerd_api::task::v2::ExecProcessRequest::decode(request.write_to_bytes().unwrap().as_slice()).unwrap();
    assert_eq!(old.exec_id, "e");
}

#[test]
fn cri() {
    use containerd_api_cri::v1;
    let run = v1::RunPodSandboxRequest {
        config: Some(v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: "p".into(),
                uid: "u".into(),
                namespace: "n".into(),
                attempt: 3,
            }),
            hostname: "h".into(),
            port_mappings: vec![v1::PortMapping {
                protocol: 0,
                container_port: 80,
                host_port: 8080,
                host_ip: String::new(),
            }],
            labels: [("a".into(), "b".into())].into(),
            ..Default::default()
        }),
        runtime_handler: "runc".into(),
    };
    let there: k8s_cri::v1::RunPodSandboxRequest = round_trip(&run);
    let config = there.config.unwrap();
    assert_eq!((config.hostname.as_str(), config.port_mappings[0].host_port), ("h", 8080));
    assert_eq!(config.metadata.unwrap().attempt, 3);
    let stats = v1::ContainerStats {
        cpu: Some(v1::CpuUsage {
            timestamp: 1,
            usage_core_nano_seconds: Some(v1::UInt64Value { value: 2 }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let there: k8s_cri::v1::ContainerStats = round_trip(&stats);
    assert_eq!(there.cpu.unwrap().usage_core_nano_seconds.unwrap().value, 2);
}
