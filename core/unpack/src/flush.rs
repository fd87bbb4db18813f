//! One flush for all layers of an image, before the first of them is committed.

use std::{
    collections::BTreeSet,
    fs::File,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use core_mount::{Mount, overlay_dirs};
use core_types::{Error, Result, ResultExt};

/// The directory that takes what is extracted into `mounts`; none when it is behind a mount of its own, of a block
/// device say, and so cannot be flushed once that is gone.
pub(crate) fn directory(mounts: &[Mount]) -> Option<PathBuf> {
    let [mount] = mounts else { return None };
    match mount.kind.as_str() {
        "bind" | "rbind" if mount.target.is_empty() => Some(PathBuf::from(&mount.source)),
        "overlay" => overlay_dirs(mount)?.upper,
        _ => None,
    }
}

/// Writes the file systems of these directories to disk, each once.
///
/// # Errors
/// What the disk says. Files may be empty after a power cut then, so nothing must be committed.
pub(crate) async fn flush(directories: Vec<PathBuf>) -> Result<()> {
    let flushing = tokio::task::spawn_blocking(move || {
        let mut flushed = BTreeSet::new();
        directories.iter().try_for_each(|directory| flush_one(directory, &mut flushed))
    });
    flushing.await.map_err(|error| Error::internal(format!("flush of the layers: {error}")))?
}

fn flush_one(directory: &Path, flushed: &mut BTreeSet<u64>) -> Result<()> {
    let doing = || format!("flush the file system of {}", directory.display());
    let open = File::open(directory).doing(doing())?;
    if flushed.insert(open.metadata().doing(doing())?.dev()) {
        rustix::fs::syncfs(&open).map_err(std::io::Error::from).doing(doing())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_a_mount_is_not_flushed_here() {
        let mount = |kind: &str, options: &[&str]| Mount {
            kind: kind.into(),
            source: "/s/1/fs".into(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            ..Mount::default()
        };
        assert_eq!(directory(&[mount("bind", &[])]), Some("/s/1/fs".into()));
        assert_eq!(directory(&[mount("overlay", &["upperdir=/s/2/fs"])]), Some("/s/2/fs".into()));
        assert_eq!(directory(&[mount("ext4", &[])]), None);
        assert_eq!(directory(&[]), None);
    }

    #[tokio::test]
    async fn a_directory_that_is_not_there_is_an_error() {
        assert!(flush(vec![std::env::temp_dir()]).await.is_ok());
        assert!(flush(vec![std::env::temp_dir(), "/no/such/directory".into()]).await.unwrap_err().is_not_found());
    }
}
