use async_trait::async_trait;
use bytes::Bytes;
use core_types::{Descriptor, Result};

/// Where content comes from: a registry, usually.
#[async_trait]
pub trait Fetcher: Send + Sync {
    /// Opens a blob or manifest from `offset` on.
    ///
    /// # Errors
    /// NotFound when the source has it not, and what else the source says.
    async fn fetch(&self, descriptor: &Descriptor, offset: u64) -> Result<Box<dyn Download>>;
}

/// Content on its way.
#[async_trait]
pub trait Download: Send {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// What ended the download before its time.
    async fn next(&mut self) -> Result<Option<Bytes>>;
}
