//! The Rust crate `containerd-client`, made by others, against the daemon and the shim of this workspace.

// Helpers of a test are tests too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::{path::Path, process::Command, time::Duration};

use containerd_client::{
    self as client,
    services::v1::{
        Container, CreateContainerRequest, CreateTaskRequest, DeleteContainerRequest, DeleteTaskRequest,
        GetContainerRequest, ListContainersRequest, ListImagesRequest, ListNamespacesRequest, StartRequest,
        WaitRequest, container::Runtime, containers_client::ContainersClient, images_client::ImagesClient,
        namespaces_client::NamespacesClient, tasks_client::TasksClient,
    },
    with_namespace,
};
use containerd_test::{Daemon, Output, World, skip_without, unique};
use tonic::Request;

const SPEC: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";

/// A specification with a field that nobody knows and spacing that no encoder makes.
fn spec(dir: &Path) -> Vec<u8> {
    let root = dir.join("rootfs");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    Output::of(Command::new("runc").arg("spec").current_dir(dir)).ok();
    let text = std::fs::read_to_string(dir.join("config.json")).unwrap();
    let text = text
        .replace("\"terminal\": true", "\"terminal\": false")
        .replace("\"sh\"", "\"/bin/busybox\", \"sh\", \"-c\", \"exit 9\"")
        .replace("\"rootfs\"", &format!("\"{}\"", root.display()));
    text.replacen('{', "{ \"x-unknown\" :  {\"b\":1,   \"a\":[ ]},", 1).into_bytes()
}

#[tokio::test]
async fn a_container_from_its_specification_to_its_end() {
    if skip_without(&["runc", "ctr", "busybox"]) {
        return;
    }
    let world = World::new();
    let daemon = Daemon::start(&world);
    let life = life(&world, &daemon);
    tokio::time::timeout(Duration::from_secs(60), life).await.expect("within a minute");
}

async fn life(world: &World, daemon: &Daemon) {
    let id = unique("c");
    let spec = spec(world.dir());
    let channel = client::connect(daemon.address()).await.unwrap();
    let mut containers = ContainersClient::new(channel.clone());
    let any = prost_types::Any { type_url: SPEC.into(), value: spec.clone() };
    let container = Container {
        id: id.clone(),
        runtime: Some(Runtime { name: "io.containerd.runc.v2".into(), options: None }),
        spec: Some(any.clone()),
        ..Default::default()
    };
    let request = CreateContainerRequest { container: Some(container) };
    containers.create(with_namespace!(request, "default")).await.unwrap();
    let namespaces = NamespacesClient::new(channel.clone()).list(ListNamespacesRequest::default()).await.unwrap();
    assert!(namespaces.into_inner().namespaces.iter().any(|namespace| namespace.name == "default"));
    let request = ListImagesRequest::default();
    let images = ImagesClient::new(channel.clone()).list(with_namespace!(request, "default")).await.unwrap();
    assert!(images.into_inner().images.is_empty());
    let request = ListContainersRequest::default();
    let listed = containers.list(with_namespace!(request, "default")).await.unwrap().into_inner().containers;
    assert_eq!(listed.iter().map(|container| container.id.as_str()).collect::<Vec<_>>(), [id.as_str()]);
    let request = GetContainerRequest { id: id.clone() };
    let got = containers.get(with_namespace!(request, "default")).await.unwrap().into_inner().container.unwrap();
    assert_eq!(got.spec, Some(any));

    let mut tasks = TasksClient::new(channel);
    let request = CreateTaskRequest { container_id: id.clone(), ..Default::default() };
    tasks.create(with_namespace!(request, "default")).await.unwrap();
    let bundle = daemon.state().join("io.containerd.runtime.v2.task/default").join(&id);
    assert_eq!(std::fs::read(bundle.join("config.json")).unwrap(), spec, "the specification is as it was sent");
    let request = WaitRequest { container_id: id.clone(), ..Default::default() };
    let mut waiter = tasks.clone();
    let wait = tokio::spawn(async move { waiter.wait(with_namespace!(request, "default")).await });
    let request = StartRequest { container_id: id.clone(), ..Default::default() };
    tasks.start(with_namespace!(request, "default")).await.unwrap();
    assert_eq!(wait.await.unwrap().unwrap().into_inner().exit_status, 9);
    let request = DeleteTaskRequest { container_id: id.clone() };
    let deleted = tasks.delete(with_namespace!(request, "default")).await.unwrap().into_inner();
    assert_eq!(deleted.exit_status, 9);
    assert!(!bundle.exists());
    let request = DeleteContainerRequest { id: id.clone() };
    containers.delete(with_namespace!(request, "default")).await.unwrap();
    let request = GetContainerRequest { id };
    let gone = containers.get(with_namespace!(request, "default")).await.unwrap_err();
    assert_eq!(gone.code(), tonic::Code::NotFound);
}
