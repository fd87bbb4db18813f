use std::{
    sync::{Arc, atomic::Ordering},
    time::SystemTime,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use core_diff::{Applied, ApplyOptions};
use core_mount::Mount;
use core_types::{Descriptor, Digest, Error, Labels, Result, ResultExt, labels};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    Event, Request, UnpackTarget,
    blob::Stored,
    engine::{Engine, unless_cancelled},
    tee,
};

/// A layer to be extracted into a snapshot that was prepared for it.
pub(crate) struct Layer {
    pub(crate) descriptor: Descriptor,
    pub(crate) diff_id: Digest,
    pub(crate) mounts: Vec<Mount>,
    /// Flush it as it is extracted.
    pub(crate) sync: bool,
}

/// The key of an extraction: `extract-<nanoseconds>-<random> <chain id>`, as containerd's.
pub(crate) fn extraction_key(chain_id: &Digest) -> String {
    use std::hash::{BuildHasher, RandomState};
    let nanoseconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
    let random = RandomState::new().hash_one(nanoseconds).to_le_bytes();
    format!("extract-{nanoseconds}-{} {chain_id}", URL_SAFE_NO_PAD.encode(&random[..6]))
}

/// The labels of a layer's snapshot: who it is, for remote snapshotters too, and what the image says of it.
pub(crate) fn snapshot_labels(layer: &Descriptor, diff_id: &Digest, chain: &[Digest]) -> Labels {
    let mut all: Labels = layer
        .annotations
        .iter()
        .filter(|(key, value)| key.starts_with("containerd.io/snapshot/") && labels::validate(key, value).is_ok())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if let [.., below, _] = chain {
        all.insert("containerd.io/snapshot/parent-chain-id".to_owned(), below.to_string());
    }
    if let Some(own) = chain.last() {
        all.insert(labels::SNAPSHOT_REF.to_owned(), own.to_string());
    }
    all.insert("containerd.io/snapshot/diff-id".to_owned(), diff_id.to_string());
    all
}

/// A layer extracted without the ones below gets a bind mount; its deletions must become whiteouts of an overlay
/// all the same.
pub(crate) fn as_overlay(mounts: Vec<Mount>) -> Vec<Mount> {
    match mounts.as_slice() {
        [bind] if bind.kind == "bind" => {
            let mut options: Vec<String> =
                bind.options.iter().filter(|option| !matches!(option.as_str(), "rbind" | "bind")).cloned().collect();
            options.push(format!("upperdir={}", bind.source));
            vec![Mount { kind: "overlay".to_owned(), source: "overlay".to_owned(), options, ..Mount::default() }]
        }
        _ => mounts,
    }
}

impl Engine {
    /// Downloads and extracts a layer, at the same time where that is possible, and verifies it.
    pub(crate) async fn extract(
        self: &Arc<Self>,
        request: &Request,
        target: &UnpackTarget,
        layer: &Layer,
        token: &CancellationToken,
    ) -> Result<()> {
        let is_stored = request.content.info(&layer.descriptor.digest).await.is_ok();
        // Without a free place to extract, the download need not wait.
        if !is_stored && let Ok(_place) = self.unpacks.try_acquire() {
            return self.stream(request, target, layer, token).await;
        }
        unless_cancelled(token, self.store(request, &layer.descriptor, None)).await?;
        let place = self.unpacks.acquire();
        let place = async { place.await.map_err(|_| Error::cancelled("the engine is closed")) };
        let _place = unless_cancelled(token, place).await?;
        self.extract_stored(request, target, layer, token).await
    }

    /// Extracts while it downloads. An extraction that fails ends the download, whose part stays to be resumed.
    async fn stream(
        self: &Arc<Self>,
        request: &Request,
        target: &UnpackTarget,
        layer: &Layer,
        token: &CancellationToken,
    ) -> Result<()> {
        let (feed, outlet) = tee::channel();
        let starved = outlet.starved();
        request.tell(Event::Extracting(layer.descriptor.clone()));
        let mut applying = spawn_apply(target, layer, Box::new(outlet));
        let mut applied = None;
        let stored = {
            let storing = unless_cancelled(token, self.store(request, &layer.descriptor, Some(feed)));
            tokio::pin!(storing);
            tokio::select! {
                stored = &mut storing => stored,
                ended = &mut applying => {
                    let ended = flatten(ended);
                    if ended.is_err() && !starved.load(Ordering::SeqCst) {
                        return self.verify(layer, ended);
                    }
                    applied = Some(ended);
                    storing.await
                }
            }
        };
        // The feed is gone now, finished or not, so that the applier comes to its end.
        let applied = match applied {
            Some(applied) => applied,
            None => flatten(applying.await),
        };
        match stored? {
            Stored::Streamed => self.verify(layer, applied),
            Stored::Elsewhere => self.extract_stored(request, target, layer, token).await,
        }
    }

    /// Extracts a layer that is in the store. Waits for the end of it even when it is cancelled meanwhile, since the
    /// snapshot cannot be removed before.
    async fn extract_stored(
        &self,
        request: &Request,
        target: &UnpackTarget,
        layer: &Layer,
        token: &CancellationToken,
    ) -> Result<()> {
        if token.is_cancelled() {
            return Err(Error::cancelled("the pull was cancelled"));
        }
        request.tell(Event::Extracting(layer.descriptor.clone()));
        let options = ApplyOptions { sync: layer.sync };
        let content = Arc::clone(&request.content);
        let applied = target.applier.apply(content, &layer.descriptor, &layer.mounts, options).await;
        self.verify(layer, applied)
    }

    fn verify(&self, layer: &Layer, applied: Result<Applied>) -> Result<()> {
        let applied = applied.doing(format!("extract layer {}", layer.descriptor.digest))?;
        if applied.diff_id != layer.diff_id {
            return Err(Error::failed_precondition(format!(
                "layer {} is not what the image's configuration says: diff id {}, expected {}",
                layer.descriptor.digest, applied.diff_id, layer.diff_id
            )));
        }
        Ok(())
    }
}

fn flatten(joined: std::result::Result<Result<Applied>, tokio::task::JoinError>) -> Result<Applied> {
    joined.map_err(|error| Error::internal(format!("extraction: {error}")))?
}

fn spawn_apply(target: &UnpackTarget, layer: &Layer, outlet: Box<tee::Outlet>) -> JoinHandle<Result<Applied>> {
    let (applier, mounts, options) =
        (Arc::clone(&target.applier), layer.mounts.clone(), ApplyOptions { sync: layer.sync });
    tokio::spawn(async move { applier.apply_stream(outlet, &mounts, options).await })
}
