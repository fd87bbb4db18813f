//! The services over a real database, asked through gRPC on a Unix socket.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use containerd_api::services::{
    containers::v1::{
        Container, CreateContainerRequest, DeleteContainerRequest, GetContainerRequest, container::Runtime,
    },
    content::v1::{
        AbortRequest, InfoRequest, ListContentRequest, ListStatusesRequest, ReadContentRequest, WriteAction,
        WriteContentRequest,
    },
    events::v1::SubscribeRequest,
    leases::v1 as leases,
    namespaces::v1::{CreateNamespaceRequest, DeleteNamespaceRequest, Namespace, UpdateNamespaceRequest},
    snapshots::v1::StatSnapshotRequest,
    streaming::v1::StreamInit,
    version::v1::VersionResponse,
};
use containerd_api_grpc::services::{
    containers::v1::containers_client::ContainersClient, content::v1::content_client::ContentClient,
    events::v1::events_client::EventsClient, leases::v1::leases_client::LeasesClient,
    mounts::v1::mounts_client::MountsClient, namespaces::v1::namespaces_client::NamespacesClient,
    snapshots::v1::snapshots_client::SnapshotsClient, streaming::v1::streaming_client::StreamingClient,
    version::v1::version_client::VersionClient,
};
use core_content::LocalStore;
use core_events::{Any, Exchange};
use core_metadata::{Backends, Database};
use core_streaming::Streams;
use core_types::{Digest, Namespace as Name};
use plugin_services as services;
use services::GrpcRouter;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Code, Request, transport::Channel};

struct Daemon {
    channel: Channel,
    streams: Streams,
    _dir: tempfile::TempDir,
}

impl Daemon {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let exchange = Arc::new(Exchange::new());
        let backends = Backends {
            content: Arc::new(LocalStore::open(dir.path().join("content")).unwrap()),
            snapshotters: BTreeMap::new(),
            events: exchange.clone(),
        };
        let database = Database::open(&dir.path().join("meta"), backends).await.unwrap();
        let streams = Streams::new();
        let router = GrpcRouter::new([
            services::containers::Containers::new(database.clone(), exchange.clone()).service(),
            services::content::Content::new(database.clone()).service(),
            services::events::Events::new(exchange).service(),
            services::leases::Leases::new(database.clone()).service(),
            services::namespaces::Namespaces::new(database.clone()).service(),
            services::snapshots::Snapshots::new(database).service(),
            services::streaming::Streaming::new(streams.clone()).service(),
            services::version::Version.service(),
        ]);
        let path = dir.path().join("c.sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        tokio::spawn(
            tonic::transport::Server::builder().serve_with_incoming(router, UnixListenerStream::new(listener)),
        );
        let connect = move |_| {
            let path = path.clone();
            async move { tokio::net::UnixStream::connect(path).await.map(hyper_util::rt::TokioIo::new) }
        };
        let channel = tonic::transport::Endpoint::from_static("http://localhost")
            .connect_with_connector(tower::service_fn(connect))
            .await
            .unwrap();
        Self { channel, streams, _dir: dir }
    }

    /// Writes a blob in one session.
    async fn write(&self, messages: Vec<WriteContentRequest>) -> Result<Vec<(i64, String)>, tonic::Status> {
        let mut client = ContentClient::new(self.channel.clone());
        let mut answers = client.write(within(tokio_stream::iter(messages))).await?.into_inner();
        let mut seen = Vec::new();
        while let Some(answer) = answers.message().await? {
            seen.push((answer.offset, answer.digest));
        }
        Ok(seen)
    }
}

fn within<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("containerd-namespace", "tests".parse().unwrap());
    request
}

fn write(action: WriteAction, offset: i64, data: &'static [u8]) -> WriteContentRequest {
    WriteContentRequest {
        action: action.into(),
        r#ref: "r".into(),
        offset,
        data: data.into(),
        ..WriteContentRequest::default()
    }
}

#[tokio::test]
async fn a_blob_is_written_in_pieces_and_read_at_any_offset() {
    let daemon = Daemon::start().await;
    let digest = Digest::of(b"hello world").to_string();
    let commit = WriteContentRequest {
        total: 11,
        expected: digest.clone(),
        labels: [("a".to_owned(), "b".to_owned())].into(),
        ..write(WriteAction::Commit, 11, b"")
    };
    let session = vec![
        write(WriteAction::Stat, 0, b""),
        write(WriteAction::Write, 0, b"hello "),
        write(WriteAction::Write, 6, b"world"),
        commit,
    ];
    let answers = daemon.write(session.clone()).await.unwrap();
    assert_eq!(answers.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), [0, 6, 11, 11]);
    assert_eq!(answers[3].1, digest);

    let mut client = ContentClient::new(daemon.channel.clone());
    let info = client.info(within(InfoRequest { digest: digest.clone() })).await.unwrap().into_inner().info.unwrap();
    assert_eq!((info.size, info.labels["a"].as_str()), (11, "b"));
    for (offset, size, expected) in [(0, 0, "hello world"), (6, 3, "wor"), (6, 99, "world"), (11, 0, "")] {
        let request = ReadContentRequest { digest: digest.clone(), offset, size };
        let mut pieces = client.read(within(request)).await.unwrap().into_inner();
        let mut read = Vec::new();
        while let Some(piece) = pieces.message().await.unwrap() {
            read.extend_from_slice(&piece.data);
        }
        assert_eq!(read, expected.as_bytes());
    }
    let past = client.read(within(ReadContentRequest { digest, offset: 12, size: 0 })).await;
    assert_eq!(past.unwrap_err().code(), Code::OutOfRange);
    let again = daemon.write(session).await.unwrap_err();
    assert_eq!(again.code(), Code::AlreadyExists);
    let mut list = client.list(within(ListContentRequest::default())).await.unwrap().into_inner();
    assert_eq!(list.message().await.unwrap().unwrap().info.len(), 1);
}

#[tokio::test]
async fn an_ingest_is_resumed_checked_and_aborted() {
    let daemon = Daemon::start().await;
    daemon.write(vec![write(WriteAction::Write, 0, b"half")]).await.unwrap();
    let mut client = ContentClient::new(daemon.channel.clone());
    // The session has ended for the client; the writer is free once the server saw the end, too.
    let statuses = client.list_statuses(within(ListStatusesRequest::default())).await.unwrap().into_inner().statuses;
    assert_eq!((statuses[0].r#ref.as_str(), statuses[0].offset), ("r", 4));
    let answers = daemon.write(vec![write(WriteAction::Stat, 0, b"")]).await.unwrap();
    assert_eq!(answers[0].0, 4);
    let gap = daemon.write(vec![write(WriteAction::Write, 9, b"x")]).await.unwrap_err();
    assert_eq!(gap.code(), Code::OutOfRange);
    let wrong = WriteContentRequest {
        total: 4,
        expected: Digest::of(b"other").to_string(),
        ..write(WriteAction::Commit, 4, b"")
    };
    assert_eq!(daemon.write(vec![wrong]).await.unwrap_err().code(), Code::FailedPrecondition);
    client.abort(within(AbortRequest { r#ref: "r".into() })).await.unwrap();
    let gone = client.abort(within(AbortRequest { r#ref: "r".into() })).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
    let nameless = WriteContentRequest { r#ref: String::new(), ..write(WriteAction::Stat, 0, b"") };
    assert_eq!(daemon.write(vec![nameless]).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn changes_of_containers_and_namespaces_are_published() {
    let daemon = Daemon::start().await;
    let mut events = EventsClient::new(daemon.channel.clone());
    let filters = vec!["topic~=/containers/".to_owned(), "topic==\"/namespaces/create\"".to_owned()];
    let mut events = events.subscribe(SubscribeRequest { filters }).await.unwrap().into_inner();

    let mut containers = ContainersClient::new(daemon.channel.clone());
    let container = Container {
        id: "c1".into(),
        image: "i".into(),
        runtime: Some(Runtime { name: "io.containerd.runc.v2".into(), options: None }),
        spec: Some(prost_types::Any { type_url: "spec".into(), value: b"{\"x\":1}".to_vec() }),
        ..Container::default()
    };
    let create = CreateContainerRequest { container: Some(container) };
    let nowhere = containers.create(create.clone()).await.unwrap_err();
    assert_eq!(nowhere.code(), Code::FailedPrecondition);
    containers.create(within(create.clone())).await.unwrap();
    assert_eq!(containers.create(within(create)).await.unwrap_err().code(), Code::AlreadyExists);
    let stored = containers.get(within(GetContainerRequest { id: "c1".into() })).await.unwrap().into_inner();
    assert_eq!(stored.container.unwrap().spec.unwrap().value, b"{\"x\":1}");
    containers.delete(within(DeleteContainerRequest { id: "c1".into() })).await.unwrap();

    let mut namespaces = NamespacesClient::new(daemon.channel.clone());
    let namespace = Namespace { name: "n1".into(), labels: [("a".to_owned(), "b".to_owned())].into() };
    namespaces.create(CreateNamespaceRequest { namespace: Some(namespace.clone()) }).await.unwrap();
    let mask = prost_types::FieldMask { paths: vec!["name".into()] };
    let update = UpdateNamespaceRequest { namespace: Some(namespace), update_mask: Some(mask) };
    assert_eq!(namespaces.update(update).await.unwrap_err().code(), Code::InvalidArgument);
    namespaces.delete(DeleteNamespaceRequest { name: "n1".into() }).await.unwrap();

    for (namespace, topic, url) in [
        ("tests", "/containers/create", "containerd.events.ContainerCreate"),
        ("tests", "/containers/delete", "containerd.events.ContainerDelete"),
        ("n1", "/namespaces/create", "containerd.events.NamespaceCreate"),
    ] {
        let next = tokio::time::timeout(Duration::from_secs(30), events.message());
        let envelope = next.await.unwrap().unwrap().unwrap();
        assert_eq!((envelope.namespace.as_str(), envelope.topic.as_str()), (namespace, topic));
        assert_eq!(envelope.event.unwrap().type_url, url);
    }
}

#[tokio::test]
async fn leases_hold_resources_by_name() {
    let daemon = Daemon::start().await;
    let mut client = LeasesClient::new(daemon.channel.clone());
    let named = leases::CreateRequest { id: "l1".into(), ..Default::default() };
    client.create(within(named.clone())).await.unwrap();
    assert_eq!(client.create(within(named)).await.unwrap_err().code(), Code::AlreadyExists);
    let unnamed = client.create(within(leases::CreateRequest::default())).await.unwrap().into_inner();
    assert!(!unnamed.lease.unwrap().id.is_empty());
    let resource = leases::Resource { id: Digest::of(b"x").to_string(), r#type: "content".into() };
    let add = leases::AddResourceRequest { id: "l1".into(), resource: Some(resource.clone()) };
    client.add_resource(within(add)).await.unwrap();
    let list = client.list_resources(within(leases::ListResourcesRequest { id: "l1".into() })).await.unwrap();
    assert_eq!(list.into_inner().resources, [resource]);
    client.delete(within(leases::DeleteRequest { id: "l1".into(), sync: true })).await.unwrap();
    let left = client.list(within(leases::ListRequest::default())).await.unwrap().into_inner();
    assert_eq!(left.leases.len(), 1);
}

#[tokio::test]
async fn what_is_not_there_says_so() {
    let daemon = Daemon::start().await;
    let mut snapshots = SnapshotsClient::new(daemon.channel.clone());
    for (snapshotter, text) in [("", "missing"), ("zfs", "zfs")] {
        let request = StatSnapshotRequest { snapshotter: snapshotter.into(), key: "k".into() };
        let error = snapshots.stat(within(request)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().contains(text), "{error}");
    }
    let mut mounts = MountsClient::new(daemon.channel.clone());
    let error = mounts.info(within(Default::default())).await.unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert!(error.message().contains("containerd.services.mounts.v1.Mounts"), "{error}");
    let VersionResponse { version, .. } =
        VersionClient::new(daemon.channel.clone()).version(()).await.unwrap().into_inner();
    assert!(version.starts_with("v2.3."), "{version}");
}

#[tokio::test]
async fn a_stream_connects_a_client_with_another_request() {
    let daemon = Daemon::start().await;
    let (requests, receiver) = tokio::sync::mpsc::channel(4);
    let init =
        containerd_api::any::pack("containerd.services.streaming.v1.StreamInit", &StreamInit { id: "s1".into() });
    requests.send(init).await.unwrap();
    let mut client = StreamingClient::new(daemon.channel.clone());
    let mut answers = client.stream(within(ReceiverStream::new(receiver))).await.unwrap().into_inner();
    assert_eq!(answers.message().await.unwrap().unwrap().type_url, "google.protobuf.Empty");

    let namespace = Name::new("tests").unwrap();
    let end = daemon.streams.get(&namespace, "s1", Duration::from_secs(30)).await.unwrap();
    requests.send(prost_types::Any { type_url: "up".into(), value: vec![1] }).await.unwrap();
    assert_eq!(end.receive().await.unwrap().unwrap().type_url, "up");
    end.send(Any { type_url: "down".into(), value: vec![2].into() }).await.unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap().type_url, "down");
    // The client has said all; the daemon may still answer, and ends the stream by closing its side.
    drop(requests);
    assert!(end.receive().await.unwrap().is_none());
    end.close().await;
    assert!(answers.message().await.unwrap().is_none());
}
