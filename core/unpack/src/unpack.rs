use std::{path::PathBuf, sync::Arc};

use core_content::Info;
use core_images::{ImageConfig, chain_ids, is_layer};
use core_types::{Descriptor, Digest, Error, Labels, Result, ResultExt, labels};
use tokio::{sync::OwnedMutexGuard, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    Event, Request, UnpackTarget,
    engine::{Engine, unless_cancelled},
    flush,
    layer::{self, Layer},
    tree::Found,
};

/// How often a key that is in use is replaced by another.
const MAX_KEYS: usize = 3;

/// An extraction on its way.
struct Extraction {
    at: usize,
    key: String,
    /// To be flushed before the commit.
    directory: Option<PathBuf>,
    work: JoinHandle<Result<()>>,
    /// Others that want the same chain wait for this.
    _claim: OwnedMutexGuard<()>,
}

/// The layers of one image and what is to become of them.
struct Plan<'a> {
    engine: &'a Arc<Engine>,
    request: &'a Arc<Request>,
    target: &'a UnpackTarget,
    layers: Vec<Descriptor>,
    diff_ids: &'a [Digest],
    chain: Vec<Digest>,
    parallel: bool,
}

impl Engine {
    /// Unpacks the image so that its topmost layer's chain id is a committed snapshot.
    pub(crate) async fn unpack(
        self: &Arc<Self>,
        request: &Arc<Request>,
        target: &UnpackTarget,
        found: &Found,
        config: &ImageConfig,
        token: CancellationToken,
    ) -> Result<()> {
        let layers: Vec<Descriptor> =
            found.layers.iter().filter(|layer| is_layer(&layer.media_type)).cloned().collect();
        if layers.len() != config.diff_ids.len() {
            return Err(Error::invalid_argument(format!(
                "number of layers and diff ids do not match: {} and {}",
                layers.len(),
                config.diff_ids.len()
            )));
        }
        let plan = Plan {
            engine: self,
            request,
            target,
            layers,
            diff_ids: &config.diff_ids,
            chain: chain_ids(&config.diff_ids),
            parallel: self.parallel && target.snapshotter.rebases(),
        };
        let others = found.layers.iter().filter(|layer| !is_layer(&layer.media_type));
        for other in others {
            unless_cancelled(&token, self.store(request, other, None)).await?;
        }
        if plan.parallel {
            plan.in_parallel(&token).await?
        } else {
            plan.in_order(&token).await?
        }
        plan.label_config(&found.config).await
    }
}

impl Plan<'_> {
    /// All at once, each into a snapshot without parent; the parent is set when it is committed.
    async fn in_parallel(&self, token: &CancellationToken) -> Result<()> {
        let stop = token.child_token();
        let mut running: Vec<Extraction> = Vec::new();
        let mut failure = None;
        for at in 0..self.layers.len() {
            match self.begin(at, &stop).await {
                Ok(Some(extraction)) => running.push(extraction),
                Ok(None) => {}
                Err(error) => {
                    failure = Some(error);
                    stop.cancel();
                    break;
                }
            }
        }
        let mut unflushed = Vec::new();
        for mut extraction in running {
            let result = match flatten((&mut extraction.work).await) {
                Ok(()) if failure.is_none() && self.target.sync => {
                    unflushed.push(extraction);
                    continue;
                }
                Ok(()) if failure.is_none() => self.commit(extraction.at, &extraction.key).await,
                other => {
                    self.discard(&extraction.key).await;
                    other
                }
            };
            if let Err(error) = result {
                stop.cancel();
                let is_reason = error.kind() != core_types::ErrorKind::Cancelled;
                if failure.is_none() || is_reason && failure.as_ref().is_some_and(is_cancelled) {
                    failure = Some(error);
                }
            }
        }
        let committed = self.commit_flushed(unflushed).await;
        failure.map_or(committed, Err)
    }

    /// Flushes what was extracted, then commits it in order. What lies below a layer that failed is worth keeping.
    async fn commit_flushed(&self, extractions: Vec<Extraction>) -> Result<()> {
        let directories = extractions.iter().filter_map(|extraction| extraction.directory.clone()).collect();
        let mut result = flush::flush(directories).await;
        for extraction in &extractions {
            match result {
                Ok(()) => result = self.commit(extraction.at, &extraction.key).await,
                Err(_) => self.discard(&extraction.key).await,
            }
        }
        result
    }

    /// One after the other on top of each other, while the blobs of those to come are fetched.
    async fn in_order(&self, token: &CancellationToken) -> Result<()> {
        let stop = token.child_token();
        let _stop_fetching = stop.clone().drop_guard();
        let mut ahead: Option<JoinHandle<Result<()>>> = None;
        for at in 0..self.layers.len() {
            let Some(extraction) = self.begin(at, &stop).await? else { continue };
            if ahead.is_none() {
                ahead = Some(self.fetch_ahead(at + 1, stop.clone()));
            }
            match flatten(extraction.work.await) {
                Ok(()) => self.commit(at, &extraction.key).await?,
                Err(error) => {
                    self.discard(&extraction.key).await;
                    return Err(error);
                }
            }
        }
        if let Some(ahead) = ahead
            && let Err(error) = flatten(ahead.await)
        {
            // Each layer that was needed has been fetched in its turn, or the pull would have failed there.
            tracing::debug!(%error, "fetching ahead");
        }
        Ok(())
    }

    fn fetch_ahead(&self, from: usize, token: CancellationToken) -> JoinHandle<Result<()>> {
        let (engine, request) = (Arc::clone(self.engine), Arc::clone(self.request));
        let layers = self.layers[from..].to_vec();
        tokio::spawn(async move {
            let fetches = layers.iter().map(|layer| unless_cancelled(&token, engine.store(&request, layer, None)));
            futures::future::try_join_all(fetches).await.map(|_| ())
        })
    }

    /// Prepares a layer's snapshot and begins to fill it; none when the layer is there, or need not be fetched.
    async fn begin(&self, at: usize, token: &CancellationToken) -> Result<Option<Extraction>> {
        let chain_id = &self.chain[at];
        let claim = format!("snapshot {} {} {chain_id}", self.request.scope, self.target.name);
        let claim = unless_cancelled(token, async { Ok(self.engine.locks.lock(&claim).await) }).await?;
        if self.is_there(chain_id).await? {
            return Ok(None);
        }
        let parent = if at > 0 && !self.parallel { self.chain[at - 1].to_string() } else { String::new() };
        let labels = layer::snapshot_labels(&self.layers[at], &self.diff_ids[at], &self.chain[..=at]);
        for _ in 0..MAX_KEYS {
            let key = layer::extraction_key(chain_id);
            let mounts = match self.target.snapshotter.prepare(&key, &parent, labels.clone()).await {
                Ok(mounts) => mounts,
                Err(error) if error.is_already_exists() => {
                    // The snapshotter may know the layer from elsewhere.
                    if self.is_there(chain_id).await? {
                        return Ok(None);
                    }
                    continue;
                }
                Err(error) => return Err(error.context(format!("prepare extraction snapshot {key:?}"))),
            };
            let standalone = at > 0 && self.parallel && self.target.snapshotter.stacks_as_overlay();
            let mounts = if standalone { layer::as_overlay(mounts) } else { mounts };
            // What cannot be flushed together with the others is flushed as it is extracted.
            let directory = if self.parallel && self.target.sync { flush::directory(&mounts) } else { None };
            let layer = Layer {
                descriptor: self.layers[at].clone(),
                diff_id: self.diff_ids[at].clone(),
                mounts,
                sync: self.target.sync && directory.is_none(),
            };
            let (engine, request, target, token) =
                (Arc::clone(self.engine), Arc::clone(self.request), self.target.clone(), token.clone());
            let work = tokio::spawn(async move {
                let done = engine.extract(&request, &target, &layer, &token).await;
                if done.is_err() {
                    token.cancel();
                }
                done
            });
            return Ok(Some(Extraction { at, key, directory, work, _claim: claim }));
        }
        Err(Error::aborted(format!("no free key for the extraction of {chain_id}")))
    }

    async fn is_there(&self, chain_id: &Digest) -> Result<bool> {
        match self.target.snapshotter.stat(chain_id.as_str()).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.context(format!("look for snapshot {chain_id}"))),
        }
    }

    /// Makes the extraction the layer's snapshot, and notes on the blob what is in it.
    async fn commit(&self, at: usize, key: &str) -> Result<()> {
        let chain_id = &self.chain[at];
        let parent = (at > 0 && self.parallel).then(|| self.chain[at - 1].as_str());
        let labels = layer::snapshot_labels(&self.layers[at], &self.diff_ids[at], &self.chain[..=at]);
        if let Err(error) = self.target.snapshotter.commit(chain_id.as_str(), key, parent, labels).await {
            self.discard(key).await;
            if !error.is_already_exists() {
                return Err(error.context(format!("commit snapshot {chain_id}")));
            }
        }
        let digest = &self.layers[at].digest;
        self.label(digest, labels::UNCOMPRESSED.to_owned(), self.diff_ids[at].to_string()).await?;
        self.request.tell(Event::Extracted(self.layers[at].clone()));
        Ok(())
    }

    async fn discard(&self, key: &str) {
        if let Err(error) = self.target.snapshotter.remove(key).await
            && !error.is_not_found()
        {
            tracing::error!(key, %error, "cannot remove the snapshot of a broken extraction");
        }
    }

    /// Ties the topmost snapshot to the image.
    async fn label_config(&self, config: &Descriptor) -> Result<()> {
        let top = self.chain.last().map_or_else(String::new, Digest::to_string);
        if top.is_empty() {
            return Ok(());
        }
        self.label(&config.digest, format!("{}{}", labels::GC_REF_SNAPSHOT, self.target.name), top).await
    }

    async fn label(&self, digest: &Digest, key: String, value: String) -> Result<()> {
        let info = self.request.content.info(digest).await.doing("label content")?;
        if info.labels.get(&key) == Some(&value) {
            return Ok(());
        }
        let field = format!("labels.{key}");
        let info = Info { labels: Labels::from([(key, value)]), ..info };
        self.request.content.update(info, &[field]).await.map(|_| ())
    }
}

fn is_cancelled(error: &Error) -> bool {
    error.kind() == core_types::ErrorKind::Cancelled
}

fn flatten(joined: Result<Result<()>, tokio::task::JoinError>) -> Result<()> {
    joined.map_err(|error| Error::internal(format!("layer: {error}")))?
}
