use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use bytes::Bytes;
use core_content::{Store, Writer, WriterOptions};
use core_images::{MAX_DEPTH, MAX_DOCUMENT, PlatformSet, children, is_tree, label_children, read_blob, read_config};
use core_types::{Descriptor, Digest, Error, Labels, Result, ResultExt, media_types};
use core_unpack::Request;
use tar::EntryType;

use super::{
    layout::{self, DockerImage, Layout},
    tar_stream::TarStream,
};
use crate::{
    ImageStore, Import, LocalTransferer, Progress,
    local::Job,
    pull::platforms,
    save::{self, IMAGE_NAME, REF_NAME},
    stored::NoSource,
};

/// The longest JSON file that is read whole (containerd's limit).
const MAX_JSON: u64 = 20 * 1024 * 1024;

/// Everything that an archive had, its blobs being in the store now.
#[derive(Default)]
struct Archive {
    layout: Option<Layout>,
    docker: Option<Vec<DockerImage>>,
    blobs: HashMap<String, (Digest, u64)>,
    links: HashMap<String, String>,
}

/// Archive to store.
pub(crate) async fn import(transferer: &LocalTransferer, job: &Job, import: Import, store: &ImageStore) -> Result<()> {
    job.say("Importing");
    if import.force_compress {
        // Before anything is read: the answer would be the same for every archive.
        return Err(Error::unimplemented("compressing layers at import is not supported; compress them before"));
    }
    let _hold = transferer.backend.hold(&job.scope);
    let content = transferer.backend.content(&job.scope);
    let archive = Archive::read(import.stream, content.as_ref()).await?;
    let index = archive.index(content.as_ref()).await?;
    let manifests = children(content.as_ref(), &index).await?;
    label_children(content.as_ref(), &index.digest, &manifests).await?;
    let wanted = platforms(store);
    let manifests: Vec<Descriptor> = manifests.into_iter().filter(|child| wanted.accepts(child)).collect();
    if manifests.is_empty() {
        return Err(Error::not_found("the archive has no image for the platforms wanted"));
    }
    let mut images = Vec::new();
    for manifest in &manifests {
        complete(content.as_ref(), store, manifest, 0, &mut images).await?;
    }
    unpack(transferer, job, store, images).await?;
    name(transferer, job, store, &index, &manifests).await?;
    job.say("Completed import");
    Ok(())
}

/// Gives names to the index and to what it lists.
async fn name(
    transferer: &LocalTransferer,
    job: &Job,
    store: &ImageStore,
    index: &Descriptor,
    manifests: &[Descriptor],
) -> Result<()> {
    let names = transferer.backend.images(&job.scope);
    let all = std::iter::once((index, false)).chain(manifests.iter().map(|manifest| (manifest, true)));
    for (target, annotated) in all {
        let saved = match save::save(names.as_ref(), store, target, annotated).await {
            Ok(saved) => saved,
            Err(error) if error.is_not_found() => {
                tracing::info!(digest = %target.digest, "no name for what was imported");
                continue;
            }
            Err(error) => return Err(error),
        };
        for image in saved {
            job.report(Progress {
                event: "saved".to_owned(),
                name: image.name,
                descriptor: Some(target.clone()),
                ..Progress::default()
            });
        }
    }
    Ok(())
}

/// Sees to it that all that is needed is there: what is for a wanted platform must be, attestations and images for
/// others may be left out. Adds the manifests that are whole to `images`.
async fn complete(
    content: &dyn Store,
    store: &ImageStore,
    descriptor: &Descriptor,
    depth: usize,
    images: &mut Vec<Descriptor>,
) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(Error::invalid_argument("the archive's indexes are nested too deeply"));
    }
    let platforms = if store.platforms.is_empty() { PlatformSet::host() } else { platforms(store) };
    let spare = layout::is_attestation(descriptor)
        || descriptor.platform.as_ref().is_some_and(|platform| !platforms.matches(platform));
    let below = match children(content, descriptor).await {
        Ok(below) => below,
        Err(error) if error.is_not_found() => return missing(&descriptor.digest, spare),
        Err(error) => return Err(error),
    };
    label_children(content, &descriptor.digest, &below).await?;
    if media_types::is_index(&descriptor.media_type) {
        for child in &below {
            Box::pin(complete(content, store, child, depth + 1, images)).await?;
        }
        return Ok(());
    }
    if !is_tree(&descriptor.media_type) {
        return match content.info(&descriptor.digest).await {
            Err(error) if error.is_not_found() => missing(&descriptor.digest, spare),
            other => other.map(|_| ()),
        };
    }
    for part in &below {
        match content.info(&part.digest).await {
            Ok(_) => {}
            // Layers that may not be distributed are fetched when they are needed.
            Err(error) if error.is_not_found() && core_images::is_foreign_layer(&part.media_type) => {}
            Err(error) if error.is_not_found() => return missing(&part.digest, spare),
            Err(error) => return Err(error),
        }
    }
    images.push(descriptor.clone());
    Ok(())
}

fn missing(digest: &Digest, spare: bool) -> Result<()> {
    if spare {
        tracing::info!(%digest, "not in the archive and not needed here");
        return Ok(());
    }
    Err(Error::not_found(format!("content {digest} is not in the archive")))
}

async fn unpack(transferer: &LocalTransferer, job: &Job, store: &ImageStore, images: Vec<Descriptor>) -> Result<()> {
    let targets = transferer.unpack_targets(&job.scope, store)?;
    if targets.is_empty() {
        return Ok(());
    }
    for image in images {
        let content = transferer.backend.content(&job.scope);
        let config = core_images::select(content.as_ref(), &image, &PlatformSet::all()).await?.config;
        let is_image = media_types::is_config(&config.media_type);
        if !is_image {
            continue;
        }
        let platform = read_config(content.as_ref(), &config).await?.platform;
        if !targets.iter().any(|target| target.platforms.matches(&platform)) {
            continue;
        }
        let request = Request {
            unpack: targets.clone(),
            hold: Some(transferer.backend.hold(&job.scope)),
            ..Request::new(job.scope.namespace.as_str(), image, Arc::new(NoSource), content)
        };
        transferer.engine.pull(request).await?;
    }
    Ok(())
}

impl Archive {
    /// Reads the tar; blobs go to the store.
    async fn read(stream: Box<dyn core_streaming::ByteSource>, content: &dyn Store) -> Result<Self> {
        let mut tar = TarStream::open(stream).await?;
        let unique = format!("{:016x}", RandomState::new().hash_one(0));
        let mut archive = Self::default();
        while let Some(entry) = tar.next().await? {
            let name = layout::clean(&entry.name);
            match entry.kind {
                EntryType::Symlink | EntryType::Link => {
                    let base = if entry.kind == EntryType::Symlink {
                        name.rsplit_once('/').map_or("", |(base, _)| base)
                    } else {
                        ""
                    };
                    archive.links.insert(name.clone(), layout::clean(&format!("{base}/{}", entry.link)));
                    continue;
                }
                EntryType::Regular | EntryType::Continuous => {}
                _ => continue,
            }
            match name.as_str() {
                layout::OCI_LAYOUT => archive.layout = Some(json(&tar.whole(MAX_JSON).await?, &name)?),
                layout::DOCKER_MANIFESTS => archive.docker = Some(json(&tar.whole(MAX_JSON).await?, &name)?),
                _ => {
                    let blob = ingest(&mut tar, content, &name, entry.size, &unique).await;
                    archive.blobs.insert(name.clone(), blob.doing(format!("import {name:?}"))?);
                }
            }
        }
        tar.drain().await?;
        Ok(archive)
    }

    /// The index of all images: that of an OCI layout, or one made for `docker save`.
    async fn index(&self, content: &dyn Store) -> Result<Descriptor> {
        if let Some(found) = &self.layout {
            if found.image_layout_version != layout::OCI_LAYOUT_VERSION {
                return Err(Error::unimplemented(format!(
                    "unsupported OCI layout version {:?}",
                    found.image_layout_version
                )));
            }
            let (digest, size) = self.blobs.get(layout::INDEX).ok_or_else(|| {
                Error::invalid_argument(format!("the archive is an OCI layout without {}", layout::INDEX))
            })?;
            return Ok(Descriptor::new(media_types::OCI_INDEX, digest.clone(), *size));
        }
        let Some(images) = &self.docker else {
            return Err(Error::invalid_argument(
                "unrecognized image format: neither an OCI layout nor of `docker save`",
            ));
        };
        let mut manifests = Vec::new();
        for image in images {
            manifests.extend(self.docker_image(content, image).await?);
        }
        let index = serde_json::json!({
            "schemaVersion": 2, "mediaType": media_types::OCI_INDEX, "manifests": manifests,
        });
        write_document(content, media_types::OCI_INDEX, &index).await
    }

    fn blob(&self, name: &str) -> Result<(Digest, u64)> {
        let mut name = layout::clean(name);
        for _ in 0..8 {
            if let Some(found) = self.blobs.get(&name) {
                return Ok(found.clone());
            }
            match self.links.get(&name) {
                Some(target) => name.clone_from(target),
                None => break,
            }
        }
        Err(Error::not_found(format!("{name:?} is not in the archive")))
    }

    /// Makes a manifest for an image of `docker save`; one descriptor for each of its names.
    async fn docker_image(&self, content: &dyn Store, image: &DockerImage) -> Result<Vec<Descriptor>> {
        let (digest, size) = self.blob(&image.config)?;
        let config = Descriptor::new(media_types::DOCKER_CONFIG, digest, size);
        let mut layers = Vec::new();
        for name in image.layers.iter().flatten() {
            let (digest, size) = self.blob(name)?;
            let media_type = layer_type(content, &digest).await?;
            layers.push(Descriptor::new(media_type, digest, size));
        }
        let platform = read_config(content, &config).await?.platform;
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": media_types::DOCKER_MANIFEST, "config": config, "layers": layers,
        });
        let mut manifest = write_document(content, media_types::DOCKER_MANIFEST, &manifest).await?;
        manifest.platform = (!platform.os.is_empty()).then_some(platform);
        let tags: Vec<&String> = image.repo_tags.iter().flatten().collect();
        if tags.is_empty() {
            return Ok(vec![manifest]);
        }
        tags.into_iter()
            .map(|tag| {
                let name = core_remotes::normalize(tag)?.to_string();
                let annotations =
                    Labels::from([(REF_NAME.to_owned(), layout::oci_name(&name)), (IMAGE_NAME.to_owned(), name)]);
                Ok(Descriptor { annotations, ..manifest.clone() })
            })
            .collect()
    }
}

fn json<T: serde::de::DeserializeOwned>(bytes: &[u8], name: &str) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| Error::invalid_argument(format!("invalid {name}: {error}")))
}

/// Takes a file into the store. The name of a blob in a layout is its digest, which then is verified.
async fn ingest(
    tar: &mut TarStream,
    content: &dyn Store,
    name: &str,
    size: u64,
    unique: &str,
) -> Result<(Digest, u64)> {
    let expected = name
        .strip_prefix("blobs/")
        .and_then(|rest| rest.split_once('/'))
        .and_then(|(algorithm, hex)| Digest::parse(&format!("{algorithm}:{hex}")).ok());
    let reference = format!("tar-{unique}-{}", Digest::of(name.as_bytes()).hex());
    let options = WriterOptions { reference: reference.clone(), total: size, expected: expected.clone() };
    let mut writer = match content.writer(options).await {
        Ok(writer) => writer,
        Err(error) if error.is_already_exists() => {
            return expected.map(|digest| (digest, size)).ok_or(error);
        }
        Err(error) => return Err(error),
    };
    let written = write(tar, writer.as_mut(), expected.as_ref(), size).await;
    drop(writer);
    if written.is_err() {
        let _ = content.abort(&reference).await;
    }
    written
}

async fn write(
    tar: &mut TarStream,
    writer: &mut dyn Writer,
    expected: Option<&Digest>,
    size: u64,
) -> Result<(Digest, u64)> {
    while let Some(piece) = tar.data().await? {
        writer.write(piece).await?;
    }
    let digest = expected.cloned().unwrap_or_else(|| writer.digest());
    match writer.commit(size, Some(&digest), Labels::new()).await {
        Err(error) if !error.is_already_exists() => Err(error.context(format!("content {digest}"))),
        _ => Ok((digest, size)),
    }
}

/// Gzip or plain, by the first bytes; zstd, which Docker has no media type for here, by OCI's.
async fn layer_type(content: &dyn Store, digest: &Digest) -> Result<&'static str> {
    let reader = content.reader(digest).await?;
    let start = tokio::task::spawn_blocking(move || {
        let mut start = [0; 4];
        reader.read_at(&mut start, 0).map(|_| start)
    });
    let start = start.await.map_err(|error| Error::internal(error.to_string()))?.doing("read layer")?;
    Ok(match start {
        [0x1f, 0x8b, ..] => media_types::DOCKER_LAYER_GZIP,
        [0x28, 0xb5, 0x2f, 0xfd] => media_types::OCI_LAYER_ZSTD,
        _ => media_types::DOCKER_LAYER,
    })
}

async fn write_document(content: &dyn Store, media_type: &str, value: &serde_json::Value) -> Result<Descriptor> {
    let bytes = Bytes::from(value.to_string());
    let descriptor = Descriptor::new(media_type, Digest::of(&bytes), bytes.len() as u64);
    let reference = format!("manifest-{}", descriptor.digest);
    match content.writer(WriterOptions::for_descriptor(reference, &descriptor)).await {
        Ok(mut writer) => {
            if writer.status().offset > 0 {
                writer.truncate(0).await?;
            }
            writer.write(bytes).await?;
            match writer.commit(descriptor.size, Some(&descriptor.digest), Labels::new()).await {
                Err(error) if !error.is_already_exists() => return Err(error),
                _ => {}
            }
        }
        Err(error) if error.is_already_exists() => {}
        Err(error) => return Err(error),
    }
    // Readable as what it is meant to be, or not at all.
    read_blob(content, &descriptor, MAX_DOCUMENT).await.map(|_| descriptor)
}
