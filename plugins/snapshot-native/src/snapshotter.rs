use std::{
    fs::{self, DirBuilder},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
    sync::Arc,
};

use async_trait::async_trait;
use core_archive::copy_tree;
use core_mount::Mount;
use core_snapshots::{Info, Kind, Snapshotter, Usage};
use core_types::{Error, Labels, Result, ResultExt};
use plugin_snapshot_storage::{Creation, Directories, Snapshot, Storage, disk_usage, remove_tree, run};

/// Keeps each snapshot as a whole tree in a directory of its own.
pub struct NativeSnapshotter(Arc<Inner>);

struct Inner {
    storage: Storage,
    directories: Directories,
}

impl NativeSnapshotter {
    /// Opens the snapshotter in `root`. Blocks.
    ///
    /// # Errors
    /// DataLoss when the records are damaged, and what the disk says.
    pub fn open(root: &Path) -> Result<Self> {
        let directories = Directories::open(root)?;
        Ok(Self(Arc::new(Inner { storage: Storage::open(root)?, directories })))
    }
}

impl Inner {
    /// A view of a parent is the parent's own directory; everything else has one.
    fn mounts(&self, snapshot: &Snapshot) -> Vec<Mount> {
        let (id, access) = match (snapshot.info.kind, snapshot.parent_ids.first()) {
            (Kind::Active, _) => (snapshot.id, "rw"),
            (_, Some(parent)) => (*parent, "ro"),
            (_, None) => (snapshot.id, "ro"),
        };
        vec![Mount {
            kind: "bind".into(),
            source: self.directories.of(id).to_string_lossy().into_owned(),
            target: String::new(),
            options: vec!["rbind".into(), access.into()],
        }]
    }

    fn create(&self, kind: Kind, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>> {
        let creation = self.storage.create(kind, key, parent, labels)?;
        let directory = self.directories.of(creation.id());
        let made = self.make_directory(&directory, kind, &creation);
        match made.and_then(|()| creation.finish()) {
            Ok(snapshot) => Ok(self.mounts(&snapshot)),
            Err(error) => {
                if let Err(left) = remove_tree(&directory) {
                    tracing::warn!(error = %left, "cannot remove the directory of a snapshot that failed");
                }
                Err(error).doing(format_args!("create snapshot {key}"))
            }
        }
    }

    fn make_directory(&self, directory: &Path, kind: Kind, creation: &Creation) -> Result<()> {
        let parent = creation.parent_ids().first();
        if kind == Kind::View && parent.is_some() {
            return Ok(());
        }
        let made = DirBuilder::new().mode(0o755).create(directory);
        made.and_then(|()| fs::set_permissions(directory, PermissionsExt::from_mode(0o755)))
            .doing(format_args!("create {}", directory.display()))?;
        parent.map_or(Ok(()), |parent| copy_tree(&self.directories.of(*parent), directory))
    }
}

#[async_trait]
impl Snapshotter for NativeSnapshotter {
    async fn stat(&self, key: &str) -> Result<Info> {
        Ok(self.0.storage.get(key)?.info)
    }

    async fn update(&self, info: Info, fieldpaths: &[String]) -> Result<Info> {
        let (inner, fieldpaths) = (Arc::clone(&self.0), fieldpaths.to_vec());
        run(move || inner.storage.update(&info, &fieldpaths)).await
    }

    async fn usage(&self, key: &str) -> Result<Usage> {
        let snapshot = self.0.storage.get(key)?;
        if snapshot.info.kind != Kind::Active {
            return Ok(snapshot.usage);
        }
        let path = self.0.directories.of(snapshot.id);
        run(move || disk_usage(&path)).await
    }

    async fn mounts(&self, key: &str) -> Result<Vec<Mount>> {
        Ok(self.0.mounts(&self.0.storage.get_active(key)?))
    }

    async fn prepare(&self, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>> {
        let (inner, key, parent) = (Arc::clone(&self.0), key.to_owned(), parent.to_owned());
        run(move || inner.create(Kind::Active, &key, &parent, labels)).await
    }

    async fn view(&self, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>> {
        let (inner, key, parent) = (Arc::clone(&self.0), key.to_owned(), parent.to_owned());
        run(move || inner.create(Kind::View, &key, &parent, labels)).await
    }

    async fn commit(&self, name: &str, key: &str, parent: Option<&str>, labels: Labels) -> Result<()> {
        let (inner, name, key) = (Arc::clone(&self.0), name.to_owned(), key.to_owned());
        let parent = parent.unwrap_or_default().to_owned();
        run(move || {
            let snapshot = inner.storage.get(&key)?;
            if !parent.is_empty() && parent != snapshot.info.parent {
                // The tree is a whole one: what the parent has would be missing from it.
                return Err(Error::invalid_argument(format!(
                    "cannot change parent of active snapshot {key:?} on commit: the native snapshotter cannot rebase"
                )));
            }
            if snapshot.info.kind != Kind::Active {
                return Err(Error::failed_precondition(format!("snapshot {key:?} is not active")));
            }
            let usage = disk_usage(&inner.directories.of(snapshot.id))?;
            inner.storage.commit(&name, &key, None, labels, usage)
        })
        .await
    }

    async fn remove(&self, key: &str) -> Result<()> {
        let (inner, key) = (Arc::clone(&self.0), key.to_owned());
        run(move || {
            let id = inner.storage.remove(&key)?;
            inner.directories.discard(id, false);
            Ok(())
        })
        .await
    }

    async fn list(&self, filters: &[String]) -> Result<Vec<Info>> {
        Ok(self.0.storage.list(filters)?.into_iter().map(|(_, info)| info).collect())
    }

    async fn cleanup(&self) -> Result<()> {
        let inner = Arc::clone(&self.0);
        run(move || inner.directories.cleanup(&inner.storage)).await
    }
}
