use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use core_images::{
    Document, MAX_DEPTH, MAX_DOCUMENT, PlatformSet, is_layer, is_tree, label_children, read_blob, read_document,
};
use core_types::{Descriptor, Error, Result, ResultExt, media_types};
use futures::future;
use tokio_util::sync::CancellationToken;

use crate::{
    Event, Request,
    engine::{Engine, unless_cancelled},
    request::ingest_reference,
};

/// The most documents of one image.
const MAX_DOCUMENTS: usize = 4096;

/// A manifest to be completed.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
    /// Its layers are wanted, not only its configuration.
    pub(crate) whole: bool,
}

/// A document waiting to be fetched.
struct Pending {
    descriptor: Descriptor,
    depth: usize,
    whole: bool,
}

impl Engine {
    /// Fetches everything, unpacks what is to be unpacked.
    pub(crate) async fn run(self: Arc<Self>, request: Arc<Request>, token: CancellationToken) -> Result<usize> {
        let (manifests, others) = unless_cancelled(&token, self.fetch_tree(&request)).await?;
        let stop = token.child_token();
        let _stop_others = stop.clone().drop_guard();
        let images = manifests.into_iter().map(|found| {
            let (engine, request, token) = (Arc::clone(&self), Arc::clone(&request), stop.clone());
            let failed = stop.clone();
            async move {
                let done = engine.complete(request, found, token).await;
                if done.is_err() {
                    failed.cancel();
                }
                done
            }
        });
        let blobs = others.into_iter().map(|blob| {
            let (engine, request, token) = (Arc::clone(&self), Arc::clone(&request), stop.clone());
            async move { unless_cancelled(&token, engine.store(&request, &blob, None)).await.map(|_| ()) }
        });
        let (images, blobs) = future::join(future::join_all(images), future::join_all(blobs)).await;
        // The first failure cancels the rest; theirs is not the reason.
        let mut results: Vec<Result<bool>> = images;
        results.extend(blobs.into_iter().map(|blob| blob.map(|()| false)));
        worst(results).map(|unpacked| unpacked.into_iter().filter(|unpacked| *unpacked).count())
    }

    /// Fetches all documents, level by level. Returns the manifests, and blobs that are neither.
    async fn fetch_tree(&self, request: &Request) -> Result<(Vec<Found>, Vec<Descriptor>)> {
        let (mut manifests, mut others) = (Vec::new(), Vec::new());
        let mut known = HashSet::new();
        let mut pending = VecDeque::from([Pending { descriptor: request.target.clone(), depth: 0, whole: true }]);
        request.tell(Event::Found { descriptor: request.target.clone(), parent: None });
        while let Some(next) = pending.pop_front() {
            if !known.insert(next.descriptor.digest.clone()) {
                continue;
            }
            if next.depth > MAX_DEPTH || known.len() > MAX_DOCUMENTS {
                return Err(Error::invalid_argument(format!("image {} has too many parts", request.target.digest)));
            }
            if !is_tree(&next.descriptor.media_type) {
                others.push(next.descriptor);
                continue;
            }
            match self.fetch_document(request, &next.descriptor).await? {
                Document::Index { manifests } => {
                    for child in wanted(request, manifests, next.depth == 0)? {
                        let whole = next.whole && request.platforms.accepts(&child);
                        request.tell(Event::Found {
                            descriptor: child.clone(),
                            parent: Some(ingest_reference(&next.descriptor)),
                        });
                        pending.push_back(Pending { descriptor: child, depth: next.depth + 1, whole });
                    }
                }
                Document::Manifest { config, layers } => {
                    for child in std::iter::once(config.as_ref()).chain(layers.iter().filter(|_| next.whole)) {
                        request.tell(Event::Found {
                            descriptor: child.clone(),
                            parent: Some(ingest_reference(&next.descriptor)),
                        });
                    }
                    manifests.push(Found { config: *config, layers, whole: next.whole });
                }
            }
        }
        Ok((manifests, others))
    }

    async fn fetch_document(&self, request: &Request, descriptor: &Descriptor) -> Result<Document> {
        if descriptor.size > MAX_DOCUMENT {
            return Err(Error::invalid_argument(format!(
                "manifest {} has {} bytes, {MAX_DOCUMENT} are allowed",
                descriptor.digest, descriptor.size
            )));
        }
        self.store(request, descriptor, None).await?;
        let bytes = read_blob(request.content.as_ref(), descriptor, MAX_DOCUMENT).await?;
        let document = read_document(descriptor, &bytes)?;
        let mut children = document.clone().children();
        if request.discard_layers && !request.unpack.is_empty() {
            children.retain(|child| !is_layer(&child.media_type));
        }
        label_children(request.content.as_ref(), &descriptor.digest, &children).await?;
        Ok(document)
    }

    /// Fetches the parts of a manifest; whether it was unpacked as well.
    async fn complete(self: &Arc<Self>, request: Arc<Request>, found: Found, token: CancellationToken) -> Result<bool> {
        unless_cancelled(&token, self.store(&request, &found.config, None)).await?;
        if !found.whole {
            return Ok(false);
        }
        if media_types::is_config(&found.config.media_type) && !request.unpack.is_empty() {
            let config = core_images::read_config(request.content.as_ref(), &found.config).await?;
            let is_layered = config.rootfs_type.is_empty() || config.rootfs_type == "layers";
            let target = request.unpack.iter().find(|target| is_layered && target.platforms.matches(&config.platform));
            if let Some(target) = target.cloned() {
                return self
                    .unpack(&request, &target, &found, &config, token)
                    .await
                    .map(|()| true)
                    .doing(format!("unpack image {}", found.config.digest));
            }
        }
        let layers = found.layers.iter().map(|layer| unless_cancelled(&token, self.store(&request, layer, None)));
        future::try_join_all(layers).await.map(|_| false)
    }
}

/// The children of an index to look at, the best first when there is a limit.
fn wanted(request: &Request, manifests: Vec<Descriptor>, is_top: bool) -> Result<Vec<Descriptor>> {
    let has_any = !manifests.is_empty();
    let mut children: Vec<Descriptor> =
        manifests.into_iter().filter(|child| request.all_metadata || request.platforms.accepts(child)).collect();
    // An image without anything to run is better not made than found out later.
    if children.is_empty() && (request.manifest_limit > 0 || is_top && has_any) {
        return Err(Error::not_found(no_match(&request.platforms)));
    }
    if request.manifest_limit > 0 {
        children.sort_by(|left, right| request.platforms.compare_descriptors(left, right));
        children.truncate(request.manifest_limit);
    }
    Ok(children)
}

fn no_match(platforms: &PlatformSet) -> String {
    format!("no match for platform in manifest: the image has none for {platforms}")
}

/// All results, or the error that is not merely a consequence of another.
pub(crate) fn worst<T>(results: Vec<Result<T>>) -> Result<Vec<T>> {
    let mut good = Vec::with_capacity(results.len());
    let mut bad: Option<Error> = None;
    for result in results {
        match result {
            Ok(value) => good.push(value),
            Err(error) => {
                let replaces = bad.as_ref().is_none_or(|bad| bad.kind() == core_types::ErrorKind::Cancelled);
                if replaces {
                    bad = Some(error);
                }
            }
        }
    }
    bad.map_or(Ok(good), Err)
}
