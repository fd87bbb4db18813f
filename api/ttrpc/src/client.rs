//! The client: any number of calls in flight over one connection.

use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prost::Message;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    net::UnixStream,
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};

use crate::{
    Context, DEADLINE_EXCEEDED, INTERNAL, Status, UNAVAILABLE, frame,
    wire::{Request, Response},
};

/// Frames that wait for the writer before callers wait too.
const SEND_QUEUE: usize = 32;

type Answer = Result<Vec<u8>, Status>;

/// One connection to a server; clones share it. It closes when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    frames: mpsc::Sender<Vec<u8>>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Inner {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

#[derive(Debug)]
struct Shared {
    calls: Mutex<Calls>,
    closed: watch::Sender<bool>,
}

#[derive(Debug)]
struct Calls {
    next: u32,
    waiting: HashMap<u32, oneshot::Sender<Answer>>,
}

impl Shared {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the connection dead; everyone who waits is told.
    fn close(&self) {
        self.closed.send_replace(true);
        self.calls().waiting.clear();
    }
}

/// Takes the call out of the table when its caller goes away first.
struct Waiting<'a>(&'a Shared, u32);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.calls().waiting.remove(&self.1);
    }
}

impl Client {
    /// Connects to the Unix socket at `path`.
    ///
    /// # Errors
    /// What connecting fails with.
    pub async fn connect(path: &Path) -> io::Result<Self> {
        Ok(Self::from_stream(UnixStream::connect(path).await?))
    }

    /// A client that speaks over a connected socket. To be called within a tokio runtime.
    pub fn from_stream(stream: UnixStream) -> Self {
        let (read, write) = stream.into_split();
        Self::from_halves(read, write)
    }

    /// A client that speaks over any two directions of bytes. To be called within a tokio runtime.
    pub fn from_halves<R, W>(read: R, write: W) -> Self
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let calls = Mutex::new(Calls { next: 1, waiting: HashMap::new() });
        let shared = Arc::new(Shared { calls, closed: watch::Sender::new(false) });
        let (frames, queue) = mpsc::channel(SEND_QUEUE);
        let reader = tokio::spawn(receive(read, shared.clone()));
        let writer = tokio::spawn(send(write, queue, shared.clone()));
        Self(Arc::new(Inner { shared, frames, tasks: [reader, writer] }))
    }

    /// Calls a unary method.
    ///
    /// # Errors
    /// The server's status, Unavailable when the connection is gone, DeadlineExceeded, ResourceExhausted when
    /// a message is too large.
    pub async fn call<Q: Message, A: Message + Default>(
        &self,
        service: &str,
        method: &str,
        context: &Context,
        request: &Q,
    ) -> Result<A, Status> {
        let envelope = Request::new(service, method, context, request.encode_to_vec());
        let frame = frame::encode(frame::REQUEST, &envelope)?;
        drop(envelope);
        let answer = match context.timeout {
            None => self.exchange(frame).await?,
            Some(limit) => tokio::time::timeout(limit, self.exchange(frame)).await.map_err(|_| {
                Status::new(DEADLINE_EXCEEDED, format!("{service}/{method}: no answer within {limit:?}"))
            })??,
        };
        A::decode(answer.as_slice())
            .map_err(|error| Status::new(INTERNAL, format!("{service}/{method}: answer is malformed: {error}")))
    }

    async fn exchange(&self, mut frame: Vec<u8>) -> Answer {
        let shared = &self.0.shared;
        let place = self.0.frames.reserve().await.map_err(|_| gone())?;
        let (sender, receiver) = oneshot::channel();
        let waiting = {
            // Ids must reach the wire in rising order, so they are given out while the queue place is held.
            let mut calls = shared.calls();
            if *shared.closed.borrow() {
                return Err(gone());
            }
            let id = calls.next;
            let Some(next) = id.checked_add(2) else {
                return Err(Status::new(UNAVAILABLE, "connection has used up its stream ids: reconnect"));
            };
            calls.next = next;
            calls.waiting.insert(id, sender);
            frame::address(&mut frame, id);
            place.send(frame);
            Waiting(shared, id)
        };
        let answer = receiver.await.unwrap_or_else(|_| Err(gone()));
        drop(waiting);
        answer
    }

    /// Resolves when the connection is gone.
    pub async fn closed(&self) {
        let mut closed = self.0.shared.closed.subscribe();
        // The sender lives as long as self, so waiting cannot fail.
        let _ = closed.wait_for(|closed| *closed).await;
    }

    /// Whether the connection is gone.
    pub fn is_closed(&self) -> bool {
        *self.0.shared.closed.borrow()
    }
}

fn gone() -> Status {
    Status::new(UNAVAILABLE, "ttrpc: connection is closed")
}

async fn receive<R: AsyncRead + Unpin>(read: R, shared: Arc<Shared>) {
    let mut read = BufReader::with_capacity(4096, read);
    while let Ok(Some(frame)) = frame::read(&mut read).await {
        if frame.kind != frame::RESPONSE {
            continue;
        }
        // An answer that nobody waits for any more is dropped.
        let Some(caller) = shared.calls().waiting.remove(&frame.stream) else { continue };
        let answer = frame.body.and_then(|body| {
            Response::decode(body.as_slice())
                .map_err(|error| Status::new(INTERNAL, format!("ttrpc: malformed response: {error}")))?
                .into_result()
        });
        let _ = caller.send(answer);
    }
    shared.close();
}

async fn send<W: AsyncWrite + Unpin>(mut write: W, mut queue: mpsc::Receiver<Vec<u8>>, shared: Arc<Shared>) {
    while let Some(frame) = queue.recv().await {
        if write.write_all(&frame).await.is_err() {
            break;
        }
    }
    shared.close();
}
