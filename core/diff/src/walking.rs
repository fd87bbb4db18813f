use std::{io::Read, sync::Arc};

use async_trait::async_trait;
use core_content::{BlobReader, Store};
use core_mount::Mount;
use core_types::{Descriptor, Error, Result};

use crate::{Applied, Applier, ApplyOptions, CompareOptions, Comparer, apply, compare};

/// Extracts layers onto directories and compares trees by walking them; works with every snapshotter.
#[derive(Clone, Copy, Debug, Default)]
pub struct WalkingDiffer;

impl WalkingDiffer {
    /// A differ; it has no state.
    pub fn new() -> Self {
        Self
    }
}

#[async_trait]
impl Applier for WalkingDiffer {
    /// Whatever the media type says of compression, the bytes decide.
    ///
    /// # Errors
    /// Unimplemented for blobs that are no tar layers, NotFound when the blob is missing, FailedPrecondition when
    /// it is not as long as described, InvalidArgument for broken or hostile layers, DataLoss for truncated ones,
    /// otherwise what mounting and the disk say.
    async fn apply(
        &self,
        content: Arc<dyn Store>,
        layer: &Descriptor,
        mounts: &[Mount],
        options: ApplyOptions,
    ) -> Result<Applied> {
        if !apply::is_tar_layer(&layer.media_type) {
            return Err(Error::unimplemented(format!(
                "no way to extract media type {:?} of {}",
                layer.media_type, layer.digest
            )));
        }
        let reader = content.reader(&layer.digest).await?;
        if layer.size != 0 && layer.size != reader.size() {
            return Err(Error::failed_precondition(format!(
                "layer {} has {} bytes, its descriptor says {}",
                layer.digest,
                reader.size(),
                layer.size
            )));
        }
        let applied = self.apply_stream(Box::new(BlobReader::new(reader)), mounts, options).await;
        applied.map_err(|error| error.context(format_args!("apply layer {}", layer.digest)))
    }

    async fn apply_stream(
        &self,
        stream: Box<dyn Read + Send>,
        mounts: &[Mount],
        options: ApplyOptions,
    ) -> Result<Applied> {
        let mounts = mounts.to_vec();
        blocking(move || apply::apply(stream, &mounts, &options)).await
    }
}

#[async_trait]
impl Comparer for WalkingDiffer {
    async fn compare(
        &self,
        content: Arc<dyn Store>,
        lower: &[Mount],
        upper: &[Mount],
        options: CompareOptions,
    ) -> Result<Descriptor> {
        compare::compare(content, lower.to_vec(), upper.to_vec(), options).await
    }
}

/// Runs `work` on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::internal(format!("differ: {error}")))?
}

#[cfg(test)]
mod tests;
