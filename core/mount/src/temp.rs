use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

use core_types::{Error, Result};

use crate::{Mount, mount_all, overlay_dirs, remove_mount_point};

/// What the directories of temporary mounts begin with, so that those left by a crash are known.
const PREFIX: &str = "containerd-mount";

static LOCATION: OnceLock<PathBuf> = OnceLock::new();

/// Sets, once, where temporary mounts are made (made when missing); otherwise the system's directory for
/// temporary files is used.
///
/// # Errors
/// AlreadyExists when another place was set before, and what creating the directory says.
pub fn set_temp_mount_location(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)
        .map_err(|error| Error::io(format_args!("create {}", directory.display()), error))?;
    let set = LOCATION.get_or_init(|| directory.to_owned());
    if set == directory {
        return Ok(());
    }
    Err(Error::already_exists(format!("temporary mounts are made in {} already", set.display())))
}

fn location() -> PathBuf {
    LOCATION.get().cloned().unwrap_or_else(std::env::temp_dir)
}

/// Undoes temporary mounts that a crash left behind. For the start, before any is made.
///
/// # Errors
/// The first failure; the others are tried nevertheless.
pub fn cleanup_temp_mounts() -> Result<()> {
    let Some(directory) = LOCATION.get() else {
        return Ok(());
    };
    let mut result = Ok(());
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            result = result.and(remove_mount_point(&entry.path()));
        }
    }
    result
}

/// Calls `work` with a directory where the mounts are to be seen. A single writable bind mount of a directory
/// is not mounted: `work` gets the directory itself.
///
/// # Errors
/// Those of mounting, of `work` and of unmounting, in this order of importance.
pub fn with_temp_mount<T>(mounts: &[Mount], work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    match plain_directory(mounts) {
        Some((directory, false)) => work(directory),
        _ => mounted(mounts, work),
    }
}

/// Like [`with_temp_mount`] for `work` that only reads: overlays are mounted without their upper directory
/// being written, and a bind mount of a directory is not mounted even if read-only.
///
/// # Errors
/// As [`with_temp_mount`].
pub fn with_readonly_temp_mount<T>(mounts: &[Mount], work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    match plain_directory(mounts) {
        Some((directory, _)) => work(directory),
        None => mounted(&readonly(mounts), work),
    }
}

/// The same mounts, read-only. An overlay's upper directory becomes its topmost lower one.
pub fn readonly(mounts: &[Mount]) -> Vec<Mount> {
    let change = |mount: &Mount| {
        let mut changed = mount.clone();
        if mount.kind == "overlay" {
            changed.options = readonly_overlay(&mount.options);
        } else {
            changed.options.retain(|option| option != "rw" && option != "ro");
            changed.options.push("ro".to_owned());
        }
        changed
    };
    mounts.iter().map(change).collect()
}

fn readonly_overlay(options: &[String]) -> Vec<String> {
    let upper = options.iter().find_map(|option| option.strip_prefix("upperdir="));
    let mut out = Vec::with_capacity(options.len());
    for option in options {
        if let (Some(upper), Some(lower)) = (upper, option.strip_prefix("lowerdir=")) {
            out.push(format!("lowerdir={upper}:{lower}"));
        } else if !["upperdir=", "workdir=", "uidmap=", "gidmap="].iter().any(|prefix| option.starts_with(prefix)) {
            out.push(option.clone());
        }
    }
    out
}

/// The directory behind a single bind mount, and whether it is read-only.
fn plain_directory(mounts: &[Mount]) -> Option<(&Path, bool)> {
    let [mount] = mounts else { return None };
    let bind = mount.kind == "bind" || mount.options.iter().any(|option| option == "bind" || option == "rbind");
    let source = Path::new(&mount.source);
    if !bind || !mount.target.is_empty() || !source.is_absolute() || !source.is_dir() {
        return None;
    }
    let plain = mount.options.iter().all(|option| matches!(option.as_str(), "bind" | "rbind" | "rw" | "ro"));
    plain.then(|| (source, mount.options.iter().any(|option| option == "ro")))
}

fn mounted<T>(mounts: &[Mount], work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    // A volatile overlay cannot be mounted a second time, so it is not asked for here.
    let mounts: Vec<_> = mounts.iter().cloned().map(without_volatile).collect();
    let directory = tempfile::Builder::new()
        .prefix(PREFIX)
        .tempdir_in(location())
        .map_err(|error| Error::io("create a directory for a temporary mount", error))?
        // Never removed with its content: after a failed unmount that would be the mounted tree.
        .keep();
    let result = mount_all(&mounts, &directory).and_then(|()| work(&directory));
    let removed = remove_mount_point(&directory);
    if let Err(error) = &removed {
        tracing::warn!(directory = %directory.display(), %error, "temporary mount stays");
    }
    let value = result?;
    removed?;
    Ok(value)
}

fn without_volatile(mut mount: Mount) -> Mount {
    if overlay_dirs(&mount).is_some() {
        mount.options.retain(|option| option != "volatile" && option != "fsync=volatile");
    }
    mount
}
