//! `containerd publish`: what a shim runs (`-publish-binary`) to tell the daemon of an event.

use std::{
    io::{self, Read},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, bail};
use containerd_api::services::events::v1::PublishRequest;
use containerd_api_grpc::services::events::v1::events_client::EventsClient;
use core_types::Namespace;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tonic::{Request, transport::Endpoint};

/// How long the daemon may take; a shim waits for this program.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest event, in bytes: what a gRPC message may have.
const MAX_EVENT: u64 = 4 << 20;

/// Reads an event from standard input and publishes it at the daemon that listens at `address`.
///
/// # Errors
/// When the input is no event, or the daemon does not take it.
pub(crate) fn publish(address: &str, namespace: &str, topic: String) -> anyhow::Result<()> {
    let namespace = Namespace::new(namespace)?;
    let mut input = Vec::new();
    io::stdin().lock().take(MAX_EVENT + 1).read_to_end(&mut input).context("read the event from standard input")?;
    if input.len() as u64 > MAX_EVENT {
        bail!("the event on standard input is longer than {MAX_EVENT} bytes");
    }
    let event = prost_types::Any::decode(&input[..]).context("standard input is no encoded google.protobuf.Any")?;
    let path = PathBuf::from(address.strip_prefix("unix://").unwrap_or(address));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, send(path, namespace, PublishRequest { topic, event: Some(event) }))
            .await
            .with_context(|| format!("the daemon at {address} did not answer within {PATIENCE:?}"))?
            .with_context(|| format!("publish at {address}"))
    })
}

async fn send(path: PathBuf, namespace: Namespace, request: PublishRequest) -> anyhow::Result<()> {
    let connect = move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    };
    // The URI only fills the authority of HTTP/2.
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(tower::service_fn(connect)).await?;
    let mut request = Request::new(request);
    request.metadata_mut().insert("containerd-namespace", namespace.as_str().parse()?);
    EventsClient::new(channel).publish(request).await?;
    Ok(())
}
