use core_content::Store;
use core_images::{Image as Record, MAX_DOCUMENT, PlatformSet, Selected, chain_ids, read_blob, select};
use core_metadata::Database;
use core_oci::ImageConfig;
use core_types::{Descriptor, Result, Scope, media_types};

use crate::index::Loaded;

/// Label of images that the CRI knows, and its value.
pub(crate) const MANAGED: (&str, &str) = ("io.cri-containerd.image", "managed");
/// Label of images that kubelet is to leave alone, and its value.
pub(crate) const PINNED: (&str, &str) = ("io.cri-containerd.pinned", "pinned");

/// Reads what a record stands for. None for what cannot be run: an artifact, an image of other platforms only, one
/// of which parts are missing.
///
/// # Errors
/// What the stores say, except that something is not there; InvalidArgument for a malformed image.
pub(crate) async fn load(
    database: &Database,
    scope: &Scope,
    record: &Record,
    platforms: &PlatformSet,
) -> Result<Option<Loaded>> {
    let content = database.content(scope);
    let content = content.as_ref();
    let parts = match select(content, &record.target, platforms).await {
        Err(error) if error.is_not_found() => return Ok(None),
        parts => parts?,
    };
    if !media_types::is_config(&parts.config.media_type) {
        return Ok(None);
    }
    let bytes = match read_blob(content, &parts.config, MAX_DOCUMENT).await {
        Err(error) if error.is_not_found() => return Ok(None),
        bytes => bytes?,
    };
    let config = ImageConfig::from_slice(&bytes)?;
    let rootfs = core_images::ImageConfig::parse(&bytes)?;
    let chain_id = chain_ids(&rootfs.diff_ids).last().map(ToString::to_string).unwrap_or_default();
    // Layers may be left to garbage collection once they are unpacked.
    if !has_layers(content, &parts.layers).await? && !is_unpacked(database, scope, &chain_id).await? {
        return Ok(None);
    }
    Ok(Some(Loaded {
        size: size(&record.target, &parts),
        config: parts.config,
        target: record.target.clone(),
        chain_id,
        user: config.config.user,
        platform: rootfs.platform.normalize(),
        pinned: record.labels.get(PINNED.0).is_some_and(|value| value == PINNED.1),
    }))
}

async fn has_layers(content: &dyn Store, layers: &[Descriptor]) -> Result<bool> {
    for layer in layers {
        match content.info(&layer.digest).await {
            Err(error) if error.is_not_found() => return Ok(false),
            info => info?,
        };
    }
    Ok(true)
}

/// Whether any snapshotter has all layers.
async fn is_unpacked(database: &Database, scope: &Scope, chain_id: &str) -> Result<bool> {
    for name in database.snapshotter_names() {
        if database.snapshotter(scope, &name)?.stat(chain_id).await.is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Bytes of the compressed image: what its manifests say, for one platform.
fn size(target: &Descriptor, parts: &Selected) -> u64 {
    let index = if target.digest == parts.manifest.digest { 0 } else { target.size };
    let layers = parts.layers.iter().map(|layer| layer.size);
    layers.fold(index, u64::saturating_add).saturating_add(parts.manifest.size).saturating_add(parts.config.size)
}
