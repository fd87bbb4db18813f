//! Two connections over one: the multiplexer of NRI.
//!
//! A frame is a header of eight bytes — the connection's id and the payload's length, u32 in big endian — and the
//! payload. Connection 1 carries the calls to the plugin, 2 those to the runtime. Opening and closing are not signalled.
//!
//! Peers read through a buffer of 4 KiB and take a frame whole or not at all, so a write is cut where theirs is: the
//! first 4 KiB of a message, then its rest. A payload that is too large ends the connection; one for an unknown id is
//! read over. A peer that does not read what it is sent holds up only itself: queues are bounded, calls have deadlines.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream},
    sync::mpsc,
    task::JoinSet,
};
use tokio_util::sync::PollSender;

/// Id of the connection whose server is the plugin.
pub const PLUGIN: u32 = 1;
/// Id of the connection whose server is the runtime.
pub const RUNTIME: u32 = 2;
/// The largest payload of a frame: a message of ttrpc with its header.
pub const MAX_PAYLOAD: usize = 10 + (4 << 20);

/// What a peer is sure to read in one piece at any time.
const FIRST: usize = 4096;
/// Messages that wait for the socket before their writers wait.
const QUEUE: usize = 16;
/// Bytes that wait for a reader before the socket waits.
const BUFFER: usize = 64 << 10;

/// One of the two connections.
#[derive(Debug)]
pub struct Channel {
    /// What the peer sends.
    pub read: DuplexStream,
    /// What is sent to the peer; what one `write` is given stays one message.
    pub write: Sender,
}

/// Splits a socket into the connections [`PLUGIN`] and [`RUNTIME`]. They live as long as the tasks, which end with
/// the socket.
pub fn split<R, W>(read: R, write: W, tasks: &mut JoinSet<()>) -> (Channel, Channel)
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (frames, queue) = mpsc::channel(QUEUE);
    let (to_plugin, plugin) = tokio::io::duplex(BUFFER);
    let (to_runtime, runtime) = tokio::io::duplex(BUFFER);
    tasks.spawn(async move {
        let _ = receive(read, to_plugin, to_runtime).await;
    });
    tasks.spawn(send(write, queue));
    let channel = |id, read| Channel { read, write: Sender { id, frames: PollSender::new(frames.clone()) } };
    (channel(PLUGIN, plugin), channel(RUNTIME, runtime))
}

async fn receive<R: AsyncRead + Unpin>(read: R, mut plugin: DuplexStream, mut runtime: DuplexStream) -> io::Result<()> {
    let mut read = BufReader::new(read);
    loop {
        let mut header = [0; 8];
        read.read_exact(&mut header).await?;
        let [i0, i1, i2, i3, l0, l1, l2, l3] = header;
        let (id, length) = (u32::from_be_bytes([i0, i1, i2, i3]), u32::from_be_bytes([l0, l1, l2, l3]));
        if length as usize > MAX_PAYLOAD {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("frame of {length} bytes is too large")));
        }
        let mut payload = (&mut read).take(u64::from(length));
        let got = match id {
            PLUGIN => tokio::io::copy_buf(&mut payload, &mut plugin).await?,
            RUNTIME => tokio::io::copy_buf(&mut payload, &mut runtime).await?,
            _ => tokio::io::copy_buf(&mut payload, &mut tokio::io::sink()).await?,
        };
        if got != u64::from(length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

async fn send<W: AsyncWrite + Unpin>(mut write: W, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(frames) = queue.recv().await {
        if write.write_all(&frames).await.is_err() {
            break;
        }
    }
}

/// The sending direction of a connection.
#[derive(Debug)]
pub struct Sender {
    id: u32,
    frames: PollSender<Vec<u8>>,
}

/// A message as frames.
fn encode(id: u32, message: &[u8]) -> Vec<u8> {
    let (first, rest) = message.split_at(message.len().min(FIRST));
    let mut frames = Vec::with_capacity(message.len() + 16);
    for part in std::iter::once(first).chain(rest.chunks(MAX_PAYLOAD)) {
        frames.extend_from_slice(&id.to_be_bytes());
        frames.extend_from_slice(&(part.len() as u32).to_be_bytes());
        frames.extend_from_slice(part);
    }
    frames
}

impl AsyncWrite for Sender {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.frames.poll_reserve(context)).map_err(|_| gone())?;
        let frames = encode(self.id, data);
        self.frames.send_item(frames).map_err(|_| gone())?;
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.frames.close();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
