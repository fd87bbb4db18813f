use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use core_types::{Error, Result, ResultExt};
use tracing::warn;

use crate::{Storage, Trash, remove_tree};

/// Beginning of the names of directories that wait for removal.
const TRASH_PREFIX: &str = "rm-";

/// `<root>/snapshots`, with a directory for each snapshot, named by its id.
pub struct Directories {
    path: PathBuf,
    trash: Trash,
}

impl Directories {
    /// Makes `root` and `root/snapshots`, both only for the owner, when they are not there.
    ///
    /// # Errors
    /// What the disk says.
    pub fn open(root: &Path) -> Result<Self> {
        let path = root.join("snapshots");
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.doing(format_args!("create {}", path.display()))?;
        Ok(Self { path, trash: Trash::default() })
    }

    /// The directory of a snapshot.
    pub fn of(&self, id: u64) -> PathBuf {
        self.path.join(id.to_string())
    }

    /// Removes the directory of a forgotten snapshot: now, or by a new name and in the background. What cannot be
    /// removed is logged and left for [`cleanup`](Self::cleanup): the snapshot is gone in any case.
    pub fn discard(&self, id: u64, now: bool) {
        let path = self.of(id);
        let removed = if now {
            remove_tree(&path)
        } else {
            let renamed = self.path.join(format!("{TRASH_PREFIX}{id}"));
            match fs::rename(&path, &renamed) {
                Ok(()) => {
                    self.trash.put(renamed);
                    Ok(())
                }
                // A view without a directory of its own.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(Error::io(format_args!("rename {}", path.display()), error)),
            }
        };
        if let Err(error) = removed {
            warn!(%error, "cannot remove the directory of a removed snapshot");
        }
    }

    /// Removes all directories that belong to no snapshot of `storage`, and goes on when one cannot be removed.
    ///
    /// # Errors
    /// The first failure.
    pub fn cleanup(&self, storage: &Storage) -> Result<()> {
        // In this order: a directory that is there now had its id given out before.
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).doing(format_args!("list {}", self.path.display()))? {
            names.push(entry.doing("list snapshots")?.file_name());
        }
        let ids = storage.ids();
        let mut result = Ok(());
        for name in names {
            let id = name.to_str().and_then(|name| name.parse::<u64>().ok());
            if id.is_none_or(|id| !ids.contains(&id)) {
                let removed = remove_tree(&self.path.join(&name));
                if let Err(error) = &removed {
                    warn!(%error, "cannot clean up");
                }
                result = result.and(removed);
            }
        }
        result
    }
}
