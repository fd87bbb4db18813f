use std::{io::Read, sync::Arc};

use async_trait::async_trait;
use core_content::Store;
use core_mount::Mount;
use core_types::{Descriptor, Digest, Labels, Result};

/// How to apply a layer.
#[derive(Clone, Debug, Default)]
pub struct ApplyOptions {
    /// Flush the file system of the snapshot before it is reported done.
    pub sync: bool,
}

/// What applying a layer found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Digest of the uncompressed layer, its diff id.
    pub diff_id: Digest,
    /// Length of the uncompressed layer in bytes.
    pub size: u64,
}

/// Extracts layers.
#[async_trait]
pub trait Applier: Send + Sync {
    /// Extracts the blob `layer` of `content` into what `mounts` describe.
    async fn apply(
        &self,
        content: Arc<dyn Store>,
        layer: &Descriptor,
        mounts: &[Mount],
        options: ApplyOptions,
    ) -> Result<Applied>;

    /// Extracts a layer from a stream of its (maybe compressed) bytes, while they arrive. Runs `stream` on a
    /// blocking thread and reads it to its end.
    async fn apply_stream(
        &self,
        stream: Box<dyn Read + Send>,
        mounts: &[Mount],
        options: ApplyOptions,
    ) -> Result<Applied>;
}

/// How to write a layer.
#[derive(Clone, Debug, Default)]
pub struct CompareOptions {
    /// Media type of the layer (default: OCI gzip), which chooses the compression.
    pub media_type: String,
    /// Name of the ingest (default: a unique one).
    pub reference: String,
    /// Labels of the blob.
    pub labels: Labels,
    /// Seconds since the epoch that no time in the layer exceeds (`SOURCE_DATE_EPOCH`).
    pub source_date_epoch: Option<i64>,
}

/// Makes layers of the differences of two trees.
#[async_trait]
pub trait Comparer: Send + Sync {
    /// Writes to `content` the layer that makes `lower` into `upper`; its label `containerd.io/uncompressed`
    /// is the diff id.
    async fn compare(
        &self,
        content: Arc<dyn Store>,
        lower: &[Mount],
        upper: &[Mount],
        options: CompareOptions,
    ) -> Result<Descriptor>;
}

/// What a differ plugin leaves in the plugin set: both halves under one name.
#[derive(Clone)]
pub struct Differ {
    /// Extracts.
    pub applier: Arc<dyn Applier>,
    /// Compares.
    pub comparer: Arc<dyn Comparer>,
}
