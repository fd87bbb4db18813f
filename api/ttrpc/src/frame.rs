//! Frames: the ten byte header and its body, read so that a bad length never loses step.

use std::io;

use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{RESOURCE_EXHAUSTED, Status};

/// The largest body that either side accepts, in bytes.
pub const MAX_BODY: usize = 4 << 20;
/// Bytes of a frame's header.
const HEADER: usize = 10;

/// A frame type: request.
pub(crate) const REQUEST: u8 = 1;
/// A frame type: response.
pub(crate) const RESPONSE: u8 = 2;

/// A received frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) stream: u32,
    pub(crate) kind: u8,
    /// The body; an oversized one was read over and is reported here.
    pub(crate) body: Result<Vec<u8>, Status>,
}

/// Reads the next frame; none at a clean end of the connection.
pub(crate) async fn read<R: AsyncRead + Unpin>(from: &mut R) -> io::Result<Option<Frame>> {
    let mut header = [0; HEADER];
    if from.read(&mut header[..1]).await? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut header[1..]).await?;
    let [l0, l1, l2, l3, s0, s1, s2, s3, kind, _flags] = header;
    let length = u64::from(u32::from_be_bytes([l0, l1, l2, l3]));
    let stream = u32::from_be_bytes([s0, s1, s2, s3]);
    let mut limited = (&mut *from).take(length);
    let body = if length > MAX_BODY as u64 {
        let skipped = tokio::io::copy(&mut limited, &mut tokio::io::sink()).await?;
        complete(skipped, length)?;
        Err(too_large(length))
    } else {
        // The buffer grows with what really arrives, not with what the header claims.
        let mut body = Vec::with_capacity(length.min(4096) as usize);
        limited.read_to_end(&mut body).await?;
        complete(body.len() as u64, length)?;
        Ok(body)
    };
    Ok(Some(Frame { stream, kind, body }))
}

fn complete(got: u64, wanted: u64) -> io::Result<()> {
    if got == wanted { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn too_large(length: u64) -> Status {
    Status::new(RESOURCE_EXHAUSTED, format!("message of {length} bytes exceeds the limit of {MAX_BODY} bytes"))
}

/// Encodes a frame, refusing one that the peer would refuse. The stream id is filled in by [`address`].
pub(crate) fn encode<M: Message>(kind: u8, message: &M) -> Result<Vec<u8>, Status> {
    let length = message.encoded_len();
    if length > MAX_BODY {
        return Err(too_large(length as u64));
    }
    let mut frame = Vec::with_capacity(HEADER + length);
    frame.extend_from_slice(&(length as u32).to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, 0, kind, 0]);
    // A Vec grows as needed: encoding into it cannot run out of room.
    message.encode_raw(&mut frame);
    Ok(frame)
}

/// Sets the stream id of an encoded frame.
pub(crate) fn address(frame: &mut [u8], stream: u32) {
    if let Some(place) = frame.get_mut(4..8) {
        place.copy_from_slice(&stream.to_be_bytes());
    }
}
