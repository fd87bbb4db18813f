use std::time::SystemTime;

use async_trait::async_trait;
use core_mount::Mount;
use core_types::{Labels, Result};

/// What a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Readable, not to be written.
    View,
    /// Being written.
    Active,
    /// Finished; can be a parent.
    Committed,
}

/// What is known of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// What it is.
    pub kind: Kind,
    /// Its key or name.
    pub name: String,
    /// The committed snapshot below it; empty for none.
    pub parent: String,
    /// Labels.
    pub labels: Labels,
    /// When it was made.
    pub created_at: SystemTime,
    /// When it changed last.
    pub updated_at: SystemTime,
}

/// Disk that a snapshot uses, without its parents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Inodes.
    pub inodes: i64,
    /// Bytes allocated.
    pub size: i64,
}

/// Stores layers as file system trees that stand on each other.
#[async_trait]
pub trait Snapshotter: Send + Sync {
    /// What is known of a snapshot. NotFound when it is not there.
    async fn stat(&self, key: &str) -> Result<Info>;
    /// Sets the labels that `fieldpaths` name (`labels`, `labels.<key>`), all when it is empty.
    async fn update(&self, info: Info, fieldpaths: &[String]) -> Result<Info>;
    /// Disk used by one snapshot.
    async fn usage(&self, key: &str) -> Result<Usage>;
    /// The mounts of an active snapshot or view.
    async fn mounts(&self, key: &str) -> Result<Vec<Mount>>;
    /// Makes a writable snapshot on `parent` (empty for none). AlreadyExists for a key in use, NotFound for a
    /// parent that is not there, InvalidArgument for one not committed.
    async fn prepare(&self, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>>;
    /// Makes a readable snapshot on `parent`.
    async fn view(&self, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>>;
    /// Turns the active snapshot `key` into the committed `name`. Labels are replaced, not inherited. `parent` gives
    /// a parent to a snapshot that was prepared without one, when [`rebases`](Self::rebases). AlreadyExists for a
    /// name in use, FailedPrecondition when `key` is not active, InvalidArgument for another parent than it has.
    async fn commit(&self, name: &str, key: &str, parent: Option<&str>, labels: Labels) -> Result<()>;
    /// Removes a snapshot. FailedPrecondition while others stand on it.
    async fn remove(&self, key: &str) -> Result<()>;
    /// Snapshots that any of the filters accepts, all when there is none.
    async fn list(&self, filters: &[String]) -> Result<Vec<Info>>;
    /// Removes what is left on disk of snapshots that are no longer known.
    async fn cleanup(&self) -> Result<()>;
    /// Whether [`commit`](Self::commit) can set another parent, so that layers can be unpacked in parallel.
    fn rebases(&self) -> bool {
        false
    }
    /// Whether the directory of a snapshot is used as the upper directory of an overlay once it has a parent. Then what
    /// is extracted into a snapshot without parent, to be given one by [`commit`](Self::commit), must mark deletions
    /// as overlays do, although its mount is a plain bind.
    fn stacks_as_overlay(&self) -> bool {
        false
    }
}
