use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use core_content::Store;
use core_images::{Image, MAX_DEPTH, PlatformSet, children, is_foreign_layer, select};
use core_streaming::ByteSink;
use core_types::{Descriptor, Digest, Error, Result, ResultExt, labels, media_types};
use tar::{EntryType, Header};

use super::layout::{self, DockerImage, Layout};
use crate::{
    Export, ImageStore, LocalTransferer,
    local::Job,
    save::{IMAGE_NAME, REF_NAME},
};

/// How much of a blob is read at a time.
const PIECE: usize = 512 * 1024;

/// What of each image to write.
struct Choice {
    platforms: PlatformSet,
    all_platforms: bool,
    skip_foreign: bool,
}

/// What to write: blobs by digest, and the lists of them.
#[derive(Default)]
struct Plan {
    blobs: BTreeMap<Digest, u64>,
    index: Vec<Descriptor>,
    /// For `manifest.json`: images by their manifest, with their names.
    docker: BTreeMap<Digest, DockerImage>,
}

/// Store to archive.
pub(crate) async fn export(
    transferer: &LocalTransferer,
    job: &Job,
    store: &ImageStore,
    mut export: Export,
) -> Result<()> {
    job.say("Exporting");
    let content = transferer.backend.content(&job.scope);
    let images = look_up(transferer.backend.images(&job.scope).as_ref(), store).await?;
    let choice = Choice {
        platforms: if export.platforms.is_empty() { PlatformSet::host() } else { PlatformSet::of(&export.platforms) },
        all_platforms: export.all_platforms,
        skip_foreign: export.skip_non_distributable,
    };
    let mut plan = Plan::default();
    for image in &images {
        plan.add(content.as_ref(), image, &choice).await.doing(format!("export {}", image.name))?;
    }
    plan.write(&content, export.stream.as_mut(), export.skip_compatibility_manifest).await?;
    export.stream.finish().await?;
    job.say("Completed export");
    Ok(())
}

/// The images that a client names.
async fn look_up(images: &dyn core_images::Store, store: &ImageStore) -> Result<Vec<Image>> {
    let mut found = Vec::new();
    if !store.name.is_empty() {
        found.push(images.get(&store.name).await?);
    }
    for extra in &store.extra_references {
        if extra.is_prefix {
            return Err(Error::unimplemented("looking images up by prefix for an export"));
        }
        found.push(images.get(&extra.name).await?);
    }
    if found.is_empty() {
        return Err(Error::invalid_argument("no image is named"));
    }
    Ok(found)
}

impl Plan {
    async fn add(&mut self, content: &dyn Store, image: &Image, choice: &Choice) -> Result<()> {
        let mut target = image.target.clone();
        let info = content.info(&target.digest).await?;
        let origins = info.labels.into_iter().filter(|(key, _)| key.starts_with(labels::DISTRIBUTION_SOURCE));
        target.annotations.extend(origins);
        target.annotations.insert(IMAGE_NAME.to_owned(), image.name.clone());
        target.annotations.insert(REF_NAME.to_owned(), layout::oci_name(&image.name));
        self.collect(content, &target, choice, 0).await?;
        if !self.index.contains(&target) {
            self.index.push(target);
        }
        // An index is `docker load`ed as the image for the first platform.
        let selected = match select(content, &image.target, &choice.platforms).await {
            Ok(selected) => selected,
            Err(_) if choice.all_platforms => return Ok(()),
            Err(error) => return Err(error),
        };
        if !media_types::is_config(&selected.config.media_type) {
            return Ok(());
        }
        let entry = self.docker.entry(selected.manifest.digest).or_insert_with(|| DockerImage {
            config: blob_name(&selected.config.digest),
            repo_tags: Some(Vec::new()),
            layers: Some(selected.layers.iter().map(|layer| blob_name(&layer.digest)).collect()),
        });
        if let (Some(name), Some(tags)) = (layout::familiar(&image.name), entry.repo_tags.as_mut()) {
            tags.push(name);
        }
        Ok(())
    }

    /// Adds a blob and all below it. With all platforms, a manifest that is not whole in the store is left out, as
    /// it is in an image of which one platform was pulled.
    async fn collect(
        &mut self,
        content: &dyn Store,
        descriptor: &Descriptor,
        choice: &Choice,
        depth: usize,
    ) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(Error::invalid_argument("the image is nested too deeply"));
        }
        let below = children(content, descriptor).await.doing(&descriptor.digest)?;
        if media_types::is_manifest(&descriptor.media_type) {
            for part in &below {
                if is_foreign_layer(&part.media_type) && choice.skip_foreign {
                    continue;
                }
                let info = content.info(&part.digest).await.doing(&descriptor.digest)?;
                self.blobs.insert(part.digest.clone(), info.size);
            }
        } else if media_types::is_index(&descriptor.media_type) {
            for child in &below {
                if !choice.all_platforms && !choice.platforms.accepts(child) {
                    continue;
                }
                match Box::pin(self.collect(content, child, choice, depth + 1)).await {
                    Ok(()) => {}
                    Err(error) if error.is_not_found() && (choice.all_platforms || layout::is_attestation(child)) => {
                        tracing::info!(digest = %child.digest, "not whole in the store and not exported");
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        self.blobs.insert(descriptor.digest.clone(), content.info(&descriptor.digest).await?.size);
        Ok(())
    }

    async fn write(&self, content: &Arc<dyn Store>, sink: &mut dyn ByteSink, skip_docker: bool) -> Result<()> {
        let algorithms: BTreeSet<&str> = self.blobs.keys().map(|digest| digest.algorithm().as_str()).collect();
        directory(sink, "blobs/").await?;
        for algorithm in algorithms {
            directory(sink, &format!("blobs/{algorithm}/")).await?;
        }
        for (digest, size) in &self.blobs {
            blob(content, sink, digest, *size).await.doing(format!("export {digest}"))?;
        }
        let index = serde_json::json!({
            "schemaVersion": 2, "mediaType": media_types::OCI_INDEX, "manifests": self.index,
        });
        file(sink, layout::INDEX, index.to_string().into_bytes()).await?;
        if !skip_docker && !self.docker.is_empty() {
            let images: Vec<&DockerImage> = self.docker.values().collect();
            file(sink, layout::DOCKER_MANIFESTS, to_json(&images)?).await?;
        }
        let version = Layout { image_layout_version: layout::OCI_LAYOUT_VERSION.to_owned() };
        file(sink, layout::OCI_LAYOUT, to_json(&version)?).await?;
        sink.write(Bytes::from_static(&[0; 1024])).await
    }
}

fn to_json(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Error::internal(error.to_string()))
}

fn blob_name(digest: &Digest) -> String {
    format!("blobs/{}/{}", digest.algorithm().as_str(), digest.hex())
}

fn header(name: &str, kind: EntryType, mode: u32, size: u64) -> Result<Bytes> {
    let mut header = Header::new_gnu();
    header.set_path(name).map_err(|error| Error::internal(format!("tar header: {error}")))?;
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    Ok(Bytes::copy_from_slice(header.as_bytes()))
}

async fn directory(sink: &mut dyn ByteSink, name: &str) -> Result<()> {
    sink.write(header(name, EntryType::Directory, 0o755, 0)?).await
}

async fn pad(sink: &mut dyn ByteSink, size: u64) -> Result<()> {
    let padding = usize::try_from((512 - size % 512) % 512).unwrap_or(0);
    if padding > 0 {
        sink.write(Bytes::from_static(&[0; 512]).slice(..padding)).await?;
    }
    Ok(())
}

async fn file(sink: &mut dyn ByteSink, name: &str, bytes: Vec<u8>) -> Result<()> {
    let size = bytes.len() as u64;
    sink.write(header(name, EntryType::Regular, 0o444, size)?).await?;
    sink.write(bytes.into()).await?;
    pad(sink, size).await
}

async fn blob(content: &Arc<dyn Store>, sink: &mut dyn ByteSink, digest: &Digest, size: u64) -> Result<()> {
    sink.write(header(&blob_name(digest), EntryType::Regular, 0o444, size)?).await?;
    let reader = content.reader(digest).await?;
    let mut at = 0;
    while at < size {
        let reader = Arc::clone(&reader);
        let piece = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; usize::try_from(size - at).unwrap_or(PIECE).min(PIECE)];
            let count = reader.read_at(&mut piece, at)?;
            piece.truncate(count);
            std::io::Result::Ok(piece)
        });
        let piece = piece.await.map_err(|error| Error::internal(error.to_string()))??;
        if piece.is_empty() {
            return Err(Error::data_loss("the blob is shorter than it was"));
        }
        at += piece.len() as u64;
        sink.write(piece.into()).await?;
    }
    pad(sink, size).await
}
