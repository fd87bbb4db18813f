use std::{
    io::Read,
    path::{Path, PathBuf},
};

use core_archive::Whiteouts;
use core_mount::{Mount, overlay_dirs, with_temp_mount};
use core_types::{Result, media_types};

use crate::{Applied, ApplyOptions};

/// Whether a media type is that of a tar layer, of a compression that may be known.
pub(crate) fn is_tar_layer(media_type: &str) -> bool {
    let tail = [".tar", ".tar+gzip", ".tar+zstd", ".tar.gzip", ".tar.zstd"];
    media_types::is_layer(media_type) && tail.iter().any(|tail| media_type.ends_with(tail))
}

/// Extracts `stream` into what `mounts` describe: into the upper directory of an overlay and the directory of a
/// bind mount without mounting, else into a temporary mount.
pub(crate) fn apply(stream: Box<dyn Read + Send>, mounts: &[Mount], options: &ApplyOptions) -> Result<Applied> {
    if let Some((upper, extraction)) = overlay_target(mounts, options.sync) {
        return extract(&upper, stream, &extraction);
    }
    with_temp_mount(mounts, |root| {
        let extraction = core_archive::ApplyOptions { sync: options.sync, ..core_archive::ApplyOptions::default() };
        extract(root, stream, &extraction)
    })
}

fn extract(root: &Path, stream: Box<dyn Read + Send>, options: &core_archive::ApplyOptions) -> Result<Applied> {
    let applied = core_archive::apply(root, stream, options)?;
    Ok(Applied { diff_id: applied.diff_id, size: applied.size })
}

/// The upper directory of a single overlay mount and how to extract into it, when marks can be made there: in a
/// user namespace that needs the attributes of users.
fn overlay_target(mounts: &[Mount], sync: bool) -> Option<(PathBuf, core_archive::ApplyOptions)> {
    let [mount] = mounts else { return None };
    let dirs = overlay_dirs(mount)?;
    if !mount.target.is_empty() || (core_sys::in_user_namespace() && !dirs.user_xattr) {
        return None;
    }
    let whiteouts = Whiteouts::Overlay { user_xattr: dirs.user_xattr };
    Some((dirs.upper?, core_archive::ApplyOptions { whiteouts, parents: dirs.lower, sync }))
}
