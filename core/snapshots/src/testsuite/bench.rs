use std::{
    collections::BTreeMap,
    fs,
    future::Future,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use core_mount::{Mount, mount_all, unmount_all};
use core_types::{Labels, Result};

use crate::{Info, Snapshotter};

/// Makes a snapshotter in an empty directory; none when it cannot work here.
pub type Make = fn(&Path) -> Option<Arc<dyn Snapshotter>>;

/// What a case works with.
pub struct Bench {
    /// The snapshotter under test.
    pub snapshotter: Arc<dyn Snapshotter>,
    work: PathBuf,
}

/// Runs a case in a runtime and a mount namespace of its own.
pub fn run<F: Future<Output = ()>>(make: Make, case: impl FnOnce(Bench) -> F) {
    if let Err(error) = core_sys::private_mount_namespace() {
        eprintln!("skipped: no mount namespace of its own ({error}); run as root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (root, work) = (directory.path().join("root"), directory.path().join("work"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&work).unwrap();
    // Threads of the runtime are started from here, so they are in the namespace too.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let Some(snapshotter) = make(&root) else { return };
        case(Bench { snapshotter, work }).await;
    });
}

impl Bench {
    /// Mounts for the length of `work`.
    pub fn mounted<T>(&self, mounts: &[Mount], work: impl FnOnce(&Path) -> T) -> T {
        let target = tempfile::tempdir_in(&self.work).unwrap();
        mount_all(mounts, target.path()).unwrap();
        let done = work(target.path());
        unmount_all(target.path()).unwrap();
        done
    }

    /// Prepares `name-active` on `parent`, changes it and commits it as `name`.
    pub async fn layer(&self, name: &str, parent: &str, change: impl FnOnce(&Path)) {
        let key = format!("{name}-active");
        let mounts = self.snapshotter.prepare(&key, parent, Labels::new()).await.unwrap();
        self.mounted(&mounts, change);
        self.snapshotter.commit(name, &key, None, Labels::new()).await.unwrap();
    }

    /// Looks at a committed snapshot through a view, which is removed afterwards.
    pub async fn viewed<T>(&self, name: &str, look: impl FnOnce(&Path) -> T) -> T {
        let key = format!("{name}-view");
        let mounts = self.snapshotter.view(&key, name, Labels::new()).await.unwrap();
        let seen = self.mounted(&mounts, look);
        self.snapshotter.remove(&key).await.unwrap();
        seen
    }

    /// Makes a layer of each change, and compares each with the same changes in one plain directory.
    pub async fn compare(&self, changes: &[&dyn Fn(&Path)]) {
        let flat = tempfile::tempdir_in(&self.work).unwrap();
        fs::set_permissions(flat.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut parent = String::new();
        for (number, change) in changes.iter().enumerate() {
            let name = format!("layer-{number}");
            self.layer(&name, &parent, change).await;
            change(flat.path());
            let seen = self.viewed(&name, entries).await;
            assert_eq!(seen, entries(flat.path()), "layer {number}");
            parent = name;
        }
    }

    /// Shorthand for a stat that must succeed.
    pub async fn stat(&self, key: &str) -> Info {
        self.snapshotter.stat(key).await.unwrap()
    }

    /// Prepares and commits an empty snapshot.
    pub async fn commit_empty(&self, name: &str, parent: &str) -> Result<()> {
        let key = format!("{name}-active");
        self.snapshotter.prepare(&key, parent, Labels::new()).await?;
        self.snapshotter.commit(name, &key, None, Labels::new()).await
    }
}

/// All entries of a tree with what a container can see of them, by path; the root is the empty path.
pub fn entries(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(relative) = left.pop() {
        let path = root.join(&relative);
        let metadata = fs::symlink_metadata(&path).unwrap();
        let kind = metadata.file_type();
        let content = if kind.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| relative.join(entry.unwrap().file_name())));
            "directory".to_owned()
        } else if kind.is_symlink() {
            format!("link to {:?}", fs::read_link(&path).unwrap())
        } else if kind.is_file() {
            format!("file {:?}", String::from_utf8_lossy(&fs::read(&path).unwrap()))
        } else {
            let word = if kind.is_fifo() { "fifo" } else { "device" };
            format!("{word} {}", metadata.rdev())
        };
        let attributes = attributes(&path);
        let owner = format!("{}:{}", metadata.uid(), metadata.gid());
        found.insert(relative, format!("{:o} {owner} {content}{attributes}", metadata.mode()));
    }
    found
}

/// The extended attributes of the user and the security namespace.
fn attributes(path: &Path) -> String {
    let mut list = vec![0; 64 * 1024];
    let length = rustix::fs::llistxattr(path, &mut list[..]).unwrap_or(0);
    let mut found = String::new();
    for name in list[..length].split(|byte| *byte == 0) {
        let name = std::ffi::OsStr::from_bytes(name);
        let text = name.to_string_lossy();
        if text.starts_with("user.") && !text.starts_with("user.overlay.") || text == "security.capability" {
            let mut value = vec![0; 64 * 1024];
            let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            found.push_str(&format!(" {text}={:?}", &value[..length]));
        }
    }
    found
}
