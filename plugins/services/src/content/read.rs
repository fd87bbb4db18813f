use std::sync::Arc;

use bytes::Bytes;
use containerd_api::services::content::v1::ReadContentResponse;
use core_content::Reader;
use core_types::Error;
use futures::{StreamExt, stream};
use tonic::Status;

use crate::{BoxStream, convert, status::status};

/// Bytes in one message: large enough to make few of them, small enough for any client's limit.
const PIECE: u64 = 512 * 1024;

struct Reading {
    reader: Arc<dyn Reader>,
    at: u64,
    sent: u64,
    left: u64,
}

/// The bytes of a blob from `offset`; `size` 0 means up to the end. Offsets in the answers count from the first
/// byte sent, as containerd's do.
pub(super) fn stream(
    reader: Arc<dyn Reader>,
    offset: i64,
    size: i64,
) -> Result<BoxStream<ReadContentResponse>, Status> {
    let whole = reader.size();
    let at = u64::try_from(offset).unwrap_or(0);
    if at > whole {
        return Err(Status::out_of_range(format!("read past object length {whole} bytes")));
    }
    let rest = whole - at;
    let left = u64::try_from(size).ok().filter(|&size| size > 0).map_or(rest, |size| size.min(rest));
    let reading = Reading { reader, at, sent: 0, left };
    Ok(stream::try_unfold(reading, |reading| async move { reading.next().await.map_err(status) }).boxed())
}

impl Reading {
    async fn next(mut self) -> Result<Option<(ReadContentResponse, Self)>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        let (reader, at, length) = (Arc::clone(&self.reader), self.at, self.left.min(PIECE));
        let data = tokio::task::spawn_blocking(move || read(&*reader, at, length))
            .await
            .map_err(|error| Error::internal(format!("read content: {error}")))??;
        let offset = convert::length(self.sent);
        let read = data.len() as u64;
        (self.at, self.sent, self.left) = (self.at + read, self.sent + read, self.left - read);
        Ok(Some((ReadContentResponse { offset, data }, self)))
    }
}

fn read(reader: &dyn Reader, at: u64, length: u64) -> Result<Bytes, Error> {
    let mut buffer = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    let mut filled = 0;
    while filled < buffer.len() {
        let read = reader
            .read_at(&mut buffer[filled..], at + filled as u64)
            .map_err(|error| Error::io("read content", error))?;
        if read == 0 {
            return Err(Error::data_loss("content ended before its recorded size"));
        }
        filled += read;
    }
    Ok(buffer.into())
}
