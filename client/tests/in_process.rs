//! The in-process back end: a client that talks to a server over a pipe in memory.

use std::{io, sync::Arc};

use containerd_sdk::{
    Client,
    api::services::version::v1::VersionResponse,
    grpc::services::version::v1::version_server::{Version, VersionServer},
};
use tokio::sync::mpsc;
use tokio_stream::{StreamExt as _, wrappers::UnboundedReceiverStream};
use tonic::{Request, Response, Status, transport::Server};

/// Answers with the metadata it was sent.
struct Echo;

#[tonic::async_trait]
impl Version for Echo {
    async fn version(&self, request: Request<()>) -> Result<Response<VersionResponse>, Status> {
        let text = |key: &str| {
            let value = request.metadata().get(key).and_then(|value| value.to_str().ok());
            value.unwrap_or("none").to_owned()
        };
        let (version, revision) = (text("containerd-namespace"), text("containerd-lease"));
        if version == "secret" {
            return Err(Status::permission_denied("not for you"));
        }
        Ok(Response::new(VersionResponse { version, revision }))
    }
}

#[tokio::test]
async fn calls_carry_namespace_and_lease() {
    let (ends, accepted) = mpsc::unbounded_channel();
    let incoming = UnboundedReceiverStream::new(accepted).map(Ok::<_, io::Error>);
    let server = tokio::spawn(Server::builder().add_service(VersionServer::new(Echo)).serve_with_incoming(incoming));
    let ends = Arc::new(ends);
    let connector = move || {
        let ends = Arc::clone(&ends);
        async move {
            let (mine, theirs) = tokio::io::duplex(64 * 1024);
            ends.send(theirs).map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
            Ok(mine)
        }
    };
    let client = Client::in_process(connector, "default").await.unwrap();
    let answer = client.version().await.unwrap();
    assert_eq!((answer.version.as_str(), answer.revision.as_str()), ("default", "none"));

    let leased = client.in_namespace("k8s.io").unwrap().under_lease("l1").unwrap();
    let answer = leased.version().await.unwrap();
    assert_eq!((answer.version.as_str(), answer.revision.as_str()), ("k8s.io", "l1"));

    let error = client.in_namespace("secret").unwrap().version().await.unwrap_err();
    assert_eq!(error.kind(), core_types::ErrorKind::PermissionDenied);
    assert_eq!(error.to_string(), "not for you: permission denied");
    let error = client.server_info().await.unwrap_err();
    assert!(error.is_unimplemented(), "{error}");
    server.abort();
}

#[tokio::test]
async fn a_socket_that_is_not_there_is_told_plainly() {
    let dir = tempfile::tempdir().unwrap();
    let address = dir.path().join("none.sock");
    let error = Client::connect(address.to_str().unwrap(), "default").await.unwrap_err();
    assert_eq!(error.kind(), core_types::ErrorKind::Unavailable);
    assert!(error.to_string().contains("none.sock: No such file"), "{error}");
}

#[tokio::test]
async fn a_namespace_must_be_an_identifier() {
    let error = Client::connect("/nowhere", "a/b").await.unwrap_err();
    assert_eq!(error.kind(), core_types::ErrorKind::InvalidArgument);
}
