//! One SPDY connection, as its server: streams of the client become duplex pipes of bounded size.
//!
//! The clients of Kubernetes neither keep to windows nor open them, so windows bind our writing only once the client
//! has opened one; the transport and the bounded pipes hold both sides back before.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::frame::{Frame, Head, Malformed};
use super::header::{Decoder, Encoder, Headers};
use crate::api::Duplex;
use crate::session::{Activity, KEEPALIVE, PIPE};

/// Most streams of one connection.
const MAX_STREAMS: usize = 512;
/// Payload of the data frames that are sent, in bytes.
const CHUNK: usize = 16 << 10;
/// The window a stream begins with, in bytes.
const WINDOW: i64 = 64 << 10;
/// What was read before the client is told, in bytes.
const UPDATE: u32 = 16 << 10;

const PROTOCOL_ERROR: u32 = 1;
const REFUSED_STREAM: u32 = 3;
const CANCEL: u32 = 5;
const FLOW_CONTROL_ERROR: u32 = 7;

/// A stream that the client opened.
pub(crate) struct Incoming {
    pub(crate) id: u32,
    pub(crate) headers: Headers,
    /// Reads what the client sends; what is written goes to the client.
    pub(crate) pipe: DuplexStream,
    /// Cancelled when the client gives the stream up.
    pub(crate) reset: CancellationToken,
}

/// What a connection is given.
pub(crate) struct Limits {
    /// Cancelled when the session has dropped its streams: what they hold is sent, then the connection ends.
    pub(crate) finish: CancellationToken,
    /// Longest time without a frame.
    pub(crate) idle: Duration,
    /// How long one stream that does not take its data may hold up the others before it is reset.
    pub(crate) stall: Option<Duration>,
}

/// `None` ends the connection.
type Outbox = mpsc::Sender<Option<Frame>>;

#[derive(Default)]
struct Window(Mutex<(i64, bool)>, Notify);

impl Window {
    fn open(&self, delta: u32) -> Result<(), ()> {
        let mut window = self.0.lock().unwrap_or_else(|e| e.into_inner());
        window.0 += i64::from(delta);
        window.1 = true;
        self.1.notify_one();
        if window.0 + WINDOW > i64::from(i32::MAX) { Err(()) } else { Ok(()) }
    }

    /// How much of `most` may be sent now; waits until it is something.
    async fn take(&self, most: usize) -> usize {
        loop {
            {
                let mut window = self.0.lock().unwrap_or_else(|e| e.into_inner());
                let left = if window.1 { usize::try_from(window.0 + WINDOW).unwrap_or(0) } else { most };
                let taken = left.min(most);
                if taken > 0 {
                    window.0 -= taken as i64;
                    return taken;
                }
            }
            self.1.notified().await;
        }
    }
}

struct Stream {
    inbound: Option<WriteHalf<DuplexStream>>,
    window: Arc<Window>,
    /// Our end is sent.
    done: Arc<AtomicBool>,
    pump: CancellationToken,
    unreported: u32,
}

struct Receiver<R> {
    io: R,
    activity: Activity,
    outbox: Outbox,
    incoming: mpsc::Sender<Incoming>,
    decoder: Decoder,
    encoder: Encoder,
    streams: HashMap<u32, Stream>,
    last: u32,
    unreported: u32,
    pumps: TaskTracker,
    stop: CancellationToken,
    stall: Option<Duration>,
}

/// Serves the connection until the client is gone, errs or idles, or until `limits.finish`.
pub(crate) async fn serve(io: impl Duplex, incoming: mpsc::Sender<Incoming>, limits: Limits) {
    let (read, write) = tokio::io::split(io);
    let (outbox, queue) = mpsc::channel(16);
    let activity = Activity::new();
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let pumps = TaskTracker::new();
    let receiver = Receiver {
        io: read,
        activity: activity.clone(),
        outbox: outbox.clone(),
        incoming,
        decoder: Decoder::new(),
        encoder: Encoder::new(),
        streams: HashMap::new(),
        last: 0,
        unreported: 0,
        pumps: pumps.clone(),
        stop,
        stall: limits.stall,
    };
    let mut reading = std::pin::pin!(receiver.run());
    let mut writing = std::pin::pin!(send(write, queue, activity.clone()));
    let ending = async {
        limits.finish.cancelled().await;
        pumps.close();
        pumps.wait().await;
        let _ = outbox.send(None).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        end = &mut reading => {
            if let Err(malformed) = end {
                tracing::debug!(reason = malformed.0, "a SPDY client broke the protocol");
                let _ = outbox.try_send(Some(Frame::GoAway { last: 0, status: PROTOCOL_ERROR }));
                let _ = outbox.try_send(None);
                let _ = tokio::time::timeout(Duration::from_secs(5), writing).await;
            }
        }
        // Bytes of the client that nobody read would make the kernel throw away what was just sent.
        ended = &mut writing => if ended {
            let _ = tokio::time::timeout(Duration::from_secs(5), reading).await;
        },
        () = activity.idle(limits.idle) => tracing::debug!("a streaming connection was idle for too long"),
        () = ending => {}
    }
}

/// Sends what is queued, and pings; whether that came to its end.
async fn send(mut io: impl AsyncWrite + Unpin, mut queue: mpsc::Receiver<Option<Frame>>, activity: Activity) -> bool {
    let mut raw = BytesMut::new();
    // Even ones are ours.
    let mut pings = (2..).step_by(2);
    loop {
        let frame = match tokio::time::timeout(KEEPALIVE, queue.recv()).await {
            Ok(Some(Some(frame))) => frame,
            Ok(_) => break,
            Err(_) => Frame::Ping(pings.next().unwrap_or(2)),
        };
        if !matches!(frame, Frame::Ping(_)) {
            activity.touch();
        }
        frame.write(&mut raw);
        if io.write_all_buf(&mut raw).await.is_err() || (queue.is_empty() && io.flush().await.is_err()) {
            return false;
        }
    }
    let _ = io.shutdown().await;
    true
}

async fn pump(mut from: ReadHalf<DuplexStream>, stream: u32, window: Arc<Window>, outbox: Outbox) {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK);
        match from.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        while !buffer.is_empty() {
            let size = window.take(buffer.len().min(CHUNK)).await;
            let data = buffer.split_to(size).freeze();
            if outbox.send(Some(Frame::Data { stream, fin: false, data })).await.is_err() {
                return;
            }
        }
    }
    let _ = outbox.send(Some(Frame::Data { stream, fin: true, data: Bytes::new() })).await;
}

impl<R: AsyncRead + Unpin> Receiver<R> {
    /// Ends without error when the client is gone.
    async fn run(mut self) -> Result<(), Malformed> {
        loop {
            let mut head = [0; 8];
            if self.io.read_exact(&mut head).await.is_err() {
                return Ok(());
            }
            let head = Head::parse(head)?;
            let mut payload = vec![0; head.length];
            if self.io.read_exact(&mut payload).await.is_err() {
                return Ok(());
            }
            let frame = Frame::parse(head, payload.into())?;
            if !matches!(frame, Frame::Ping(_)) {
                self.activity.touch();
            }
            if self.handle(frame).await?.is_none() {
                return Ok(());
            }
        }
    }

    /// `None` when nothing can be sent any more.
    async fn handle(&mut self, frame: Frame) -> Result<Option<()>, Malformed> {
        Ok(match frame {
            Frame::SynStream { stream, fin, block } => {
                let headers = self.decoder.decode(&block)?;
                self.open(stream, fin, headers).await?
            }
            Frame::Headers { stream, fin, block } => {
                self.decoder.decode(&block)?;
                if fin { self.data(stream, true, Bytes::new()).await } else { Some(()) }
            }
            Frame::SynReply { .. } => return Err(Malformed("a reply to nothing")),
            Frame::Data { stream, fin, data } => self.data(stream, fin, data).await,
            Frame::Reset { stream, .. } => {
                self.close(stream);
                Some(())
            }
            // Odd ones are the client's.
            Frame::Ping(id) if id % 2 == 1 => self.send(Frame::Ping(id)).await,
            Frame::WindowUpdate { stream, delta } => {
                let window = self.streams.get(&stream).map(|s| s.window.open(delta));
                if window == Some(Err(())) { self.reset(stream, FLOW_CONTROL_ERROR).await } else { Some(()) }
            }
            Frame::Ping(_) | Frame::Settings | Frame::GoAway { .. } | Frame::Unknown => Some(()),
        })
    }

    async fn send(&mut self, frame: Frame) -> Option<()> {
        self.outbox.send(Some(frame)).await.ok()
    }

    fn close(&mut self, stream: u32) {
        if let Some(stream) = self.streams.remove(&stream) {
            stream.pump.cancel();
        }
    }

    async fn reset(&mut self, stream: u32, status: u32) -> Option<()> {
        self.close(stream);
        self.send(Frame::Reset { stream, status }).await
    }

    async fn open(&mut self, id: u32, fin: bool, headers: Headers) -> Result<Option<()>, Malformed> {
        if id.is_multiple_of(2) || id <= self.last {
            return Err(Malformed("stream ids must be odd and rise"));
        }
        self.last = id;
        self.forget_ended();
        if self.streams.len() >= MAX_STREAMS {
            return Ok(self.reset(id, REFUSED_STREAM).await);
        }
        let (ours, pipe) = tokio::io::duplex(PIPE);
        let (outbound, inbound) = tokio::io::split(ours);
        let pump_token = self.stop.child_token();
        if self.incoming.try_send(Incoming { id, headers, pipe, reset: pump_token.clone() }).is_err() {
            return Ok(self.reset(id, REFUSED_STREAM).await);
        }
        let block = self.encoder.encode(&[])?;
        if self.send(Frame::SynReply { stream: id, fin: false, block }).await.is_none() {
            return Ok(None);
        }
        let stream = Stream {
            inbound: Some(inbound),
            window: Arc::default(),
            done: Arc::default(),
            pump: pump_token,
            unreported: 0,
        };
        let work = pump(outbound, id, stream.window.clone(), self.outbox.clone());
        let (token, done) = (stream.pump.clone(), stream.done.clone());
        self.pumps.spawn(async move {
            token.run_until_cancelled(work).await;
            done.store(true, Ordering::Release);
        });
        self.streams.insert(id, stream);
        Ok(if fin { self.data(id, true, Bytes::new()).await } else { Some(()) })
    }

    /// Streams whose ends are both closed, or whose session is over.
    fn forget_ended(&mut self) {
        self.streams.retain(|_, stream| {
            if !stream.done.load(Ordering::Acquire) {
                return true;
            }
            // Writing nothing tells whether anybody still reads.
            let write = stream.inbound.as_mut().map(|inbound| inbound.write(&[]).now_or_never());
            !matches!(write, None | Some(Some(Err(_))))
        });
    }

    /// Data of streams that are not there (any more) is thrown away.
    async fn data(&mut self, id: u32, fin: bool, data: Bytes) -> Option<()> {
        let size = data.len() as u32;
        if let Some(stream) = self.streams.get_mut(&id) {
            if let Some(inbound) = &mut stream.inbound {
                let write = inbound.write_all(&data);
                let written = match self.stall {
                    Some(stall) => tokio::time::timeout(stall, write).await,
                    None => Ok(write.await),
                };
                match written {
                    Ok(Ok(())) if fin => {
                        let _ = inbound.shutdown().await;
                        stream.inbound = None;
                    }
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => stream.inbound = None,
                    Err(_) => return self.reset(id, CANCEL).await,
                }
            }
            stream.unreported += size;
            if stream.unreported >= UPDATE && !fin {
                let delta = std::mem::take(&mut stream.unreported);
                self.send(Frame::WindowUpdate { stream: id, delta }).await?;
            }
        }
        self.unreported += size;
        if self.unreported >= UPDATE {
            let delta = std::mem::take(&mut self.unreported);
            self.send(Frame::WindowUpdate { stream: 0, delta }).await?;
        }
        Some(())
    }
}
