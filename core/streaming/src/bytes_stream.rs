use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Buf, Bytes, BytesMut};
use core_events::Any;
use core_types::{Error, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::Stream;

/// The longest piece of data in one message.
const PIECE: usize = 32 * 1024;
/// How many bytes a receiver allows to be on their way.
const WINDOW: usize = 2 * PIECE;
/// The longest message taken from a peer.
const MAX_MESSAGE: usize = 4 * 1024 * 1024;
const DATA: &str = "containerd.types.transfer.Data";
const WINDOW_UPDATE: &str = "containerd.types.transfer.WindowUpdate";

/// Bytes that come in pieces.
#[async_trait]
pub trait ByteSource: Send {
    /// The next piece, never an empty one; `None` at the end.
    ///
    /// # Errors
    /// What ended the source before its time.
    async fn next(&mut self) -> Result<Option<Bytes>>;
}

/// Takes bytes in pieces.
#[async_trait]
pub trait ByteSink: Send {
    /// Takes a piece; waits while the other side is slow.
    ///
    /// # Errors
    /// Cancelled when nobody listens any more.
    async fn write(&mut self, data: Bytes) -> Result<()>;
    /// Says that this was all.
    ///
    /// # Errors
    /// What went wrong in delivering the rest.
    async fn finish(&mut self) -> Result<()>;
}

/// Receives bytes from a [`Stream`]: `Data` messages come, `WindowUpdate` messages go.
pub struct FromStream {
    stream: Arc<dyn Stream>,
    window: usize,
    done: bool,
}

impl FromStream {
    /// Bytes that the peer of `stream` sends.
    pub fn new(stream: Arc<dyn Stream>) -> Self {
        Self { stream, window: 0, done: false }
    }
}

#[async_trait]
impl ByteSource for FromStream {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        while !self.done {
            if self.window < WINDOW {
                // The peer may have sent all and be gone: only receiving tells.
                let _ = self.stream.send(encode_window(WINDOW)).await;
                self.window += WINDOW;
            }
            let Some(message) = self.stream.receive().await? else {
                self.done = true;
                self.stream.close().await;
                break;
            };
            if short_name(&message.type_url) != DATA {
                continue;
            }
            let data = decode_data(message.value)?;
            self.window = self.window.saturating_sub(data.len());
            if !data.is_empty() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

/// Sends bytes over a [`Stream`], never more than the peer's window allows.
pub struct IntoStream {
    stream: Arc<dyn Stream>,
    window: u64,
}

impl IntoStream {
    /// Sends to the peer of `stream`.
    pub fn new(stream: Arc<dyn Stream>) -> Self {
        Self { stream, window: 0 }
    }
}

#[async_trait]
impl ByteSink for IntoStream {
    async fn write(&mut self, mut data: Bytes) -> Result<()> {
        while !data.is_empty() {
            while self.window == 0 {
                let Some(message) = self.stream.receive().await? else {
                    return Err(Error::cancelled("the receiver closed the stream before its end"));
                };
                if short_name(&message.type_url) == WINDOW_UPDATE {
                    self.window += decode_window(message.value)?;
                }
            }
            let room = usize::try_from(self.window).unwrap_or(usize::MAX);
            let piece = data.split_to(data.len().min(PIECE).min(room));
            self.window -= piece.len() as u64;
            self.stream.send(encode_data(&piece)).await?;
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        self.stream.close().await;
        Ok(())
    }
}

/// Bytes of an [`AsyncRead`], such as a file.
pub struct FromReader<R>(pub R);

#[async_trait]
impl<R: AsyncRead + Unpin + Send> ByteSource for FromReader<R> {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        let mut buffer = BytesMut::with_capacity(WINDOW);
        let count = self.0.read_buf(&mut buffer).await?;
        Ok((count > 0).then(|| buffer.freeze()))
    }
}

/// Bytes for an [`AsyncWrite`], such as a file.
pub struct IntoWriter<W>(pub W);

#[async_trait]
impl<W: AsyncWrite + Unpin + Send> ByteSink for IntoWriter<W> {
    async fn write(&mut self, data: Bytes) -> Result<()> {
        Ok(self.0.write_all(&data).await?)
    }

    async fn finish(&mut self) -> Result<()> {
        Ok(self.0.shutdown().await?)
    }
}

/// The message's name without a resolver's prefix (`type.googleapis.com/`).
fn short_name(type_url: &str) -> &str {
    type_url.rsplit('/').next().unwrap_or(type_url)
}

/// `message Data { bytes data = 1; }`
fn encode_data(data: &[u8]) -> Any {
    let mut value = BytesMut::with_capacity(data.len() + 11);
    if !data.is_empty() {
        value.extend_from_slice(&[0x0a]);
        put_varint(&mut value, data.len() as u64);
        value.extend_from_slice(data);
    }
    Any { type_url: DATA.to_owned(), value: value.freeze() }
}

/// `message WindowUpdate { int32 update = 1; }`
fn encode_window(update: usize) -> Any {
    let mut value = BytesMut::with_capacity(8);
    value.extend_from_slice(&[0x08]);
    put_varint(&mut value, update as u64);
    Any { type_url: WINDOW_UPDATE.to_owned(), value: value.freeze() }
}

fn put_varint(buffer: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        buffer.extend_from_slice(&[(value as u8) | 0x80]);
        value >>= 7;
    }
    buffer.extend_from_slice(&[value as u8]);
}

fn malformed() -> Error {
    Error::invalid_argument("malformed message on a byte stream")
}

fn take_varint(bytes: &mut Bytes) -> Result<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        if bytes.is_empty() {
            return Err(malformed());
        }
        let byte = bytes.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(malformed())
}

/// Field 1 of a message: its number when it is one, its bytes when it is those. Other fields are skipped.
fn field_one(mut bytes: Bytes) -> Result<(u64, Bytes)> {
    if bytes.len() > MAX_MESSAGE {
        return Err(Error::resource_exhausted("message on a byte stream is too long"));
    }
    let (mut number, mut data) = (0, Bytes::new());
    while !bytes.is_empty() {
        let tag = take_varint(&mut bytes)?;
        let skip = |bytes: &mut Bytes, length: u64| {
            let length = usize::try_from(length).map_err(|_| malformed())?;
            if length > bytes.len() { Err(malformed()) } else { Ok(bytes.split_to(length)) }
        };
        match tag & 7 {
            0 => {
                let value = take_varint(&mut bytes)?;
                if tag >> 3 == 1 {
                    number = value;
                }
            }
            1 => drop(skip(&mut bytes, 8)?),
            2 => {
                let length = take_varint(&mut bytes)?;
                let value = skip(&mut bytes, length)?;
                if tag >> 3 == 1 {
                    data = value;
                }
            }
            5 => drop(skip(&mut bytes, 4)?),
            _ => return Err(malformed()),
        }
    }
    Ok((number, data))
}

fn decode_data(value: Bytes) -> Result<Bytes> {
    Ok(field_one(value)?.1)
}

fn decode_window(value: Bytes) -> Result<u64> {
    let update = field_one(value)?.0;
    i32::try_from(update).ok().and_then(|update| u64::try_from(update).ok()).ok_or_else(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair;

    #[tokio::test]
    async fn bytes_cross_a_stream_in_order_and_within_the_window() {
        let (left, right) = pair(1);
        let sent: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
        let data = Bytes::from(sent.clone());
        let sender = tokio::spawn(async move {
            let mut sink = IntoStream::new(Arc::new(left));
            sink.write(data).await?;
            sink.finish().await
        });
        let mut source = FromStream::new(Arc::new(right));
        let mut received = Vec::new();
        while let Some(piece) = source.next().await.unwrap() {
            assert!(piece.len() <= PIECE);
            received.extend_from_slice(&piece);
        }
        sender.await.unwrap().unwrap();
        assert_eq!(received, sent);
    }

    #[test]
    fn malformed_messages_are_refused() {
        for bytes in [&[0x0a][..], &[0x0a, 5, 1], &[0xff; 12], &[0x0b, 1], &[0x08, 0xff, 0xff, 0xff, 0xff, 0x7f]] {
            let bytes = Bytes::copy_from_slice(bytes);
            assert!(decode_data(bytes.clone()).is_err() || decode_window(bytes).is_err());
        }
    }
}
