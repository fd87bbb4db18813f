use std::{
    fs::{self, DirBuilder},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown},
    path::Path,
    sync::Arc,
};

use async_trait::async_trait;
use core_mount::Mount;
use core_snapshots::{Info, Kind, Snapshotter, Usage};
use core_types::{Labels, Result, ResultExt};
use plugin_snapshot_storage::{Creation, Directories, Storage, disk_usage, remove_tree, run};

use crate::{
    Config,
    mounts::{Options, mapped_root, mounts, upper},
    probe,
};

/// Shows where the files of a snapshot are.
const LABEL_UPPERDIR: &str = "containerd.io/snapshot/overlay.upperdir";

/// Keeps snapshots as directories that the kernel's overlayfs lays over each other.
pub struct OverlaySnapshotter(Arc<Inner>);

struct Inner {
    storage: Storage,
    directories: Directories,
    options: Options,
    upperdir_label: bool,
    sync_remove: bool,
    rebases: bool,
    slow_chown: bool,
}

impl OverlaySnapshotter {
    /// Opens the snapshotter in `root`, after a check that overlays work there. Blocks.
    ///
    /// # Errors
    /// FailedPrecondition and others when overlays do not work, DataLoss when the records are damaged.
    pub fn open(root: &Path, config: &Config) -> Result<Self> {
        let directories = Directories::open(root)?;
        let overlay = probe::complete(config.mount_options.clone(), root);
        // Below `snapshots`, where a clean-up finds what a crash leaves of the check.
        probe::supported(&root.join("snapshots"), &overlay)?;
        Ok(Self(Arc::new(Inner {
            storage: Storage::open(root)?,
            directories,
            options: Options { overlay, remap_ids: probe::maps_ids() },
            upperdir_label: config.upperdir_label,
            sync_remove: config.sync_remove,
            // Whiteouts that know no parent are device nodes, which user namespaces cannot make.
            rebases: !core_sys::in_user_namespace(),
            slow_chown: config.slow_chown,
        })))
    }

    /// What introspection shows: `remap-ids`, `only-remap-ids`, `rebase`.
    pub fn capabilities(&self) -> Vec<&'static str> {
        let mut all = Vec::new();
        all.extend(self.0.options.remap_ids.then_some("remap-ids"));
        all.extend((!self.0.slow_chown).then_some("only-remap-ids"));
        all.extend(self.0.rebases.then_some("rebase"));
        all
    }
}

impl Inner {
    fn create(&self, kind: Kind, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>> {
        let creation = self.storage.create(kind, key, parent, labels)?;
        let directory = self.directories.of(creation.id());
        let made = self.make_directory(&directory, kind, &creation);
        match made.and_then(|()| creation.finish()) {
            Ok(snapshot) => Ok(mounts(&self.directories, &self.options, &snapshot)),
            Err(error) => {
                if let Err(left) = remove_tree(&directory) {
                    tracing::warn!(error = %left, "cannot remove the directory of a snapshot that failed");
                }
                Err(error).doing(format_args!("create snapshot {key}"))
            }
        }
    }

    /// Makes `fs` and `work`; the root that a container sees has owner and mode of the one below.
    fn make_directory(&self, directory: &Path, kind: Kind, creation: &Creation) -> Result<()> {
        let make = |path: &Path, mode: u32| {
            let made = DirBuilder::new().mode(mode).create(path);
            made.and_then(|()| fs::set_permissions(path, PermissionsExt::from_mode(mode)))
                .doing(format_args!("create {}", path.display()))
        };
        let files = directory.join("fs");
        let mut mode = 0o755;
        let mut owner = mapped_root(creation.labels())?;
        if let Some(parent) = creation.parent_ids().first() {
            let parent = upper(&self.directories, *parent);
            let metadata = fs::metadata(&parent).doing(format_args!("stat parent {parent}"))?;
            mode = metadata.mode() & 0o7777;
            owner = owner.or(Some((metadata.uid(), metadata.gid())));
        }
        make(directory, 0o700)?;
        make(&files, mode)?;
        if let Some((user, group)) = owner.filter(|owner| *owner != (0, 0)) {
            chown(&files, Some(user), Some(group))
                .and_then(|()| fs::set_permissions(&files, PermissionsExt::from_mode(mode)))
                .doing(format_args!("change the owner of {}", files.display()))?;
        }
        if kind == Kind::Active {
            make(&directory.join("work"), 0o711)?;
        }
        Ok(())
    }

    fn labelled(&self, id: u64, mut info: Info) -> Info {
        if self.upperdir_label {
            info.labels.insert(LABEL_UPPERDIR.into(), upper(&self.directories, id));
        }
        info
    }
}

#[async_trait]
impl Snapshotter for OverlaySnapshotter {
    async fn stat(&self, key: &str) -> Result<Info> {
        let snapshot = self.0.storage.get(key)?;
        Ok(self.0.labelled(snapshot.id, snapshot.info))
    }

    async fn update(&self, mut info: Info, fieldpaths: &[String]) -> Result<Info> {
        let (inner, fieldpaths) = (Arc::clone(&self.0), fieldpaths.to_vec());
        run(move || {
            if inner.upperdir_label {
                // It came from here and is not kept.
                info.labels.remove(LABEL_UPPERDIR);
            }
            let info = inner.storage.update(&info, &fieldpaths)?;
            let id = inner.storage.get(&info.name)?.id;
            Ok(inner.labelled(id, info))
        })
        .await
    }

    async fn usage(&self, key: &str) -> Result<Usage> {
        let snapshot = self.0.storage.get(key)?;
        if snapshot.info.kind != Kind::Active {
            return Ok(snapshot.usage);
        }
        let path = self.0.directories.of(snapshot.id).join("fs");
        run(move || disk_usage(&path)).await
    }

    async fn mounts(&self, key: &str) -> Result<Vec<Mount>> {
        let snapshot = self.0.storage.get_active(key)?;
        Ok(mounts(&self.0.directories, &self.0.options, &snapshot))
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
        let parent = parent.map(str::to_owned);
        run(move || {
            let id = inner.storage.get(&key)?.id;
            let usage = disk_usage(&inner.directories.of(id).join("fs"))?;
            inner.storage.commit(&name, &key, parent.as_deref(), labels, usage)
        })
        .await
    }

    async fn remove(&self, key: &str) -> Result<()> {
        let (inner, key) = (Arc::clone(&self.0), key.to_owned());
        run(move || {
            let id = inner.storage.remove(&key)?;
            inner.directories.discard(id, inner.sync_remove);
            Ok(())
        })
        .await
    }

    async fn list(&self, filters: &[String]) -> Result<Vec<Info>> {
        let found = self.0.storage.list(filters)?;
        Ok(found.into_iter().map(|(id, info)| self.0.labelled(id, info)).collect())
    }

    async fn cleanup(&self) -> Result<()> {
        let inner = Arc::clone(&self.0);
        run(move || inner.directories.cleanup(&inner.storage)).await
    }

    fn rebases(&self) -> bool {
        self.0.rebases
    }

    fn stacks_as_overlay(&self) -> bool {
        true
    }
}
