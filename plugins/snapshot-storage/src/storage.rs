use std::{collections::HashSet, path::Path, sync::Arc, time::SystemTime};

use core_snapshots::{Info, Kind, Usage};
use core_types::{Error, Filter, Labels, Result, ResultExt, labels};
use tracing::warn;

use crate::{
    active::Active,
    committed::Committed,
    record::{Record, set_labels},
    state::{Claim, Shared},
};

/// The longest key or name, in bytes.
const MAX_KEY: usize = 4096;

/// The records of a snapshotter. A clone is the same storage.
///
/// Reading is done in memory. What changes something works on the disk and may wait for another request that
/// changes the same snapshot: call it on a blocking thread.
#[derive(Clone)]
pub struct Storage(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    committed: Committed,
    active: Active,
}

/// A snapshot with what a snapshotter needs to know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Names its directory.
    pub id: u64,
    /// Ids of its parents, nearest first.
    pub parent_ids: Vec<u64>,
    /// What the API shows.
    pub info: Info,
    /// As of its commit.
    pub usage: Usage,
}

/// A snapshot that is being made: its key and id are taken and its parent cannot go. Dropped without
/// [`finish`](Self::finish), it was never there.
pub struct Creation {
    storage: Storage,
    record: Record,
    parent_ids: Vec<u64>,
    finished: bool,
    _claim: Claim,
}

fn check_key(key: &str) -> Result<()> {
    match key.len() {
        0 => Err(Error::invalid_argument("snapshot key must not be empty")),
        1..=MAX_KEY => Ok(()),
        length => Err(Error::invalid_argument(format!("snapshot key of {length} bytes is longer than {MAX_KEY}"))),
    }
}

impl Storage {
    /// Opens or makes the records of the snapshotter in `root`, whose directories are in `root/snapshots`.
    ///
    /// # Errors
    /// DataLoss when the database is damaged, and what the disk says.
    pub fn open(root: &Path) -> Result<Self> {
        let doing = format!("open snapshots in {}", root.display());
        let snapshots = root.join("snapshots");
        let committed = Committed::open(&root.join("metadata.lmdb")).doing(&doing)?;
        let active = Active::open(root.join("active"), snapshots.clone()).doing(&doing)?;
        let shared = Arc::new(Shared::default());
        {
            let mut state = shared.lock();
            state.next = first_free(&snapshots).doing(&doing)?;
            let mut records = committed.load().doing(&doing)?;
            // Parents come before their children: they were made before them, unless a layer was rebased.
            records.sort_by_key(|record| record.id);
            let known: HashSet<u64> = records.iter().map(|record| record.id).collect();
            for record in active.load().doing(&doing)? {
                if known.contains(&record.id) {
                    // A crash came between its commit and the end of its active record.
                    active.delete(&record)?;
                } else {
                    records.push(record);
                }
            }
            state.records = records.iter().map(|record| (record.name.clone(), record.clone())).collect();
            for record in records {
                if !record.parent.is_empty() && !state.records.contains_key(&record.parent) {
                    warn!(snapshot = record.name, parent = record.parent, "the parent of a snapshot is missing");
                }
                state.insert(record);
            }
        }
        Ok(Self(Arc::new(Inner { shared, committed, active })))
    }

    /// A snapshot by its key or name.
    ///
    /// # Errors
    /// NotFound when it is not there.
    pub fn get(&self, key: &str) -> Result<Snapshot> {
        let state = self.0.shared.lock();
        let record = state.get(key)?;
        Ok(Snapshot {
            id: record.id,
            parent_ids: state.chain(&record.parent)?,
            info: record.info(),
            usage: record.usage(),
        })
    }

    /// An active snapshot or view by its key.
    ///
    /// # Errors
    /// NotFound when it is not there, FailedPrecondition when it is committed.
    pub fn get_active(&self, key: &str) -> Result<Snapshot> {
        let snapshot = self.get(key)?;
        match snapshot.info.kind {
            Kind::Active | Kind::View => Ok(snapshot),
            Kind::Committed => Err(Error::failed_precondition(format!("requested snapshot {key} not active or view"))),
        }
    }

    /// The snapshots that any of the filters accepts with their ids, in order of name.
    ///
    /// # Errors
    /// InvalidArgument for a filter that does not parse.
    pub fn list(&self, filters: &[String]) -> Result<Vec<(u64, Info)>> {
        let filter = Filter::parse_all(filters)?;
        let state = self.0.shared.lock();
        let infos = state.records.values().map(|record| (record.id, record.info()));
        Ok(infos.filter(|(_, info)| filter.matches(info)).collect())
    }

    /// The ids that have, or will have, a directory.
    pub fn ids(&self) -> HashSet<u64> {
        let state = self.0.shared.lock();
        state.records.values().map(|record| record.id).chain(state.pending.iter().copied()).collect()
    }

    /// How many new records wait for their sync.
    #[cfg(test)]
    pub(crate) fn unsynced(&self) -> usize {
        self.0.active.unsynced()
    }

    /// Begins an active snapshot or a view on `parent` (empty for none).
    ///
    /// # Errors
    /// NotFound for a missing parent, InvalidArgument for one not committed, AlreadyExists for a key in use.
    pub fn create(&self, kind: Kind, key: &str, parent: &str, labels: Labels) -> Result<Creation> {
        check_key(key)?;
        labels::validate_all(&labels)?;
        if kind == Kind::Committed {
            return Err(Error::invalid_argument("only active snapshots and views can be created"));
        }
        let claim = self.0.shared.claim(&[key])?;
        let mut state = self.0.shared.lock();
        if !parent.is_empty() {
            let record = state
                .records
                .get(parent)
                .ok_or_else(|| Error::not_found(format!("missing parent snapshot {parent:?}")))?;
            if record.kind() != Kind::Committed {
                return Err(Error::invalid_argument(format!("parent {parent:?} is not committed snapshot")));
            }
        }
        if state.records.contains_key(key) {
            return Err(Error::already_exists(format!("snapshot {key:?}")));
        }
        let parent_ids = state.chain(parent)?;
        let id = state.next;
        state.next += 1;
        state.pending.insert(id);
        if let Some(parent) = parent_ids.first() {
            state.children.insert((*parent, id));
        }
        drop(state);
        let record = Record::new(id, kind, key, parent, labels);
        Ok(Creation { storage: self.clone(), record, parent_ids, finished: false, _claim: claim })
    }

    /// Makes the active snapshot `key` the committed `name`, durably. `parent` gives a parent to one that has
    /// none.
    ///
    /// # Errors
    /// AlreadyExists for a name in use, NotFound for a missing key or parent, FailedPrecondition when `key` is not
    /// active or the parent not committed, InvalidArgument for another parent than it has.
    pub fn commit(&self, name: &str, key: &str, parent: Option<&str>, labels: Labels, usage: Usage) -> Result<()> {
        check_key(name)?;
        labels::validate_all(&labels)?;
        let _claim = self.0.shared.claim(&[name, key])?;
        let mut state = self.0.shared.lock();
        if state.records.contains_key(name) {
            return Err(Error::already_exists(format!("committed snapshot {name}")));
        }
        let active = state.get(key).doing("failed to get active snapshot")?.clone();
        if active.kind() != Kind::Active {
            return Err(Error::failed_precondition(format!("snapshot {key:?} is not active")));
        }
        let parent = match parent.filter(|parent| !parent.is_empty() && *parent != active.parent) {
            Some(parent) if active.parent.is_empty() => parent,
            Some(_) => {
                return Err(Error::invalid_argument(format!(
                    "cannot change parent of active snapshot {key:?} on commit"
                )));
            }
            None => active.parent.as_str(),
        };
        let rebased = parent != active.parent;
        let mut link = None;
        if !parent.is_empty() {
            let below = state
                .records
                .get(parent)
                .ok_or_else(|| Error::not_found(format!("missing parent {parent:?} of snapshot {key:?}")))?;
            if below.kind() != Kind::Committed {
                return Err(Error::failed_precondition(format!("parent {parent:?} is not committed")));
            }
            link = Some((below.id, active.id));
        }
        // From here on the parent cannot go.
        state.children.extend(link);
        drop(state);
        let record = Record::new(active.id, Kind::Committed, name, parent, labels).with_usage(usage);
        let stored = self.0.committed.put(&record);
        let mut state = self.0.shared.lock();
        if let Err(error) = stored {
            if let Some(link) = link.filter(|_| rebased) {
                state.children.remove(&link);
            }
            return Err(error);
        }
        state.records.remove(key);
        state.insert(record);
        drop(state);
        if let Err(error) = self.0.active.delete(&active) {
            // Opening the storage clears it away.
            warn!(%error, "cannot remove the active record of a committed snapshot");
        }
        Ok(())
    }

    /// Changes the labels that `fieldpaths` name, all when it is empty.
    ///
    /// # Errors
    /// NotFound when it is not there, InvalidArgument for a field that cannot be changed.
    pub fn update(&self, info: &Info, fieldpaths: &[String]) -> Result<Info> {
        let _claim = self.0.shared.claim(&[&info.name])?;
        let mut record = self.0.shared.lock().get(&info.name)?.clone();
        if fieldpaths.is_empty() {
            record.labels = info.labels.clone();
        }
        for path in fieldpaths {
            if path == "labels" {
                record.labels = info.labels.clone();
            } else if let Some(key) = path.strip_prefix("labels.") {
                record.labels.insert(key.to_owned(), info.labels.get(key).cloned().unwrap_or_default());
            } else {
                return Err(Error::invalid_argument(format!(
                    "cannot update {path:?} field on snapshot {:?}",
                    info.name
                )));
            }
        }
        record.labels = set_labels(record.labels);
        labels::validate_all(&record.labels)?;
        record.updated = SystemTime::now();
        match record.kind() {
            Kind::Committed => self.0.committed.put(&record)?,
            Kind::Active | Kind::View => self.0.active.put(&record)?,
        }
        let info = record.info();
        self.0.shared.lock().records.insert(record.name.clone(), record);
        Ok(info)
    }

    /// Forgets a snapshot and returns its id, whose directory then belongs to nobody.
    ///
    /// # Errors
    /// NotFound when it is not there, FailedPrecondition while others stand on it.
    pub fn remove(&self, key: &str) -> Result<u64> {
        let _claim = self.0.shared.claim(&[key])?;
        let mut state = self.0.shared.lock();
        let id = state.get(key)?.id;
        if state.has_children(id) {
            return Err(Error::failed_precondition(format!("cannot remove snapshot {key:?} with child")));
        }
        let Some(record) = state.take(key) else {
            return Err(Error::not_found(format!("snapshot {key} does not exist")));
        };
        drop(state);
        let removed = match record.kind() {
            Kind::Committed => self.0.committed.delete(&record),
            Kind::Active | Kind::View => self.0.active.delete(&record),
        };
        if let Err(error) = removed {
            self.0.shared.lock().insert(record);
            return Err(error);
        }
        Ok(id)
    }
}

impl Creation {
    /// The id, which names the directory.
    pub fn id(&self) -> u64 {
        self.record.id
    }

    /// Ids of the parents, nearest first.
    pub fn parent_ids(&self) -> &[u64] {
        &self.parent_ids
    }

    /// The labels.
    pub fn labels(&self) -> &Labels {
        &self.record.labels
    }

    /// Makes the snapshot known. Its directory has to be there.
    ///
    /// # Errors
    /// What the disk says; then the snapshot does not exist.
    pub fn finish(mut self) -> Result<Snapshot> {
        self.storage.0.active.put(&self.record)?;
        self.finished = true;
        self.storage.0.shared.lock().insert(self.record.clone());
        Ok(Snapshot {
            id: self.record.id,
            parent_ids: std::mem::take(&mut self.parent_ids),
            info: self.record.info(),
            usage: Usage::default(),
        })
    }
}

impl Drop for Creation {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let mut state = self.storage.0.shared.lock();
        state.pending.remove(&self.record.id);
        if let Some(parent) = self.parent_ids.first() {
            state.children.remove(&(*parent, self.record.id));
        }
    }
}

/// An id above those of all directories in `snapshots`, also of ones that wait for removal.
fn first_free(snapshots: &Path) -> Result<u64> {
    let mut next = 1;
    for entry in std::fs::read_dir(snapshots)? {
        let name = entry?.file_name();
        let digits = name.to_str().map(|name| name.trim_start_matches(|c: char| !c.is_ascii_digit()));
        if let Some(id) = digits.and_then(|digits| digits.parse::<u64>().ok()) {
            next = next.max(id.saturating_add(1));
        }
    }
    Ok(next)
}

/// Runs disk work on a blocking thread.
///
/// # Errors
/// Those of `work`; Internal when it panicked.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::internal(format!("snapshot worker: {error}")))?
}
