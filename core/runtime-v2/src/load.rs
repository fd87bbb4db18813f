//! Finding the tasks that a daemon before this one left.
//!
//! The directories are read at once and every task is in the table before [`TaskManager::load`] answers; the
//! shims are then reached in parallel in the background, so that one that does not answer holds up nothing.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use core_types::{Namespace, Result, ResultExt, identifiers};

use crate::{
    bundle::{Bundle, Layout, write_file},
    entry::{Entry, Key},
    log,
    manager::{Inner, TaskManager, blocking},
    supervise,
};

/// Name of the file beside the bundles with the id of the boot that their shims were started in.
const BOOT_FILE: &str = ".boot-id";
/// The runtime of bundles so old that they do not name theirs.
pub(crate) const OLD_RUNTIME: &str = "io.containerd.runc.v2";

/// A bundle on disk.
pub(crate) struct Found {
    pub(crate) key: Key,
    pub(crate) bundle: Bundle,
    pub(crate) binary: Option<String>,
    sandbox: Option<String>,
}

impl TaskManager {
    /// Finds the tasks of a daemon before this one; to be called once, before requests are served. Answers
    /// their number. They are connected in the background: see [`settled`](Self::settled).
    ///
    /// # Errors
    /// When the state directory cannot be read.
    pub async fn load(&self) -> Result<usize> {
        let inner = &self.0;
        let layout = inner.layout.clone();
        let (found, same_boot) = blocking(move || {
            let same_boot = same_boot(&layout.state);
            let found = scan(&layout)?;
            remove_orphans(&layout.root, &found);
            Ok((found, same_boot))
        })
        .await?;
        let count = found.len();
        for found in found {
            adopt(inner, found, same_boot);
        }
        Ok(count)
    }
}

fn adopt(inner: &Arc<Inner>, found: Found, same_boot: bool) {
    let named = found.binary.as_deref().unwrap_or(OLD_RUNTIME);
    // Should its binary be gone the shim may still run; only cleaning up after it will fail.
    let binary = inner.resolver.resolve(named).unwrap_or_else(|_| PathBuf::from(named));
    let entry = Arc::new(Entry::new(found.key, found.bundle, binary, found.sandbox));
    inner.insert(entry.clone());
    if !same_boot {
        let inner = inner.clone();
        tokio::spawn(async move {
            let _ending = entry.ending.lock().await;
            inner.bury(&entry).await;
        });
        return;
    }
    match log::follow(&entry.bundle.path, &entry.key.id) {
        Ok(handle) => entry.keep(handle),
        Err(error) => tracing::debug!(id = entry.key.id, %error, "the shim's log is not followed"),
    }
    supervise::adopt(inner, &entry);
}

/// Whether the machine was not started anew since the bundles were made; keeps the id of this boot. When
/// nothing is known it is assumed, the sockets then tell.
fn same_boot(state: &Path) -> bool {
    let Ok(current) = fs::read_to_string("/proc/sys/kernel/random/boot_id") else { return true };
    let path = state.join(BOOT_FILE);
    let kept = fs::read_to_string(&path).ok();
    if kept.as_deref() != Some(current.as_str())
        && let Err(error) = write_file(&path, current.as_bytes(), 0o644)
    {
        tracing::warn!(%error, "the id of this boot is not kept");
    }
    kept.is_none_or(|kept| kept == current)
}

/// The bundles of a layout.
///
/// # Errors
/// When the state directory cannot be read.
pub(crate) fn scan(layout: &Layout) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for (name, path) in directories(&layout.state).doing(format_args!("read {}", layout.state.display()))? {
        let Ok(namespace) = Namespace::new(&name) else { continue };
        let Ok(bundles) = directories(&path) else {
            tracing::error!(%namespace, path = %path.display(), "tasks not loaded: directory not readable");
            continue;
        };
        for (id, path) in bundles {
            if id.starts_with('.') {
                // A removal that was cut off after its first step.
                remove_hidden(&path);
            } else if identifiers::validate(&id).is_ok() {
                let bundle = layout.bundle(&namespace, &id);
                if fs::read_dir(&path).is_ok_and(|mut files| files.next().is_none()) {
                    let _ = bundle.delete();
                    continue;
                }
                let (binary, sandbox) = (bundle.load_binary(), bundle.load_sandbox());
                found.push(Found { key: Key { namespace: namespace.clone(), id }, bundle, binary, sandbox });
            }
        }
    }
    Ok(found)
}

fn remove_hidden(path: &Path) {
    // Nothing is removed through a mount.
    let removed = core_mount::unmount_all(path).and_then(|()| Ok(fs::remove_dir_all(path)?));
    if let Err(error) = removed {
        tracing::warn!(path = %path.display(), %error, "left-over directory not removed");
    }
}

/// Working directories without a bundle stay behind when the machine is started anew.
pub(crate) fn remove_orphans(root: &Path, found: &[Found]) {
    let known: BTreeSet<(&str, &str)> =
        found.iter().map(|found| (found.key.namespace.as_str(), found.key.id.as_str())).collect();
    for (namespace, path) in directories(root).unwrap_or_default() {
        for (id, path) in directories(&path).unwrap_or_default() {
            if !known.contains(&(namespace.as_str(), id.as_str())) {
                remove_hidden(&path);
            }
        }
    }
}

fn directories(path: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir()
            && let Ok(name) = entry.file_name().into_string()
        {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}
