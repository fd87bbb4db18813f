use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use core_types::{Error, Result, ResultExt};
use tokio::runtime::Handle;
use tracing::warn;

use crate::record::Record;

/// How long a new record waits for others before all are synced together.
const SYNC_AFTER: Duration = Duration::from_secs(1);

/// Records of active snapshots and views, a file for each.
pub(crate) struct Active(Arc<Inner>);

struct Inner {
    directory: PathBuf,
    snapshots: PathBuf,
    /// Ids whose files are not synced yet. A sync is on its way while there are any.
    dirty: Mutex<BTreeSet<u64>>,
}

impl Active {
    /// `snapshots` is the directory that holds the snapshots' own directories; its names are synced too.
    pub(crate) fn open(directory: PathBuf, snapshots: PathBuf) -> Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(Self(Arc::new(Inner { directory, snapshots, dirty: Mutex::default() })))
    }

    /// Reads all records. One that a power cut left torn is forgotten: what it described was as new.
    pub(crate) fn load(&self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.0.directory)? {
            let path = entry?.path();
            let record = fs::read(&path).map_err(Error::from).and_then(|bytes| {
                serde_json::from_slice::<Record>(&bytes).map_err(|error| Error::data_loss(error.to_string()))
            });
            match record {
                Ok(record) if path == self.0.path(record.id) => records.push(record),
                Ok(_) => drop(fs::remove_file(&path)),
                Err(error) => {
                    warn!(path = %path.display(), %error, "forgetting an active snapshot whose record is torn");
                    drop(fs::remove_file(&path));
                }
            }
        }
        Ok(records)
    }

    pub(crate) fn put(&self, record: &Record) -> Result<()> {
        let bytes = serde_json::to_vec(record).map_err(|error| Error::internal(error.to_string()))?;
        let path = self.0.path(record.id);
        let fresh = path.with_extension("new");
        fs::write(&fresh, bytes)
            .and_then(|()| fs::rename(&fresh, &path))
            .doing(format_args!("store snapshot {}", record.name))?;
        self.sync_later(record.id)
    }

    pub(crate) fn delete(&self, record: &Record) -> Result<()> {
        self.0.dirty().remove(&record.id);
        match fs::remove_file(self.0.path(record.id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(format_args!("forget snapshot {}", record.name), error))
            }
            _ => Ok(()),
        }
    }

    #[cfg(test)]
    pub(crate) fn unsynced(&self) -> usize {
        self.0.dirty().len()
    }

    /// Sees to it that the record is on disk before long; at once where there is nobody to do it later.
    fn sync_later(&self, id: u64) -> Result<()> {
        let first = {
            let mut dirty = self.0.dirty();
            let first = dirty.is_empty();
            dirty.insert(id);
            first
        };
        match Handle::try_current() {
            Ok(runtime) if first => {
                let inner = Arc::downgrade(&self.0);
                runtime.spawn(sync_after(inner));
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(_) => self.0.sync(),
        }
    }
}

/// Ends by itself after one sync, or without one when the storage is gone.
async fn sync_after(inner: Weak<Inner>) {
    tokio::time::sleep(SYNC_AFTER).await;
    let Some(inner) = inner.upgrade() else { return };
    let synced = tokio::task::spawn_blocking(move || inner.sync()).await;
    if let Ok(Err(error)) = synced {
        warn!(%error, "cannot sync the records of active snapshots");
    }
}

impl Inner {
    fn dirty(&self) -> std::sync::MutexGuard<'_, BTreeSet<u64>> {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, id: u64) -> PathBuf {
        self.directory.join(id.to_string())
    }

    fn sync(&self) -> Result<()> {
        let ids = std::mem::take(&mut *self.dirty());
        if ids.is_empty() {
            return Ok(());
        }
        for id in ids {
            match File::open(self.path(id)) {
                Ok(file) => file.sync_data()?,
                // Removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        let sync_dir = |path: &Path| File::open(path).and_then(|dir| dir.sync_all());
        sync_dir(&self.directory).and_then(|()| sync_dir(&self.snapshots)).doing("sync active snapshots")
    }
}
