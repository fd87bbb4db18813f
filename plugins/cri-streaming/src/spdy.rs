//! SPDY/3.1, and the sessions over it.

mod connection;
pub(crate) mod frame;
pub(crate) mod header;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{Duplex, PortForwardRequest, Request, Runtime};
use crate::session::{self, CREATION, Context, Pipes, RESIZES, StatusForm};
use connection::{Incoming, Limits};
use header::value;

/// How long a forwarded connection that takes no data may hold up the others of its session.
const STALL: Duration = Duration::from_secs(10);

/// Serves one upgraded connection with the negotiated `protocol`.
pub(crate) async fn serve(io: impl Duplex, protocol: &str, request: Request, context: Context) {
    let (sender, incoming) = mpsc::channel(64);
    let finish = CancellationToken::new();
    let stall = matches!(request, Request::PortForward(_)).then_some(STALL);
    let limits = Limits { finish: finish.clone(), idle: context.idle, stall };
    let session = async {
        match request {
            Request::PortForward(request) => forward(incoming, request, context.runtime).await,
            request => run(incoming, protocol, request, context).await,
        }
        finish.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = connection::serve(io, sender, limits) => {}
        () = session => {}
    }
}

async fn run(mut incoming: mpsc::Receiver<Incoming>, protocol: &str, request: Request, context: Context) {
    let wanted = request.wanted();
    let old = matches!(protocol, "channel.k8s.io" | "v2.channel.k8s.io");
    let resize = wanted.tty && !old;
    let names = [
        ("error", true),
        ("stdin", wanted.stdin),
        ("stdout", wanted.stdout),
        ("stderr", wanted.stderr),
        ("resize", resize),
    ];
    let mut streams: HashMap<&str, DuplexStream> = HashMap::new();
    let deadline = Instant::now() + CREATION;
    while names.iter().any(|(name, wanted)| *wanted && !streams.contains_key(name)) {
        let Ok(Some(stream)) = tokio::time::timeout_at(deadline, incoming.recv()).await else {
            tracing::debug!("the client did not open its streams in time");
            return;
        };
        let kind = value(&stream.headers, "streamtype").unwrap_or_default();
        if let Some((name, _)) = names.iter().find(|(name, wanted)| *wanted && *name == kind) {
            streams.entry(name).or_insert(stream.pipe);
        }
    }
    let (sizes, resizes) = mpsc::channel(RESIZES);
    let resizing = streams.remove("resize").map(|pipe| session::read_sizes(pipe, sizes));
    let Some(error) = streams.remove("error") else { return };
    let mut writer = |name| streams.remove(name).map(|p| Box::new(p) as _);
    let pipes = Pipes {
        stdout: writer("stdout"),
        stderr: writer("stderr"),
        stdin: streams.remove("stdin").map(|p| Box::new(p) as _),
        resize: resizes,
        error: Box::new(error),
    };
    let form = if protocol == "v4.channel.k8s.io" { StatusForm::Json } else { StatusForm::Text };
    session::run(request, context.runtime, pipes, form, resizing).await;
}

/// Streams come in pairs of data and error with the same request id, a pair for each connection.
async fn forward(mut incoming: mpsc::Receiver<Incoming>, request: PortForwardRequest, runtime: Arc<dyn Runtime>) {
    let mut halves: HashMap<String, (Instant, Incoming)> = HashMap::new();
    let mut running = JoinSet::new();
    let mut clock = tokio::time::interval(Duration::from_secs(1));
    loop {
        let stream = tokio::select! {
            stream = incoming.recv() => stream,
            _ = clock.tick() => {
                halves.retain(|_, (born, _)| born.elapsed() < CREATION);
                continue;
            }
            Some(_) = running.join_next() => continue,
        };
        let Some(stream) = stream else { return };
        let is_error = match value(&stream.headers, "streamtype") {
            Some("error") => true,
            Some("data") => false,
            _ => continue,
        };
        // Clients of old send no request id: the data stream follows its error stream.
        let pair = match value(&stream.headers, "requestid") {
            Some(id) => id.to_owned(),
            None if is_error => stream.id.to_string(),
            None => stream.id.saturating_sub(2).to_string(),
        };
        let Some((born, other)) = halves.remove(&pair) else {
            halves.insert(pair, (Instant::now(), stream));
            continue;
        };
        if (value(&other.headers, "streamtype") == Some("error")) == is_error {
            halves.insert(pair, (born, other));
            continue;
        }
        let (error, data) = if is_error { (stream, other) } else { (other, stream) };
        running.spawn(forward_one(error, data, request.sandbox.clone(), runtime.clone()));
    }
}

async fn forward_one(error: Incoming, data: Incoming, sandbox: String, runtime: Arc<dyn Runtime>) {
    let mut error_pipe = error.pipe;
    let port = value(&data.headers, "port").and_then(|p| p.parse::<u16>().ok()).filter(|p| *p > 0);
    let end = match port {
        Some(port) => tokio::select! {
            end = runtime.port_forward(&sandbox, port, Box::new(data.pipe)) => end,
            // The client wants no more of it, which is no failure.
            () = data.reset.cancelled() => Ok(()),
        },
        None => Err(core_types::Error::invalid_argument("port: must be a number from 1 to 65535")),
    };
    if let Err(e) = end {
        let _ = error_pipe.write_all(format!("error forwarding port: {e}").as_bytes()).await;
    }
    let _ = error_pipe.shutdown().await;
    // The client's end of the error stream carries nothing.
    let _ = tokio::time::timeout(Duration::from_secs(5), error_pipe.read(&mut [0])).await;
}
