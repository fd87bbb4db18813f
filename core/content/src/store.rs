use std::{io, sync::Arc, time::SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use core_types::{Descriptor, Digest, Labels, Result};

/// What a store knows of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The blob's digest.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
    /// When it was committed.
    pub created_at: SystemTime,
    /// When its labels changed last.
    pub updated_at: SystemTime,
    /// Its labels.
    pub labels: Labels,
}

/// The state of an ingest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestStatus {
    /// The writer's name for it.
    pub reference: String,
    /// Bytes written so far.
    pub offset: u64,
    /// Bytes expected in all, 0 when unknown.
    pub total: u64,
    /// The digest expected.
    pub expected: Option<Digest>,
    /// When it was opened first.
    pub started_at: SystemTime,
    /// When it was written last.
    pub updated_at: SystemTime,
}

/// How to open a writer.
#[derive(Clone, Debug, Default)]
pub struct WriterOptions {
    /// Name of the ingest; the same name resumes it.
    pub reference: String,
    /// Bytes expected in all, 0 when unknown.
    pub total: u64,
    /// Digest expected; a store that has it answers AlreadyExists.
    pub expected: Option<Digest>,
}

impl WriterOptions {
    /// A writer for the blob that `descriptor` describes.
    pub fn for_descriptor(reference: impl Into<String>, descriptor: &Descriptor) -> Self {
        Self { reference: reference.into(), total: descriptor.size, expected: Some(descriptor.digest.clone()) }
    }
}

/// Reads a blob at any offset. Blocking: call it on a blocking thread for large pieces.
pub trait Reader: Send + Sync {
    /// Length of the blob in bytes.
    fn size(&self) -> u64;
    /// Fills `buffer` from `offset`; fewer bytes only at the end of the blob.
    ///
    /// # Errors
    /// What the disk says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

/// Writes an ingest. Dropping it without a commit leaves the ingest to be resumed.
#[async_trait]
pub trait Writer: Send {
    /// Appends `data`.
    ///
    /// # Errors
    /// ResourceExhausted when the disk is full, and what else the store says.
    async fn write(&mut self, data: Bytes) -> Result<()>;
    /// Where the ingest stands.
    fn status(&self) -> IngestStatus;
    /// The digest of what was written so far.
    fn digest(&self) -> Digest;
    /// Goes back to `size` bytes; only 0 is required of a store.
    ///
    /// # Errors
    /// Unimplemented for other sizes.
    async fn truncate(&mut self, size: u64) -> Result<()>;
    /// Makes the ingest a blob with `labels`. `size` 0 and `expected` none mean "whatever it is".
    ///
    /// # Errors
    /// FailedPrecondition for another size or digest than expected; AlreadyExists when the blob is there
    /// already (the ingest is removed then).
    async fn commit(&mut self, size: u64, expected: Option<&Digest>, labels: Labels) -> Result<Digest>;
}

/// Blobs by digest, ingests by reference.
#[async_trait]
pub trait Store: Send + Sync {
    /// What is known of a blob. NotFound when it is not there.
    async fn info(&self, digest: &Digest) -> Result<Info>;
    /// Sets the labels that `fieldpaths` name (`labels`, `labels.<key>`), all when it is empty.
    /// An empty value for a named key removes the label.
    async fn update(&self, info: Info, fieldpaths: &[String]) -> Result<Info>;
    /// Blobs that any of the filters accepts (all, when there is none), in order of digest.
    async fn list(&self, filters: &[String]) -> Result<Vec<Info>>;
    /// Forgets a blob. NotFound when it is not there.
    async fn delete(&self, digest: &Digest) -> Result<()>;
    /// Opens a blob. NotFound when it is not there.
    async fn reader(&self, digest: &Digest) -> Result<Arc<dyn Reader>>;
    /// Opens or resumes an ingest. Unavailable while another writer has it, AlreadyExists when the expected
    /// blob is there.
    async fn writer(&self, options: WriterOptions) -> Result<Box<dyn Writer>>;
    /// The state of one ingest. NotFound when it is not there.
    async fn status(&self, reference: &str) -> Result<IngestStatus>;
    /// The ingests that any of the filters accepts.
    async fn list_statuses(&self, filters: &[String]) -> Result<Vec<IngestStatus>>;
    /// Throws an ingest away. NotFound when it is not there.
    async fn abort(&self, reference: &str) -> Result<()>;
}
