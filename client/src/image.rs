use std::time::SystemTime;

use containerd_api::services::images::v1::{
    self as api, CreateImageRequest, DeleteImageRequest, GetImageRequest, ListImagesRequest, UpdateImageRequest,
};
use core_images::{Document, PlatformSet, Selected};
use core_oci::ImageConfig;
use core_types::{Descriptor, Digest, Labels, Platform};

use crate::{Client, Error, Result, convert, documents::Documents};

/// Whether an image's blobs are all there.
pub use core_images::Check as ImageCheck;

/// Largest image configuration that is read.
const MAX_CONFIG: usize = 8 << 20;

/// A name for content in the daemon.
#[derive(Clone, Debug)]
pub struct Image {
    client: Client,
    name: String,
    labels: Labels,
    target: Descriptor,
    created_at: SystemTime,
    updated_at: SystemTime,
    platforms: PlatformSet,
}

impl Client {
    /// An image by its full name (`docker.io/library/busybox:latest`).
    ///
    /// # Errors
    /// NotFound when there is none of that name.
    pub async fn image(&self, name: &str) -> Result<Image> {
        let request = GetImageRequest { name: name.to_owned() };
        let answer = self.images_service().get(request).await?.into_inner();
        self.image_from(answer.image.ok_or(Error::Incomplete("image"))?)
    }

    /// Images that any of the filters accepts, all when there is none.
    ///
    /// # Errors
    /// InvalidArgument for a malformed filter.
    pub async fn images(&self, filters: &[String]) -> Result<Vec<Image>> {
        let request = ListImagesRequest { filters: filters.to_vec() };
        let answer = self.images_service().list(request).await?.into_inner();
        answer.images.into_iter().map(|image| self.image_from(image)).collect()
    }

    /// Gives content a name.
    ///
    /// # Errors
    /// AlreadyExists for a name in use.
    pub async fn create_image(&self, name: &str, target: &Descriptor, labels: Labels) -> Result<Image> {
        let image = api::Image {
            name: name.to_owned(),
            labels,
            target: Some(convert::descriptor_to_api(target)),
            ..api::Image::default()
        };
        let request = CreateImageRequest { image: Some(image), source_date_epoch: None };
        let answer = self.images_service().create(request).await?.into_inner();
        self.image_from(answer.image.ok_or(Error::Incomplete("image"))?)
    }

    /// Sets labels of an image; an empty value removes one. With `replace`, all others go.
    ///
    /// # Errors
    /// NotFound when there is none of that name.
    pub async fn label_image(&self, name: &str, labels: &Labels, replace: bool) -> Result<Image> {
        let paths: Vec<String> = if replace {
            vec!["labels".to_owned()]
        } else {
            labels.keys().map(|key| format!("labels.{key}")).collect()
        };
        if paths.is_empty() {
            return self.image(name).await;
        }
        let image = api::Image { name: name.to_owned(), labels: labels.clone(), ..api::Image::default() };
        let request =
            UpdateImageRequest { image: Some(image), update_mask: convert::mask(&paths), source_date_epoch: None };
        let answer = self.images_service().update(request).await?.into_inner();
        self.image_from(answer.image.ok_or(Error::Incomplete("image"))?)
    }

    /// Removes a name; with `wait`, what nothing refers to any more is gone from disk on return.
    ///
    /// # Errors
    /// NotFound when there is none of that name.
    pub async fn delete_image(&self, name: &str, wait: bool) -> Result<()> {
        let request = DeleteImageRequest { name: name.to_owned(), sync: wait, target: None };
        self.images_service().delete(request).await?;
        Ok(())
    }

    fn image_from(&self, image: api::Image) -> Result<Image> {
        Ok(Image {
            client: self.clone(),
            target: convert::descriptor_from_api(image.target.ok_or(Error::Incomplete("image target"))?)?,
            created_at: convert::timestamp_to_system(image.created_at.as_ref()),
            updated_at: convert::timestamp_to_system(image.updated_at.as_ref()),
            name: image.name,
            labels: image.labels,
            platforms: PlatformSet::host(),
        })
    }
}

impl Image {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its labels.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Index or manifest that the name stands for.
    pub fn target(&self) -> &Descriptor {
        &self.target
    }

    /// When the name was made.
    pub fn created_at(&self) -> SystemTime {
        self.created_at
    }

    /// When it changed last.
    pub fn updated_at(&self) -> SystemTime {
        self.updated_at
    }

    /// The same image for another platform than this machine's.
    #[must_use]
    pub fn for_platform(mut self, platform: &Platform) -> Self {
        self.platforms = PlatformSet::of(std::slice::from_ref(platform));
        self
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The manifest for the platform, with configuration and layers.
    ///
    /// # Errors
    /// NotFound when none fits or a document is missing.
    pub async fn selected(&self) -> Result<Selected> {
        Ok(core_images::select(&self.documents(), &self.target, &self.platforms).await?)
    }

    /// The configuration for the platform.
    ///
    /// # Errors
    /// As [`selected`](Self::selected).
    pub async fn config(&self) -> Result<ImageConfig> {
        let selected = self.selected().await?;
        let json = self.client.content().read_all(&selected.config.digest, MAX_CONFIG).await?;
        Ok(ImageConfig::from_slice(&json)?)
    }

    /// Names of the snapshots that the layers become, the lowest first.
    ///
    /// # Errors
    /// As [`selected`](Self::selected).
    pub async fn chain_ids(&self) -> Result<Vec<Digest>> {
        let selected = self.selected().await?;
        let config = core_images::read_config(&self.documents(), &selected.config).await?;
        Ok(core_images::chain_ids(&config.diff_ids))
    }

    /// Digests of the uncompressed layers, the lowest first.
    ///
    /// # Errors
    /// As [`selected`](Self::selected).
    pub async fn diff_ids(&self) -> Result<Vec<Digest>> {
        let selected = self.selected().await?;
        Ok(core_images::read_config(&self.documents(), &selected.config).await?.diff_ids)
    }

    /// Bytes of the manifest, configuration and layers for the platform.
    ///
    /// # Errors
    /// As [`selected`](Self::selected).
    pub async fn size(&self) -> Result<u64> {
        let selected = self.selected().await?;
        Ok(selected.manifest.size + selected.config.size + selected.layers.iter().map(|layer| layer.size).sum::<u64>())
    }

    /// Whether all blobs for the platform are there.
    ///
    /// # Errors
    /// What the daemon says.
    pub async fn check(&self) -> Result<ImageCheck> {
        Ok(core_images::check(&self.documents(), &self.target, &self.platforms).await?)
    }

    /// The platforms it is for.
    ///
    /// # Errors
    /// What the daemon says.
    pub async fn platforms(&self) -> Result<Vec<Platform>> {
        let documents = self.documents();
        let mut found: Vec<Platform> = Vec::new();
        let mut add = |platform: &Platform| {
            let platform = platform.normalize();
            if !found.contains(&platform) {
                found.push(platform);
            }
        };
        for part in core_images::walk(&documents, &self.target, |part| core_images::is_tree(&part.media_type)).await? {
            if let Some(platform) = &part.platform {
                add(platform);
            } else if core_types::media_types::is_manifest(&part.media_type) {
                let json = self.client.content().read_all(&part.digest, MAX_CONFIG).await?;
                if let Document::Manifest { config, .. } = core_images::read_document(&part, &json)? {
                    match core_images::read_config(&documents, &config).await {
                        Ok(config) => add(&config.platform),
                        Err(error) if error.is_not_found() => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        Ok(found)
    }

    fn documents(&self) -> Documents {
        Documents(self.client.clone())
    }
}
