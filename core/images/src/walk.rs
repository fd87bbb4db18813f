use core_content::Store;
use core_types::{Descriptor, Error, Result, ResultExt, media_types};

use crate::{Document, ImageConfig, MAX_CHILDREN, MAX_DOCUMENT, PlatformSet, document::read_document, kinds};

/// How deep indexes may be nested.
pub const MAX_DEPTH: usize = 8;

/// Reads a whole small blob, at most `limit` bytes.
///
/// # Errors
/// NotFound when it is not there; InvalidArgument when it is longer than the limit or than described.
pub async fn read_blob(store: &dyn Store, descriptor: &Descriptor, limit: u64) -> Result<Vec<u8>> {
    let reader = store.reader(&descriptor.digest).await?;
    let size = reader.size();
    if size > limit {
        return Err(Error::invalid_argument(format!(
            "blob {} has {size} bytes, at most {limit} are allowed here",
            descriptor.digest
        )));
    }
    if descriptor.size != 0 && descriptor.size != size {
        return Err(Error::invalid_argument(format!(
            "blob {} has {size} bytes, its descriptor says {}",
            descriptor.digest, descriptor.size
        )));
    }
    let digest = descriptor.digest.clone();
    let read = tokio::task::spawn_blocking(move || {
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        let mut at = 0;
        while at < bytes.len() {
            match reader.read_at(&mut bytes[at..], at as u64)? {
                0 => return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)),
                count => at += count,
            }
        }
        Ok(bytes)
    });
    let bytes = read.await.map_err(|error| Error::internal(format!("reading blob: {error}")))?;
    bytes.doing(format!("read blob {digest}"))
}

/// The children of a stored manifest or index; none for any other media type.
///
/// # Errors
/// NotFound when it is not in the store, InvalidArgument when it is malformed.
pub async fn children(store: &dyn Store, descriptor: &Descriptor) -> Result<Vec<Descriptor>> {
    if !kinds::is_tree(&descriptor.media_type) {
        return Ok(Vec::new());
    }
    let bytes = read_blob(store, descriptor, MAX_DOCUMENT).await?;
    Ok(read_document(descriptor, &bytes)?.children())
}

/// Reads the image configuration that `descriptor` describes.
///
/// # Errors
/// NotFound when it is not in the store, InvalidArgument when it is malformed.
pub async fn read_config(store: &dyn Store, descriptor: &Descriptor) -> Result<ImageConfig> {
    let bytes = read_blob(store, descriptor, MAX_DOCUMENT).await?;
    ImageConfig::parse(&bytes).doing(&descriptor.digest)
}

/// The manifest chosen for a platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// The manifest.
    pub manifest: Descriptor,
    /// Its configuration.
    pub config: Descriptor,
    /// Its layers, the lowest first.
    pub layers: Vec<Descriptor>,
}

/// Goes from `target` down to the manifest that fits `platforms` best.
///
/// # Errors
/// NotFound when none fits, or when a document on the way is not in the store.
pub async fn select(store: &dyn Store, target: &Descriptor, platforms: &PlatformSet) -> Result<Selected> {
    let mut candidates = vec![(target.clone(), 0_usize)];
    let mut missing = None;
    let mut seen = 0_usize;
    while let Some((descriptor, depth)) = candidates.pop() {
        seen += 1;
        if depth > MAX_DEPTH || seen > MAX_CHILDREN {
            return Err(Error::invalid_argument(format!("image {} is nested too deeply", target.digest)));
        }
        let attempt = consider(store, &descriptor, depth, platforms, &mut candidates).await;
        match attempt {
            Ok(Some(selected)) => return Ok(selected),
            Ok(None) => {}
            Err(error) if error.is_not_found() => missing = missing.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    Err(missing
        .unwrap_or_else(|| Error::not_found("no manifest for the platform"))
        .context(format!("image {} for {platforms}", target.digest)))
}

/// Looks at one candidate: takes it when it is a fitting manifest, adds the fitting ones of an index so that the
/// best is looked at next.
async fn consider(
    store: &dyn Store,
    descriptor: &Descriptor,
    depth: usize,
    platforms: &PlatformSet,
    candidates: &mut Vec<(Descriptor, usize)>,
) -> Result<Option<Selected>> {
    if !kinds::is_tree(&descriptor.media_type) {
        return Ok(None);
    }
    let bytes = read_blob(store, descriptor, MAX_DOCUMENT).await?;
    match read_document(descriptor, &bytes)? {
        Document::Index { manifests } => {
            let mut fitting: Vec<Descriptor> = manifests.into_iter().filter(|child| platforms.accepts(child)).collect();
            fitting.sort_by(|left, right| platforms.compare_descriptors(left, right));
            candidates.extend(fitting.into_iter().rev().map(|child| (child, depth + 1)));
            Ok(None)
        }
        Document::Manifest { config, layers } => {
            let fits = match &descriptor.platform {
                Some(platform) => platforms.matches(platform),
                None if media_types::is_config(&config.media_type) && !platforms.is_all() => {
                    platforms.matches(&read_config(store, &config).await?.platform)
                }
                None => true,
            };
            Ok(fits.then(|| Selected { manifest: descriptor.clone(), config: *config, layers }))
        }
    }
}

/// Visits `target` and all below it that is in the store, each blob once, parents first. `keep` says which
/// children of a document to follow.
///
/// # Errors
/// InvalidArgument for a malformed or too deep tree. Documents that are missing have no children.
pub async fn walk(
    store: &dyn Store,
    target: &Descriptor,
    keep: impl Fn(&Descriptor) -> bool + Send + Sync,
) -> Result<Vec<Descriptor>> {
    let mut found: Vec<Descriptor> = Vec::new();
    let mut known = std::collections::HashSet::new();
    let mut pending = std::collections::VecDeque::from([(target.clone(), 0_usize)]);
    while let Some((descriptor, depth)) = pending.pop_front() {
        if !known.insert(descriptor.digest.clone()) {
            continue;
        }
        if depth > MAX_DEPTH || known.len() > 4 * MAX_CHILDREN {
            return Err(Error::invalid_argument(format!("image {} has too many parts", target.digest)));
        }
        match children(store, &descriptor).await {
            Ok(below) => {
                let below = below.into_iter().filter(|child| keep(child));
                pending.extend(below.map(|child| (child, depth + 1)));
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        found.push(descriptor);
    }
    Ok(found)
}
