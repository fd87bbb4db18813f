use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use core_images::{MAX_DEPTH, children, is_foreign_layer, is_tree};
use core_remotes::{Pushed, Pusher, Reference};
use core_types::{Descriptor, Error, Result, ResultExt};
use core_unpack::ingest_reference;
use futures::{StreamExt, TryStreamExt, stream};

use crate::{ImageStore, LocalTransferer, Progress, Registry, local::Job, progress::Tracker, pull::platforms};

/// The most blobs of one image.
const MAX_BLOBS: usize = 100_000;

impl LocalTransferer {
    /// Store to registry: blobs first, then manifests, then what lists them.
    pub(crate) async fn push(&self, job: &Job, store: &ImageStore, registry: &Registry) -> Result<()> {
        let image = self.backend.images(&job.scope).get(&store.name).await?;
        let shown = format!("OCI Registry ({})", registry.reference);
        job.say(format!("Pushing to {shown}"));
        let about = |event: &str| Progress {
            event: event.to_owned(),
            name: image.name.clone(),
            descriptor: Some(image.target.clone()),
            ..Progress::default()
        };
        job.report(about("pushing content"));
        let reference = Reference::parse(&registry.reference)?;
        let reference = match reference.digest()? {
            Some(_) => reference,
            // The tag is for the top alone.
            None => reference.with_digest(&image.target.digest),
        };
        let pusher = self.resolver(registry).pusher(&reference.to_string()).await?;
        let tracker = job.progress.as_ref().map(|sink| Arc::new(Tracker::new(Arc::clone(sink), &image.name)));
        let (blobs, documents) = self.parts(job, store, &image.target, tracker.as_deref()).await?;
        let push = |part: Descriptor| self.push_one(job, &pusher, part, tracker.clone());
        stream::iter(blobs.into_iter().map(push)).buffer_unordered(64).try_collect::<Vec<()>>().await?;
        for document in documents.into_iter().rev() {
            self.push_one(job, &pusher, document, tracker.clone()).await?;
        }
        job.report(about("pushed content"));
        job.report(Progress {
            event: format!("Completed push to {shown}"),
            descriptor: Some(image.target.clone()),
            ..Progress::default()
        });
        Ok(())
    }

    /// The blobs below `target`, and the documents, parents first.
    async fn parts(
        &self,
        job: &Job,
        store: &ImageStore,
        target: &Descriptor,
        tracker: Option<&Tracker>,
    ) -> Result<(Vec<Descriptor>, Vec<Descriptor>)> {
        let content = self.backend.content(&job.scope);
        let wanted = platforms(store);
        let (mut blobs, mut documents) = (Vec::new(), Vec::new());
        let mut known = HashSet::new();
        let mut pending = VecDeque::from([(target.clone(), None::<String>, 0_usize)]);
        while let Some((part, parent, depth)) = pending.pop_front() {
            if depth > MAX_DEPTH || known.len() > MAX_BLOBS {
                return Err(Error::invalid_argument(format!("image {} has too many parts", target.digest)));
            }
            if let Some(tracker) = tracker {
                tracker.found(&part, parent);
            }
            if !known.insert(part.digest.clone()) {
                // Listed from deeper down as well: it has to be there before that list is.
                if let Some(at) = documents.iter().position(|document: &Descriptor| document.digest == part.digest) {
                    let document = documents.remove(at);
                    documents.push(document);
                }
                continue;
            }
            if !is_tree(&part.media_type) {
                // What may not be distributed has its own URLs.
                if !is_foreign_layer(&part.media_type) {
                    blobs.push(part);
                }
                continue;
            }
            let below = children(content.as_ref(), &part).await.doing(format!("push {}", part.digest))?;
            let name = ingest_reference(&part);
            let below = below.into_iter().filter(|child| wanted.accepts(child));
            pending.extend(below.map(|child| (child, Some(name.clone()), depth + 1)));
            documents.push(part);
        }
        Ok((blobs, documents))
    }

    async fn push_one(
        &self,
        job: &Job,
        pusher: &Pusher,
        part: Descriptor,
        tracker: Option<Arc<Tracker>>,
    ) -> Result<()> {
        let _permit = self.uploads.acquire().await.map_err(|_| Error::cancelled("transfers are closed"))?;
        let content = self.backend.content(&job.scope);
        let info = content.info(&part.digest).await?;
        let reader = content.reader(&part.digest).await?;
        let progress = tracker.clone().map(|tracker| {
            let part = part.clone();
            Arc::new(move |sent| tracker.report("uploading", &part, sent)) as core_remotes::PushProgress
        });
        let pushed = pusher.push(&part, reader, &info.labels, progress).await?;
        if let Some(tracker) = tracker {
            let event = if pushed == Pushed::Exists { "already exists" } else { "complete" };
            tracker.report(event, &part, part.size);
        }
        Ok(())
    }
}
