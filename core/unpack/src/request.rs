use std::{any::Any, fmt, sync::Arc};

use core_content::Store;
use core_diff::Applier;
use core_images::{PlatformSet, is_known_config, is_layer};
use core_snapshots::Snapshotter;
use core_types::{Descriptor, media_types};
use tokio::sync::Semaphore;

use crate::Fetcher;

/// What to pull.
#[derive(Clone)]
pub struct Request {
    /// Keeps jobs of different namespaces apart; the namespace's name.
    pub scope: String,
    /// The index or manifest at the top.
    pub target: Descriptor,
    /// Where content comes from.
    pub fetcher: Arc<dyn Fetcher>,
    /// Where content goes.
    pub content: Arc<dyn Store>,
    /// Platforms to fetch.
    pub platforms: PlatformSet,
    /// Fetch manifests and configurations of the other platforms too.
    pub all_metadata: bool,
    /// The most manifests of one index to take, the best first; 0 for no limit.
    pub manifest_limit: usize,
    /// What to unpack for; the first one that fits an image is used.
    pub unpack: Vec<UnpackTarget>,
    /// Counts downloads in place of the engine's own limit.
    pub downloads: Option<Arc<Semaphore>>,
    /// Leave layers to garbage collection once they are unpacked: their manifest does not hold them.
    pub discard_layers: bool,
    /// Registry and repository to note on the content, so that a push can mount it.
    pub origin: Option<(String, String)>,
    /// Who is told what happens.
    pub observer: Option<Arc<dyn Observer>>,
    /// Kept until the pull and its cleaning up have ended, also when it is cancelled: what protects its content from
    /// collection.
    pub hold: Option<Arc<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("scope", &self.scope).field("target", &self.target).finish_non_exhaustive()
    }
}

impl Request {
    /// Pulls everything below `target`, unpacks nothing.
    pub fn new(scope: &str, target: Descriptor, fetcher: Arc<dyn Fetcher>, content: Arc<dyn Store>) -> Self {
        Self {
            scope: scope.to_owned(),
            target,
            fetcher,
            content,
            platforms: PlatformSet::all(),
            all_metadata: false,
            manifest_limit: 0,
            unpack: Vec::new(),
            downloads: None,
            discard_layers: false,
            origin: None,
            observer: None,
            hold: None,
        }
    }

    pub(crate) fn tell(&self, event: Event) {
        if let Some(observer) = &self.observer {
            observer.notice(event);
        }
    }
}

/// Unpack images for these platforms into this snapshotter.
#[derive(Clone)]
pub struct UnpackTarget {
    /// Which images.
    pub platforms: PlatformSet,
    /// Name of the snapshotter, `overlayfs`.
    pub name: String,
    /// The snapshotter.
    pub snapshotter: Arc<dyn Snapshotter>,
    /// What extracts.
    pub applier: Arc<dyn Applier>,
    /// Flush the layers to disk before the first is committed (see the crate's description).
    pub sync: bool,
}

impl fmt::Debug for UnpackTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnpackTarget")
            .field("name", &self.name)
            .field("platforms", &self.platforms)
            .finish_non_exhaustive()
    }
}

/// What happens in a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A blob is part of the image.
    Found {
        /// The blob.
        descriptor: Descriptor,
        /// [`ingest_reference`] of the document that refers to it; none for the top.
        parent: Option<String>,
    },
    /// It is in the store already.
    Exists(Descriptor),
    /// So many bytes of it are in the store.
    Progress {
        /// The blob.
        descriptor: Descriptor,
        /// Bytes so far.
        offset: u64,
    },
    /// It is in the store, verified.
    Fetched(Descriptor),
    /// The layer is being extracted.
    Extracting(Descriptor),
    /// The layer is a snapshot.
    Extracted(Descriptor),
}

/// Is told what happens. Must not block.
pub trait Observer: Send + Sync {
    /// Something happened.
    fn notice(&self, event: Event);
}

/// The name of a blob's ingest, as containerd calls it: `layer-sha256:…`.
pub fn ingest_reference(descriptor: &Descriptor) -> String {
    let kind = match descriptor.media_type.as_str() {
        media_type if media_types::is_manifest(media_type) => "manifest",
        media_type if media_types::is_index(media_type) => "index",
        media_type if is_layer(media_type) => "layer",
        media_type if is_known_config(media_type) => "config",
        "application/vnd.in-toto+json" => "attestation",
        _ => "unknown",
    };
    format!("{kind}-{}", descriptor.digest)
}
