use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use core_images::PlatformSet;
use core_remotes::Reference;
use core_types::{Descriptor, Result, ResultExt};
use core_unpack::{Download, Fetcher, Observer, Request};

use crate::{ImageStore, LocalTransferer, Progress, Registry, local::Job, progress::Tracker, save};

/// A registry as the engine sees it.
struct FromRegistry(core_remotes::Fetcher);

#[async_trait]
impl Fetcher for FromRegistry {
    async fn fetch(&self, descriptor: &Descriptor, offset: u64) -> Result<Box<dyn Download>> {
        Ok(Box::new(Body(self.0.fetch(descriptor, offset).await?)))
    }
}

struct Body(core_remotes::Download);

#[async_trait]
impl Download for Body {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        self.0.next().await
    }
}

/// The platforms that a client lists, or all.
pub(crate) fn platforms(store: &ImageStore) -> PlatformSet {
    PlatformSet::exact(&store.platforms)
}

impl LocalTransferer {
    /// Registry to store.
    pub(crate) async fn pull(&self, job: &Job, registry: &Registry, store: &ImageStore) -> Result<()> {
        let shown = format!("OCI Registry ({})", registry.reference);
        job.say(format!("Resolving from {shown}"));
        let resolver = self.resolver(registry);
        let (target, fetcher) = resolver.resolve(&registry.reference).await.doing("failed to resolve image")?;
        for verifier in &self.verifiers {
            verifier.verify(&registry.reference, &target).await.doing(format!("pull of {} blocked", target.digest))?;
        }
        job.say(format!("Pulling from {shown}"));
        job.report(Progress {
            event: "fetching image content".to_owned(),
            name: registry.reference.clone(),
            descriptor: Some(target.clone()),
            ..Progress::default()
        });
        let reference = Reference::parse(&registry.reference)?;
        let observer = job
            .progress
            .as_ref()
            .map(|sink| Arc::new(Tracker::new(Arc::clone(sink), &registry.reference)) as Arc<dyn Observer>);
        let mut unpack = self.unpack_targets(&job.scope, store)?;
        for target in &mut unpack {
            target.sync |= registry.pull.sync;
        }
        let request = Request {
            platforms: platforms(store),
            all_metadata: store.all_metadata,
            manifest_limit: usize::try_from(store.manifest_limit).unwrap_or(0),
            unpack,
            downloads: registry.pull.downloads.clone(),
            discard_layers: registry.pull.discard_layers,
            origin: Some((bare_host(reference.host()), reference.repository().to_owned())),
            observer,
            hold: Some(self.backend.hold(&job.scope)),
            ..Request::new(
                job.scope.namespace.as_str(),
                target.clone(),
                Arc::new(FromRegistry(fetcher)),
                self.backend.content(&job.scope),
            )
        };
        self.engine.pull(request).await?;
        for image in save::save(self.backend.images(&job.scope).as_ref(), store, &target, false).await? {
            job.report(Progress {
                event: "saved".to_owned(),
                name: image.name,
                descriptor: Some(image.target),
                ..Progress::default()
            });
        }
        job.say(format!("Completed pull from {shown}"));
        Ok(())
    }
}

/// A host without its port, as the label of where content came from has it.
fn bare_host(host: &str) -> String {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            name.trim_start_matches('[').trim_end_matches(']').to_owned()
        }
        _ => host.to_owned(),
    }
}
