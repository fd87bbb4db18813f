//! Volumes that need work on the host: images mounted into a pod, and the volumes that images declare.

use std::{fs, os::unix::fs::MetadataExt, path::Path, sync::Arc};

use containerd_api_cri::v1::ContainerConfig;
use core_mount::Mount;
use core_types::{Error, Result, ResultExt};
use plugin_cri_spec::Volume;

use crate::{blocking, cri::Cri, handler::Handler, layout, sandbox::validate, store::Sandbox};

/// Mounts the images that a request wants as volumes, once for each pod, and puts their place on the host into the
/// request.
///
/// # Errors
/// InvalidArgument for a mount with a host path too or a sub path that leads out; NotFound for an image or a sub path
/// that is not there.
pub(crate) async fn resolve_images(
    cri: &Arc<Cri>,
    sandbox: &Arc<Sandbox>,
    handler: &Handler,
    config: &mut ContainerConfig,
) -> Result<()> {
    for mount in &mut config.mounts {
        let Some(image) = mount.image.as_ref().map(|image| image.image.clone()).filter(|image| !image.is_empty())
        else {
            continue;
        };
        if !mount.host_path.is_empty() {
            return Err(Error::invalid_argument("mounts: host_path and image exclude each other"));
        }
        if !mount.readonly {
            return Err(Error::invalid_argument("mounts: an image can only be mounted read-only"));
        }
        validate::path("mounts.image_sub_path", &mount.image_sub_path)?;
        let root = mount_image(cri, sandbox, handler, &image).await?;
        let sub_path = mount.image_sub_path.clone();
        mount.host_path = blocking(move || inside(&root, &sub_path)).await?;
    }
    Ok(())
}

async fn mount_image(
    cri: &Arc<Cri>,
    sandbox: &Arc<Sandbox>,
    handler: &Handler,
    reference: &str,
) -> Result<std::path::PathBuf> {
    let image = cri.images.resolve(reference)?;
    let image = image.ok_or_else(|| Error::not_found(format!("image {reference:?} is not there, pull it first")))?;
    let hex = image.id.rsplit(':').next().unwrap_or_default().to_owned();
    let target = cri.layout.image_volumes(sandbox.id()).join(&hex);
    let snapshotter = cri.images.snapshotter_for(&handler.name);
    let parent = cri.images.ensure_unpacked(&image, snapshotter).await?;
    // The pod's lease holds the view.
    let snapshots = cri.database.snapshotter(&cri.scope.leased(sandbox.id()), snapshotter)?;
    let key = format!("{}-image-{hex}", sandbox.id());
    let mounts = match snapshots.view(&key, &parent, Default::default()).await {
        Err(error) if error.is_already_exists() => snapshots.mounts(&key).await,
        mounts => mounts,
    }?;
    let at = target.clone();
    blocking(move || {
        layout::make_directory(&at, 0o700)?;
        if mounted(&at)? { Ok(()) } else { core_mount::mount_all(&core_mount::readonly(&mounts), &at) }
    })
    .await
    .doing(format_args!("mount image {reference}"))?;
    Ok(target)
}

/// Whether a file system is mounted at a directory.
fn mounted(path: &Path) -> Result<bool> {
    let parent = path.parent().unwrap_or(path);
    let device = |path: &Path| {
        fs::symlink_metadata(path)
            .map(|metadata| metadata.dev())
            .map_err(|error| Error::io(format_args!("look at {}", path.display()), error))
    };
    Ok(device(path)? != device(parent)?)
}

/// A path in a mounted image, resolved as if the image were the root.
fn inside(root: &Path, sub_path: &str) -> Result<String> {
    let path = core_mount::path_in_root(root, sub_path)
        .map_err(|error| Error::io(format_args!("mounts.image_sub_path {sub_path:?}"), error))?;
    path.into_os_string().into_string().map_err(|_| Error::invalid_argument("mounts.image_sub_path is no valid text"))
}

/// Makes the directories of the volumes that an image declares, with what the image has at their place.
///
/// # Errors
/// What the kernel says.
pub(crate) async fn make(mounts: Vec<Mount>, volumes: Vec<Volume>) -> Result<()> {
    if volumes.is_empty() {
        return Ok(());
    }
    blocking(move || {
        core_mount::with_readonly_temp_mount(&mounts, |root| {
            for volume in &volumes {
                fill(root, volume).doing(format_args!("volume {}", volume.container_path))?;
            }
            Ok(())
        })
    })
    .await
}

fn fill(root: &Path, volume: &Volume) -> Result<()> {
    layout::make_directory(&volume.host_path, 0o755)?;
    match core_mount::path_in_root(root, &volume.container_path) {
        Ok(source) if source.is_dir() => core_archive::copy_tree(&source, &volume.host_path),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("look into the image", error)),
    }
}
