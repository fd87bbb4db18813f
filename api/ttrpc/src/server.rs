//! The server: a router of methods and the loops that serve connections.

use std::{collections::HashMap, future::Future, pin::Pin, sync::Arc, time::Duration};

use prost::Message;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    Context, DEADLINE_EXCEEDED, INTERNAL, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, Status, frame,
    frame::Frame,
    wire::{Request, Response},
};

/// Requests that one connection can have in flight; one more is answered with ResourceExhausted.
pub const MAX_CONCURRENT: usize = 1024;
/// Answers that wait for a slow peer before their handlers wait too.
const SEND_QUEUE: usize = 32;
/// How long a stopping server lets running requests finish.
const GRACE: Duration = Duration::from_secs(1);

type Handled = Pin<Box<dyn Future<Output = Result<Vec<u8>, Status>> + Send>>;
type Handler = Box<dyn Fn(Context, Vec<u8>) -> Handled + Send + Sync>;

/// The methods that a server offers.
#[derive(Default)]
pub struct Router {
    methods: HashMap<(&'static str, &'static str), Handler>,
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.methods.keys()).finish()
    }
}

impl Router {
    /// Adds a unary method. The handler's future is dropped when the caller's deadline passes or its
    /// connection ends: what must finish belongs in a task of its own.
    pub fn unary<Q, A, F, R>(&mut self, service: &'static str, method: &'static str, handler: F)
    where
        Q: Message + Default + 'static,
        A: Message + 'static,
        F: Fn(Context, Q) -> R + Send + Sync + 'static,
        R: Future<Output = Result<A, Status>> + Send + 'static,
    {
        let handler: Handler = Box::new(move |context, payload| match Q::decode(payload.as_slice()) {
            Ok(request) => {
                let answer = handler(context, request);
                Box::pin(async move { answer.await.map(|answer| answer.encode_to_vec()) })
            }
            Err(error) => {
                let status = Status::new(INVALID_ARGUMENT, format!("{service}/{method}: malformed request: {error}"));
                Box::pin(std::future::ready(Err(status)))
            }
        });
        self.methods.insert((service, method), handler);
    }

    async fn answer(&self, body: Vec<u8>) -> Result<Vec<u8>, Status> {
        let mut request = Request::decode(body.as_slice())
            .map_err(|error| Status::new(INVALID_ARGUMENT, format!("ttrpc: malformed request: {error}")))?;
        drop(body);
        let context = request.take_context();
        let key = (request.service.as_str(), request.method.as_str());
        let Some(handler) = self.methods.get(&key) else {
            return Err(Status::unimplemented(format!("method {}/{} is not implemented", key.0, key.1)));
        };
        let timeout = context.timeout;
        let work = handler(context, std::mem::take(&mut request.payload));
        match timeout {
            None => work.await,
            Some(limit) => tokio::time::timeout(limit, work)
                .await
                .unwrap_or_else(|_| Err(Status::new(DEADLINE_EXCEEDED, format!("no result within {limit:?}")))),
        }
    }
}

/// Serves routers on sockets.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Accepts and serves connections until `shutdown` resolves; running requests then get a second to finish.
    pub async fn serve(listener: UnixListener, router: Arc<Router>, shutdown: impl Future<Output = ()>) {
        serve(listener, router, shutdown, |_| true).await;
    }

    /// Like [`Server::serve`], but a peer that is neither this process's user nor root is hung up on.
    pub async fn serve_same_user(listener: UnixListener, router: Arc<Router>, shutdown: impl Future<Output = ()>) {
        let own = std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)).ok();
        let trusted =
            move |stream: &UnixStream| stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || Some(peer.uid()) == own);
        serve(listener, router, shutdown, trusted).await;
    }

    /// Serves one connection until its peer is gone.
    pub async fn serve_stream(stream: UnixStream, router: Arc<Router>) {
        let (read, write) = stream.into_split();
        Self::serve_halves(read, write, router).await;
    }

    /// Serves one connection over any two directions of bytes until its peer is gone.
    pub async fn serve_halves<R, W>(read: R, write: W, router: Arc<Router>)
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (_keep, never) = watch::channel(false);
        connection(read, write, router, never).await;
    }
}

async fn serve(
    listener: UnixListener,
    router: Arc<Router>,
    shutdown: impl Future<Output = ()>,
    trusted: impl Fn(&UnixStream) -> bool,
) {
    let (stop, stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if trusted(&stream) => {
                    let (read, write) = stream.into_split();
                    connections.spawn(connection(read, write, router.clone(), stopping.clone()));
                }
                Ok(_) => {}
                // Out of descriptors or memory: wait for some to come back rather than spin.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
        }
    }
    drop(listener);
    stop.send_replace(true);
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(GRACE * 2, all).await;
}

async fn connection<R, W>(read: R, write: W, router: Arc<Router>, mut stopping: watch::Receiver<bool>)
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (frames, queue) = mpsc::channel(SEND_QUEUE);
    let mut writer = JoinSet::new();
    writer.spawn(send(write, queue));
    // Dropping the set, for instance because the peer is gone, cancels what runs.
    let mut running = JoinSet::new();
    let stopped = tokio::select! {
        () = receive(read, &router, &mut running, &frames) => false,
        _ = stopping.wait_for(|stop| *stop) => true,
        _ = writer.join_next() => false,
    };
    if stopped {
        let finish = async { while running.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(GRACE, finish).await;
        running.abort_all();
        while running.join_next().await.is_some() {}
        drop(frames);
        let _ = tokio::time::timeout(GRACE, writer.join_next()).await;
    }
}

async fn receive<R: AsyncRead + Unpin>(
    read: R,
    router: &Arc<Router>,
    running: &mut JoinSet<()>,
    frames: &mpsc::Sender<Vec<u8>>,
) {
    let mut read = BufReader::with_capacity(4096, read);
    let mut last = 0;
    while let Ok(Some(frame)) = frame::read(&mut read).await {
        while running.try_join_next().is_some() {}
        let stream = frame.stream;
        match admit(frame, &mut last, running.len()) {
            Ok(Some(body)) => {
                let mut reply = Reply { stream, frames: frames.clone(), open: true };
                let router = router.clone();
                running.spawn(async move {
                    let answer = router.answer(body).await;
                    reply.send(answer).await;
                });
            }
            Ok(None) => {}
            Err(status) => Reply { stream, frames: frames.clone(), open: true }.send(Err(status)).await,
        }
    }
}

/// Decides about a frame: the body of a request to run, nothing, or a refusal.
fn admit(frame: Frame, last: &mut u32, running: usize) -> Result<Option<Vec<u8>>, Status> {
    if frame.stream.is_multiple_of(2) {
        return Err(Status::new(INVALID_ARGUMENT, "ttrpc: stream ids of a client are odd"));
    }
    if frame.kind != frame::REQUEST {
        // A late frame of a stream that was served is of no interest any more.
        if frame.stream <= *last {
            return Ok(None);
        }
        return Err(Status::new(INVALID_ARGUMENT, format!("ttrpc: type {} cannot open a stream", frame.kind)));
    }
    if frame.stream <= *last {
        return Err(Status::new(INVALID_ARGUMENT, "ttrpc: stream ids must rise"));
    }
    *last = frame.stream;
    let body = frame.body?;
    if running >= MAX_CONCURRENT {
        let message = format!("connection has {MAX_CONCURRENT} requests in flight already");
        return Err(Status::new(RESOURCE_EXHAUSTED, message));
    }
    Ok(Some(body))
}

/// The duty to answer a request: one that ends by panic is still answered.
struct Reply {
    stream: u32,
    frames: mpsc::Sender<Vec<u8>>,
    open: bool,
}

impl Reply {
    fn encode(&self, answer: Result<Vec<u8>, Status>) -> Vec<u8> {
        let response = answer.map_or_else(Response::from, |payload| Response { status: None, payload });
        let mut frame = frame::encode(frame::RESPONSE, &response)
            .or_else(|status| frame::encode(frame::RESPONSE, &Response::from(status)))
            .unwrap_or_default();
        frame::address(&mut frame, self.stream);
        frame
    }

    async fn send(&mut self, answer: Result<Vec<u8>, Status>) {
        let frame = self.encode(answer);
        // A closed queue means that the peer is gone.
        let _ = self.frames.send(frame).await;
        self.open = false;
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.open {
            let status = Status::new(INTERNAL, "request was given up: its handler failed or the server stops");
            let _ = self.frames.try_send(self.encode(Err(status)));
        }
    }
}

async fn send<W: AsyncWrite + Unpin>(mut write: W, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = queue.recv().await {
        if write.write_all(&frame).await.is_err() {
            break;
        }
    }
}
