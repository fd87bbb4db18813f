use std::{io, sync::Arc};

use bytes::{Bytes, BytesMut};
use core_types::{Descriptor, Digest, Error, Labels, Result, ResultExt};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{Reader, Store, Writer, WriterOptions};

/// Bytes that [`copy`] reads at once, at most.
const COPY_PIECE: usize = 256 * 1024;

/// Reads `reader` to its end into `writer` and returns how many bytes that were. Does not commit.
///
/// # Errors
/// What reading or writing says.
pub async fn copy<R>(mut reader: R, writer: &mut dyn Writer) -> Result<u64>
where
    R: AsyncRead + Unpin + Send,
{
    let mut copied = 0;
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(COPY_PIECE);
        let read = reader.read_buf(&mut buffer).await.doing("read content")?;
        if read == 0 {
            return Ok(copied);
        }
        copied += read as u64;
        writer.write(buffer.split().freeze()).await?;
    }
}

/// Reads a whole blob, of at most `limit` bytes, in one piece on a blocking thread.
///
/// # Errors
/// NotFound when the store does not have it, ResourceExhausted when it is longer than `limit`,
/// FailedPrecondition when its length is not the descriptor's, DataLoss when its digest is not.
pub async fn read_blob(store: &dyn Store, descriptor: &Descriptor, limit: u64) -> Result<Bytes> {
    let reader = store.reader(&descriptor.digest).await?;
    let size = reader.size();
    if size > limit {
        return Err(Error::resource_exhausted(format!(
            "blob {} of {size} bytes is longer than the {limit} bytes allowed here",
            descriptor.digest
        )));
    }
    if descriptor.size != 0 && descriptor.size != size {
        return Err(Error::failed_precondition(format!(
            "blob {} has {size} bytes, its descriptor says {}",
            descriptor.digest, descriptor.size
        )));
    }
    let digest = descriptor.digest.clone();
    run(move || {
        let mut data = vec![0; usize::try_from(size).map_err(|_| Error::resource_exhausted("blob too long"))?];
        let read = reader.read_at(&mut data, 0).doing(format_args!("read blob {digest}"))?;
        data.truncate(read);
        let mut digester = digest.algorithm().digester();
        digester.update(&data);
        let found = digester.finish();
        if found != digest {
            return Err(Error::data_loss(format!("blob {digest} is damaged on disk: its digest is {found}")));
        }
        Ok(Bytes::from(data))
    })
    .await
}

/// Writes a whole blob; one that is there already is fine.
///
/// An older half-written ingest of the same name is started anew.
///
/// # Errors
/// FailedPrecondition when `data` is not what `descriptor` says, Unavailable while another writer has
/// `reference`.
pub async fn write_blob(
    store: &dyn Store,
    reference: &str,
    data: Bytes,
    descriptor: &Descriptor,
    labels: Labels,
) -> Result<()> {
    let mut writer = match store.writer(WriterOptions::for_descriptor(reference, descriptor)).await {
        Ok(writer) => writer,
        Err(error) if error.is_already_exists() => return Ok(()),
        Err(error) => return Err(error),
    };
    if writer.status().offset > 0 {
        writer.truncate(0).await?;
    }
    writer.write(data).await?;
    match writer.commit(descriptor.size, Some(&descriptor.digest), labels).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_already_exists() => Ok(()),
        Err(error) => Err(error),
    }
}

/// A blob as a stream for blocking code, such as a decompressor.
pub struct BlobReader {
    reader: Arc<dyn Reader>,
    at: u64,
}

impl BlobReader {
    /// Starts at the first byte.
    pub fn new(reader: Arc<dyn Reader>) -> Self {
        Self { reader, at: 0 }
    }

    /// Opens the blob `digest` of `store`.
    ///
    /// # Errors
    /// NotFound when it is not there.
    pub async fn open(store: &dyn Store, digest: &Digest) -> Result<Self> {
        Ok(Self::new(store.reader(digest).await?))
    }
}

impl io::Read for BlobReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Runs `work` on a blocking thread.
pub(crate) async fn run<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::internal(format!("content worker: {error}")))?
}
