use std::sync::Arc;

use async_trait::async_trait;
use core_images::{PlatformSet, select};
use core_types::{Descriptor, Error, Platform, Result};
use core_unpack::{Download, Fetcher, Request};

use crate::{ImageStore, LocalTransferer, local::Job};

/// Where there is nothing besides the store: what is not there is nowhere.
pub(crate) struct NoSource;

#[async_trait]
impl Fetcher for NoSource {
    async fn fetch(&self, descriptor: &Descriptor, _offset: u64) -> Result<Box<dyn Download>> {
        Err(Error::not_found(format!("content {} is not in the store and has no source", descriptor.digest)))
    }
}

impl LocalTransferer {
    /// Unpacks a stored image as `store` wishes; nothing when it does not.
    ///
    /// # Errors
    /// NotFound when a part of the image for the platform is not in the store.
    pub(crate) async fn unpack_stored(&self, job: &Job, target: &Descriptor, store: &ImageStore) -> Result<()> {
        let content = self.backend.content(&job.scope);
        for wanted in &store.unpacks {
            let Some(unpack) = self.backend.unpack_target(&job.scope, wanted)? else {
                return Err(Error::not_found(format!("nothing unpacks into snapshotter {:?}", wanted.snapshotter)));
            };
            let platform =
                if wanted.platform == Platform::default() { Platform::host() } else { wanted.platform.clone() };
            let manifest = select(content.as_ref(), target, &PlatformSet::of(&[platform])).await?.manifest;
            let request = Request {
                unpack: vec![unpack],
                hold: Some(self.backend.hold(&job.scope)),
                ..Request::new(job.scope.namespace.as_str(), manifest, Arc::new(NoSource), Arc::clone(&content))
            };
            self.engine.pull(request).await?;
        }
        Ok(())
    }
}
