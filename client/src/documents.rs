use std::{io, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use core_content::{Info, IngestStatus, Reader, Store, Writer, WriterOptions};
use core_images::MAX_DOCUMENT;
use core_types::{Digest, Error, Result};

use crate::{Client, convert};

/// The daemon's content store as image walking sees it: information of blobs, and the small ones among them
/// (manifests, indexes, configurations) whole.
pub(crate) struct Documents(pub(crate) Client);

/// A document in memory.
struct Document(Bytes);

impl Reader for Document {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.0.len());
        let count = buffer.len().min(self.0.len() - start);
        buffer[..count].copy_from_slice(&self.0[start..start + count]);
        Ok(count)
    }
}

fn read_only() -> Error {
    Error::unimplemented("only reading of documents is offered here")
}

#[async_trait]
impl Store for Documents {
    async fn info(&self, digest: &Digest) -> Result<Info> {
        let info = self.0.content().info(digest).await?;
        Ok(Info {
            digest: Digest::parse(&info.digest)?,
            size: u64::try_from(info.size).unwrap_or(0),
            created_at: convert::timestamp_to_system(info.created_at.as_ref()),
            updated_at: convert::timestamp_to_system(info.updated_at.as_ref()),
            labels: info.labels,
        })
    }

    async fn reader(&self, digest: &Digest) -> Result<Arc<dyn Reader>> {
        let limit = usize::try_from(MAX_DOCUMENT).unwrap_or(usize::MAX);
        Ok(Arc::new(Document(self.0.content().read_all(digest, limit).await?)))
    }

    async fn update(&self, _info: Info, _fieldpaths: &[String]) -> Result<Info> {
        Err(read_only())
    }

    async fn list(&self, _filters: &[String]) -> Result<Vec<Info>> {
        Err(read_only())
    }

    async fn delete(&self, _digest: &Digest) -> Result<()> {
        Err(read_only())
    }

    async fn writer(&self, _options: WriterOptions) -> Result<Box<dyn Writer>> {
        Err(read_only())
    }

    async fn status(&self, _reference: &str) -> Result<IngestStatus> {
        Err(read_only())
    }

    async fn list_statuses(&self, _filters: &[String]) -> Result<Vec<IngestStatus>> {
        Err(read_only())
    }

    async fn abort(&self, _reference: &str) -> Result<()> {
        Err(read_only())
    }
}
