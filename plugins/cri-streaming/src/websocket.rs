//! The channel protocols over WebSocket: a message's first byte names its channel. And SPDY tunnelled through one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::{Duplex, PortForwardRequest, Request, TerminalSize};
use crate::handshake::TUNNEL;
use crate::session::{self, Activity, Context, KEEPALIVE, PIPE, Pipes, RESIZES, StatusForm};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// From version 5 on: the client closes the channel in the next byte.
const CLOSE: u8 = 255;
/// The largest message that is taken, in bytes.
const MAX_MESSAGE: usize = 1 << 20;
/// Payload of the messages that are sent, in bytes.
const CHUNK: usize = 16 << 10;

/// Serves one upgraded connection with the negotiated `protocol`.
pub(crate) async fn serve(io: impl Duplex, protocol: &str, request: Request, context: Context) {
    let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let idle = context.idle;
    if protocol == TUNNEL {
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let mut channels = Channels::new(Framing::Raw);
        channels.add(0, ours, true);
        let session = crate::spdy::serve(theirs, "portforward.k8s.io", request, context);
        return channels.serve(socket, idle, None, session).await;
    }
    let framing = if protocol.contains("base64") { Framing::Base64 } else { Framing::Binary };
    match request {
        Request::PortForward(request) => forward(socket, framing, request, context).await,
        request => remote(socket, framing, protocol, request, context).await,
    }
}

async fn remote<S: Duplex>(
    socket: WebSocketStream<S>,
    framing: Framing,
    protocol: &str,
    request: Request,
    context: Context,
) {
    let wanted = request.wanted();
    let mut channels = Channels::new(framing);
    channels.closes = protocol.starts_with("v5.");
    let mut pipe = |wanted: bool, channel: u8, reads: bool| {
        wanted.then(|| {
            let (ours, theirs) = tokio::io::duplex(PIPE);
            channels.add(channel, ours, reads);
            theirs
        })
    };
    let stdin = pipe(wanted.stdin, STDIN, true);
    let stdout = pipe(wanted.stdout, STDOUT, false);
    let stderr = pipe(wanted.stderr, STDERR, false);
    let Some(error) = pipe(true, ERROR, false) else { return };
    let (sizes, resize) = mpsc::channel(RESIZES);
    channels.sizes = wanted.tty.then_some(sizes);
    let json = protocol.starts_with("v4.") || protocol.starts_with("v5.");
    let form = if json { StatusForm::Json } else { StatusForm::Text };
    // An empty message tells the client that the session is there.
    let hello = if wanted.stdout {
        STDOUT
    } else if wanted.stderr {
        STDERR
    } else {
        ERROR
    };
    let hello = framing.message(hello, Bytes::new());
    let pipes = Pipes {
        stdin: stdin.map(|p| Box::new(p) as _),
        stdout: stdout.map(|p| Box::new(p) as _),
        stderr: stderr.map(|p| Box::new(p) as _),
        resize,
        error: Box::new(error),
    };
    let session = session::run(request, context.runtime, pipes, form, None::<std::future::Pending<()>>);
    channels.serve(socket, context.idle, Some(hello), session).await;
}

/// Two channels for each port, data and error; each begins with the port's number.
async fn forward<S: Duplex>(
    socket: WebSocketStream<S>,
    framing: Framing,
    request: PortForwardRequest,
    context: Context,
) {
    let mut channels = Channels::new(framing);
    let mut sessions = Vec::new();
    // Channel numbers are bytes.
    for (port, channel) in request.ports.iter().copied().zip((0..=252).step_by(2)) {
        let (ours, mut data) = tokio::io::duplex(PIPE);
        channels.add(channel, ours, true);
        let (ours, mut error) = tokio::io::duplex(PIPE);
        channels.add(channel + 1, ours, false);
        let (runtime, sandbox) = (context.runtime.clone(), request.sandbox.clone());
        sessions.push(async move {
            let number = port.to_le_bytes();
            if data.write_all(&number).await.is_err() || error.write_all(&number).await.is_err() {
                return;
            }
            if let Err(e) = runtime.port_forward(&sandbox, port, Box::new(data)).await {
                let _ = error.write_all(format!("error forwarding port: {e}").as_bytes()).await;
            }
        });
    }
    let session = async {
        futures::future::join_all(sessions).await;
    };
    channels.serve(socket, context.idle, None, session).await;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// No channels: all is the data of channel 0.
    Raw,
    /// A byte for the channel, then the data.
    Binary,
    /// A digit for the channel, then the data in base64.
    Base64,
}

impl Framing {
    fn message(self, channel: u8, data: Bytes) -> Message {
        match self {
            Framing::Raw => Message::Binary(data),
            Framing::Binary => {
                let mut raw = BytesMut::with_capacity(data.len() + 1);
                raw.extend_from_slice(&[channel]);
                raw.extend_from_slice(&data);
                Message::Binary(raw.freeze())
            }
            Framing::Base64 => {
                let mut text = String::from(char::from(b'0'.saturating_add(channel)));
                STANDARD.encode_string(&data, &mut text);
                Message::Text(text.into())
            }
        }
    }

    fn parse(self, message: Bytes) -> Option<(u8, Bytes)> {
        match self {
            Framing::Raw => Some((0, message)),
            Framing::Binary => Some((*message.first()?, message.slice(1..))),
            Framing::Base64 => {
                let channel = message.first()?.checked_sub(b'0')?;
                Some((channel, STANDARD.decode(message.get(1..)?).ok()?.into()))
            }
        }
    }
}

/// The pipes of a session by the numbers of their channels.
struct Channels {
    framing: Framing,
    closes: bool,
    sizes: Option<mpsc::Sender<TerminalSize>>,
    inbound: Vec<(u8, WriteHalf<DuplexStream>)>,
    outbound: Vec<(u8, ReadHalf<DuplexStream>)>,
}

impl Channels {
    fn new(framing: Framing) -> Self {
        Channels { framing, closes: false, sizes: None, inbound: vec![], outbound: vec![] }
    }

    fn add(&mut self, channel: u8, pipe: DuplexStream, reads: bool) {
        let (outbound, inbound) = tokio::io::split(pipe);
        self.outbound.push((channel, outbound));
        if reads {
            self.inbound.push((channel, inbound));
        }
    }

    /// Runs `session` until it ends or the client is gone, errs or idles; what it wrote is sent in the first case.
    async fn serve<S: Duplex>(
        mut self,
        socket: WebSocketStream<S>,
        idle: std::time::Duration,
        hello: Option<Message>,
        session: impl Future<Output = ()>,
    ) {
        let activity = Activity::new();
        let (mut sink, mut source) = socket.split();
        let (outbox, mut queue) = mpsc::channel::<Message>(16);
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        let pumps = TaskTracker::new();
        for (channel, pipe) in self.outbound.drain(..) {
            let (stop, outbox, framing) = (stop.clone(), outbox.clone(), self.framing);
            pumps.spawn(async move { stop.run_until_cancelled(pump(pipe, channel, framing, outbox)).await });
        }
        let writing = async {
            if let Some(hello) = hello {
                let _ = sink.send(hello).await;
            }
            loop {
                let message = match tokio::time::timeout(KEEPALIVE, queue.recv()).await {
                    Ok(Some(message)) => {
                        activity.touch();
                        message
                    }
                    Ok(None) => break,
                    Err(_) => Message::Ping(Bytes::new()),
                };
                if sink.send(message).await.is_err() {
                    return false;
                }
            }
            // Without a code the clients take the end for a failure.
            let _ = sink.send(Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))).await;
            true
        };
        let mut reading = std::pin::pin!(async {
            while let Some(Ok(message)) = source.next().await {
                let raw = match message {
                    Message::Binary(raw) => raw,
                    Message::Text(text) => Bytes::from(text),
                    Message::Close(_) => return,
                    _ => continue,
                };
                activity.touch();
                self.receive(raw).await;
            }
        });
        let ending = async {
            session.await;
            pumps.close();
            pumps.wait().await;
            drop(outbox);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = &mut reading => {}
            closed = writing => if closed {
                let _ = tokio::time::timeout(std::time::Duration::from_secs(5), reading).await;
            },
            () = activity.idle(idle) => tracing::debug!("a streaming connection was idle for too long"),
            () = ending => {}
        }
    }

    /// Messages of channels that are not there (any more) are thrown away.
    async fn receive(&mut self, raw: Bytes) {
        let Some((channel, data)) = self.framing.parse(raw) else { return };
        if channel == CLOSE && self.closes {
            self.close(data.first().copied()).await;
        } else if channel == RESIZE && self.sizes.is_some() {
            if let (Some(sizes), Some(size)) = (&self.sizes, session::parse_size(&data)) {
                let _ = sizes.try_send(size);
            }
        } else if let Some((_, pipe)) = self.inbound.iter_mut().find(|(c, _)| *c == channel)
            && pipe.write_all(&data).await.is_err()
        {
            self.close(Some(channel)).await;
        }
    }

    async fn close(&mut self, channel: Option<u8>) {
        if let Some(at) = self.inbound.iter().position(|(c, _)| Some(*c) == channel) {
            let (_, mut pipe) = self.inbound.swap_remove(at);
            let _ = pipe.shutdown().await;
        }
    }
}

async fn pump(mut from: impl AsyncRead + Unpin, channel: u8, framing: Framing, outbox: mpsc::Sender<Message>) {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK);
        let Ok(1..) = from.read_buf(&mut buffer).await else { return };
        if outbox.send(framing.message(channel, buffer.split().freeze())).await.is_err() {
            return;
        }
    }
}
