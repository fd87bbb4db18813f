use std::{io, path::PathBuf, time::Duration};

use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
};
use tonic::transport::{Channel, Endpoint, Uri};

use crate::{Error, Result};

/// How long connecting may take unless the caller says otherwise.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A URI is required by HTTP/2; the connector does not look at it.
const AUTHORITY: &str = "http://localhost";

/// Connects to a Unix socket, given as a path or with `unix://` in front.
pub(crate) async fn unix(address: &str, timeout: Duration) -> Result<Channel> {
    let path = PathBuf::from(address.strip_prefix("unix://").unwrap_or(address));
    let failed = |reason: String| Error::Connect { address: address.to_owned(), reason };
    // The transport hides the cause of a failed connection, so the first one is tried plainly.
    match tokio::time::timeout(timeout, UnixStream::connect(&path)).await {
        Ok(Ok(probe)) => drop(probe),
        Ok(Err(error)) => return Err(failed(error.to_string())),
        Err(_) => return Err(failed(format!("no answer within {timeout:?}"))),
    }
    let connector = move || {
        let path = path.clone();
        async move { UnixStream::connect(path).await }
    };
    let connecting = channel(connector);
    match tokio::time::timeout(timeout, connecting).await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed(format!("no answer within {timeout:?}"))),
    }
}

/// Connects over whatever streams `connector` makes; it is called again after a lost connection.
pub(crate) async fn channel<F, R, S>(connector: F) -> Result<Channel>
where
    F: Fn() -> R + Clone + Send + Sync + 'static,
    R: Future<Output = io::Result<S>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = tower::service_fn(move |_: Uri| {
        let stream = connector();
        async move { stream.await.map(TokioIo::new) }
    });
    Endpoint::from_static(AUTHORITY)
        .connect_with_connector(service)
        .await
        .map_err(|error| Error::Connect { address: "in-process daemon".into(), reason: error_chain(&error) })
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
