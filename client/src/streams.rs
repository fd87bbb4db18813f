use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hasher as _},
};

use bytes::Bytes;
use containerd_api::{
    any,
    services::streaming::v1::StreamInit,
    types::transfer::{Data, WindowUpdate},
};
use prost::Message as _;
use prost_types::Any;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    sync::mpsc,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::{Client, Error, Result};

/// Names of the messages on a stream.
const STREAM_INIT: &str = "containerd.services.streaming.v1.StreamInit";
const DATA: &str = "containerd.types.transfer.Data";
const WINDOW_UPDATE: &str = "containerd.types.transfer.WindowUpdate";

/// Most bytes in one message, and how far a sender may run ahead, as Go's side has them.
const MAX_DATA: usize = 32 * 1024;
const WINDOW: i32 = 64 * 1024;

/// Both ways of a stream that the daemon knows by an id.
#[derive(Debug)]
pub struct MessageStream {
    sender: mpsc::Sender<Any>,
    receiver: Streaming<Any>,
}

/// An id that no other stream has.
pub(crate) fn stream_id(prefix: &str) -> String {
    let random = RandomState::new().build_hasher().finish();
    format!("{prefix}-{}-{random:016x}", std::process::id())
}

impl Client {
    /// Opens a stream and registers it under `id`, which other calls then name.
    ///
    /// # Errors
    /// AlreadyExists for an id in use.
    pub async fn stream(&self, id: &str) -> Result<MessageStream> {
        let (sender, requests) = mpsc::channel(8);
        // The channel has room, so this does not wait.
        let _ = sender.send(any::pack(STREAM_INIT, &StreamInit { id: id.to_owned() })).await;
        let mut receiver = self.streaming_service().stream(ReceiverStream::new(requests)).await?.into_inner();
        // The daemon answers once the id can be used.
        receiver.message().await?.ok_or(Error::Incomplete("stream acknowledgement"))?;
        Ok(MessageStream { sender, receiver })
    }
}

impl MessageStream {
    /// Sends a message; waits while the other side is slow.
    ///
    /// # Errors
    /// Unavailable when the other side has ended the stream.
    pub async fn send(&self, message: Any) -> Result<()> {
        self.sender
            .send(message)
            .await
            .map_err(|_| Error::Local(core_types::Error::unavailable("the daemon ended the stream")))
    }

    /// The next message; `None` when the other side is done.
    ///
    /// # Errors
    /// What the daemon says.
    pub async fn receive(&mut self) -> Result<Option<Any>> {
        Ok(self.receiver.message().await?)
    }
}

/// Sends all of `reader` in pieces, no further ahead than the daemon's window allows.
///
/// # Errors
/// What reading says; that the daemon ended the stream early is no error, its call tells why.
pub async fn send_bytes(stream: MessageStream, mut reader: impl AsyncRead + Unpin) -> Result<()> {
    let MessageStream { sender, mut receiver } = stream;
    let mut window: i64 = 0;
    let mut buffer = vec![0; MAX_DATA];
    loop {
        while window <= 0 {
            match receiver.message().await? {
                Some(update) => window += window_update(&update)?,
                None => return Ok(()),
            }
        }
        let allowed = usize::try_from(window).unwrap_or(usize::MAX).min(MAX_DATA);
        let count = reader.read(&mut buffer[..allowed]).await.map_err(|error| Error::io("read what is sent", error))?;
        if count == 0 {
            break;
        }
        window -= i64::try_from(count).unwrap_or(i64::MAX);
        let data = any::pack(DATA, &Data { data: buffer[..count].to_vec() });
        if sender.send(data).await.is_err() {
            return Ok(());
        }
    }
    // Ending the sending half tells the daemon; its own end is awaited so that nothing is cut off.
    drop(sender);
    while receiver.message().await.ok().flatten().is_some() {}
    Ok(())
}

fn window_update(message: &Any) -> Result<i64> {
    if !any::is(message, WINDOW_UPDATE) {
        return Ok(0);
    }
    let update = WindowUpdate::decode(message.value.as_slice()).map_err(|_| Error::Incomplete("window update"))?;
    Ok(i64::from(update.update.max(0)))
}

/// Receives bytes that the daemon sends.
#[derive(Debug)]
pub struct ByteReceiver {
    stream: MessageStream,
    window: i32,
}

impl ByteReceiver {
    /// Receives from a stream.
    pub fn new(stream: MessageStream) -> Self {
        Self { stream, window: 0 }
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// What the daemon says.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if self.window < WINDOW {
                let update = any::pack(WINDOW_UPDATE, &WindowUpdate { update: WINDOW });
                // Whether the other side is done shows in receiving.
                if self.stream.send(update).await.is_ok() {
                    self.window += WINDOW;
                }
            }
            let Some(message) = self.stream.receive().await? else { return Ok(None) };
            if !any::is(&message, DATA) {
                continue;
            }
            let data = Data::decode(message.value.as_slice()).map_err(|_| Error::Incomplete("data"))?.data;
            self.window = self.window.saturating_sub(i32::try_from(data.len()).unwrap_or(i32::MAX));
            return Ok(Some(Bytes::from(data)));
        }
    }
}
