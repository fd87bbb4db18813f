use std::{fmt, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use core_remotes::Credentials;
use core_streaming::{ByteSink, ByteSource};
use core_types::{Descriptor, Labels, Platform, Result, Scope};
use tokio::sync::Semaphore;

/// An image in a registry (message `OCIRegistry`).
#[derive(Clone, Default)]
pub struct Registry {
    /// Its full reference, `docker.io/library/busybox:latest`.
    pub reference: String,
    /// Headers for every request to the registry.
    pub headers: Vec<(String, String)>,
    /// Who knows the credentials; none for anonymous.
    pub credentials: Option<Arc<dyn Credentials>>,
    /// Directory of the per-host configuration (`hosts.toml`); the daemon's own when none is given.
    pub host_dir: Option<PathBuf>,
    /// `http` or `https` for a host without configuration.
    pub default_scheme: Option<String>,
    /// How this pull differs from the others of the daemon.
    pub pull: PullOptions,
}

/// How a pull differs from the others of the daemon.
#[derive(Clone, Debug, Default)]
pub struct PullOptions {
    /// Counts downloads in place of the daemon's own limit.
    pub downloads: Option<Arc<Semaphore>>,
    /// Flush layers to disk before they are committed, whatever the daemon's configuration says.
    pub sync: bool,
    /// Leave layers to garbage collection once they are unpacked.
    pub discard_layers: bool,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("reference", &self.reference)
            .field("host_dir", &self.host_dir)
            .finish_non_exhaustive()
    }
}

/// Images of the image store (message `ImageStore`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageStore {
    /// Name of the image.
    pub name: String,
    /// Labels for a new image.
    pub labels: Labels,
    /// Platforms wanted; all when empty.
    pub platforms: Vec<Platform>,
    /// Fetch manifests and configurations of the other platforms too.
    pub all_metadata: bool,
    /// The most manifests of an index to take, the best first; 0 for no limit.
    pub manifest_limit: u32,
    /// More names, or prefixes of names.
    pub extra_references: Vec<ImageReference>,
    /// What to unpack for.
    pub unpacks: Vec<UnpackConfiguration>,
}

/// A further name (message `ImageReference`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageReference {
    /// The name or prefix.
    pub name: String,
    /// `name` is a repository to which a tag or digest is added.
    pub is_prefix: bool,
    /// A full name in the archive may replace the prefix.
    pub allow_overwrite: bool,
    /// Add a reference by digest.
    pub add_digest: bool,
    /// Add the digest only where no tag was found.
    pub skip_named_digest: bool,
}

/// Unpack for this platform into this snapshotter (message `UnpackConfiguration`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnpackConfiguration {
    /// The platform; the daemon's when it is empty.
    pub platform: Platform,
    /// The snapshotter; the daemon's default when empty.
    pub snapshotter: String,
}

/// An archive that a client sends (message `ImageImportStream`).
pub struct Import {
    /// Its bytes: a tar, maybe compressed.
    pub stream: Box<dyn ByteSource>,
    /// Its media type; informative.
    pub media_type: String,
    /// Compress layers that come uncompressed.
    pub force_compress: bool,
}

/// An archive that a client receives (message `ImageExportStream`).
pub struct Export {
    /// Takes the bytes of the tar.
    pub stream: Box<dyn ByteSink>,
    /// Media type wanted; informative.
    pub media_type: String,
    /// Platforms to write; the daemon's when empty and `all_platforms` is not set.
    pub platforms: Vec<Platform>,
    /// Write every platform.
    pub all_platforms: bool,
    /// Leave `manifest.json` (of `docker save`) out.
    pub skip_compatibility_manifest: bool,
    /// Leave layers out that may not be distributed.
    pub skip_non_distributable: bool,
}

/// Where a transfer takes from.
pub enum Source {
    /// A registry: pull.
    Registry(Registry),
    /// The image store: push, export or tag.
    Store(ImageStore),
    /// An archive: import.
    Import(Import),
}

/// Where a transfer brings to.
pub enum Destination {
    /// A registry: push.
    Registry(Registry),
    /// The image store: pull, import or tag.
    Store(ImageStore),
    /// An archive: export.
    Export(Export),
}

/// What happens in a transfer (message `Progress`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// What: `waiting`, `downloading`, `complete`, `extracting`, `uploading`, `saved` …, or a sentence.
    pub event: String,
    /// About what: the image's name, or a blob as `layer-sha256:…`.
    pub name: String,
    /// Names of what it is part of.
    pub parents: Vec<String>,
    /// Bytes done.
    pub progress: i64,
    /// Bytes in all, 0 when unknown.
    pub total: i64,
    /// The blob.
    pub descriptor: Option<Descriptor>,
}

/// Takes progress reports. It must not block: drop or coalesce what a slow listener cannot take.
pub trait ProgressSink: Send + Sync {
    /// Something happened.
    fn report(&self, progress: Progress);
}

impl<F: Fn(Progress) + Send + Sync> ProgressSink for F {
    fn report(&self, progress: Progress) {
        self(progress);
    }
}

/// Performs transfers (plugin `io.containerd.transfer.v1.local`).
#[async_trait]
pub trait Transferer: Send + Sync {
    /// Brings what `source` names to `destination`. Dropping the future cancels the transfer.
    ///
    /// # Errors
    /// Unimplemented for a pair that makes no sense; NotFound, PermissionDenied, Unavailable … as the parts say.
    async fn transfer(
        &self,
        scope: &Scope,
        source: Source,
        destination: Destination,
        progress: Option<Arc<dyn ProgressSink>>,
    ) -> Result<()>;
}
