//! Snapshots of a namespace, over a snapshotter that all namespaces share.
//!
//! A record maps a namespace's key to a name in the backend, `<namespace>/<number>/<key>`. Numbers are never given
//! twice, so a backend name that no record has is garbage for good.

mod commit;
mod create;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use core_events::Event;
use core_leases::Resource;
use core_mount::Mount;
use core_snapshots::{Info, Kind, Snapshotter, Usage};
use core_types::{Error, Filter, Labels, Result, labels};
use tokio::sync::Notify;

use crate::{
    database::Bound,
    fields::{Of, update_labels},
    key::{self, Key},
    record::Snapshot,
    store::Tx,
    trash::Trash,
    writer::Durability,
};

/// Labels with this prefix, and [`labels::SNAPSHOT_REF`], are passed on to the backend.
const INHERITED: &str = "containerd.io/snapshot/";

/// The snapshots of a namespace.
#[derive(Clone)]
pub(crate) struct Snapshots {
    bound: Bound,
    name: String,
    backend: Arc<dyn Snapshotter>,
    trash: Arc<Trash>,
}

/// The labels that a backend gets.
fn inherited(all: &Labels) -> Labels {
    let passed = |key: &String| key == labels::SNAPSHOT_REF || key.starts_with(INHERITED);
    all.iter().filter(|(key, _)| passed(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn missing(key: &str) -> Error {
    Error::not_found(format!("snapshot {key} does not exist"))
}

/// What the backend says of a snapshot, under the namespace's name for it.
fn overlay(mut info: Info, record: Snapshot) -> Info {
    info.name = record.name;
    info.parent = record.parent;
    info.created_at = record.created_at;
    info.updated_at = record.updated_at;
    info.labels.extend(record.labels);
    info
}

impl Snapshots {
    pub(crate) fn new(bound: Bound, name: &str, backend: Arc<dyn Snapshotter>, trash: Arc<Trash>) -> Self {
        Self { bound, name: name.to_owned(), backend, trash }
    }

    fn key(&self, key: &str) -> Key {
        key::snapshot(self.bound.namespace(), &self.name, key)
    }

    fn resource(&self, key: &str) -> Resource {
        Resource::snapshot(&self.name, key)
    }

    /// A name in the backend for `key` that was never used.
    fn backend_name(&self, key: &str) -> String {
        format!("{}/{}/{key}", self.bound.namespace(), self.bound.db.number())
    }

    fn record(&self, key: &str) -> Result<Snapshot> {
        self.bound.db.read(|view| view.get(&self.key(key)))?.ok_or_else(|| missing(key))
    }

    /// Changes how many snapshots stand on `parent`; NotFound when it is gone.
    fn count_child(&self, tx: &mut Tx<'_, '_>, parent: &str, by: i64) -> Result<Snapshot> {
        let key = self.key(parent);
        let lost = || Error::not_found(format!("parent snapshot {parent} does not exist"));
        let mut record: Snapshot = tx.get(&key)?.ok_or_else(lost)?;
        record.children = record.children.saturating_add_signed(by);
        tx.put(&key, &record)?;
        Ok(record)
    }

    /// Lets the lease hold a snapshot that is there; false when it is gone meanwhile.
    async fn lease_existing(&self, key: &str) -> Result<bool> {
        if self.bound.lease_key.is_none() {
            return Ok(true);
        }
        let (bound, resource, node) = (self.bound.clone(), self.resource(key), self.key(key));
        let work = move |tx: &mut Tx<'_, '_>| {
            let there = tx.has(&node)?;
            if there {
                bound.add_to_lease(tx, &resource)?;
            }
            Ok(there)
        };
        self.bound.db.write(Durability::Ordered, work).await
    }
}

/// Removes a snapshot's record in a transaction, and its mark on its parent. Answers its name in the backend.
pub(crate) fn remove_record(tx: &mut Tx<'_, '_>, node: &Key, record: &Snapshot) -> Result<()> {
    if !record.parent.is_empty() {
        let parent = key::snapshot(key::part(node, 0)?, key::part(node, 1)?, &record.parent);
        if let Some(mut found) = tx.get::<Snapshot>(&parent)? {
            found.children = found.children.saturating_sub(1);
            tx.put(&parent, &found)?;
        }
    }
    tx.delete(node).map(drop)
}

#[async_trait]
impl Snapshotter for Snapshots {
    async fn stat(&self, key: &str) -> Result<Info> {
        self.bound.see(&self.key(key)).await?;
        let record = self.record(key)?;
        let info = self.backend.stat(&record.backend).await?;
        Ok(overlay(info, record))
    }

    async fn update(&self, info: Info, fieldpaths: &[String]) -> Result<Info> {
        key::check("snapshot", &info.name)?;
        let (key, paths, name, from) =
            (self.key(&info.name), fieldpaths.to_vec(), info.name.clone(), info.labels.clone());
        let work = move |tx: &mut Tx<'_, '_>| {
            let mut record: Snapshot = tx.get(&key)?.ok_or_else(|| missing(&name))?;
            update_labels(&format!("snapshot {name:?}"), &mut record.labels, &from, &paths)?;
            record.updated_at = std::time::SystemTime::now();
            tx.put(&key, &record)?;
            Ok(record)
        };
        let record = self.bound.db.write(Durability::Full, work).await?;
        let inner = Info { name: record.backend.clone(), labels: inherited(&record.labels), ..info };
        let info = self.backend.update(inner, fieldpaths).await?;
        Ok(overlay(info, record))
    }

    async fn usage(&self, key: &str) -> Result<Usage> {
        self.backend.usage(&self.record(key)?.backend).await
    }

    async fn mounts(&self, key: &str) -> Result<Vec<Mount>> {
        self.backend.mounts(&self.record(key)?.backend).await
    }

    async fn prepare(&self, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>> {
        let mounts = self.create(Kind::Active, key, parent, labels).await?;
        self.bound.publish(
            "/snapshot/prepare",
            Event::SnapshotPrepare { key: key.to_owned(), parent: parent.to_owned(), snapshotter: self.name.clone() },
        );
        Ok(mounts)
    }

    async fn view(&self, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>> {
        self.create(Kind::View, key, parent, labels).await
    }

    async fn commit(&self, name: &str, key: &str, parent: Option<&str>, labels: Labels) -> Result<()> {
        self.commit_as(name, key, parent, labels).await?;
        let event =
            Event::SnapshotCommit { key: key.to_owned(), name: name.to_owned(), snapshotter: self.name.clone() };
        self.bound.publish("/snapshot/commit", event);
        Ok(())
    }

    async fn remove(&self, key: &str) -> Result<()> {
        let (node, this, name) = (self.key(key), self.clone(), key.to_owned());
        let work = move |tx: &mut Tx<'_, '_>| {
            let record: Snapshot = tx.get(&node)?.ok_or_else(|| missing(&name))?;
            if record.children > 0 {
                return Err(Error::failed_precondition(format!("cannot remove snapshot {name} with child")));
            }
            remove_record(tx, &node, &record)?;
            this.bound.remove_from_lease(tx, &this.resource(&name))?;
            Ok(record.backend)
        };
        let backend = self.bound.db.submit(Durability::Ordered, work).await?;
        self.trash.suspect([backend]);
        self.bound.db.mutated(true);
        let event = Event::SnapshotRemove { key: key.to_owned(), snapshotter: self.name.clone() };
        self.bound.publish("/snapshot/remove", event);
        Ok(())
    }

    async fn list(&self, filters: &[String]) -> Result<Vec<Info>> {
        let filter = Filter::parse_all(filters)?;
        let mut records: Vec<Snapshot> = Vec::new();
        self.bound.db.read(|view| {
            view.scan(&key::prefix(key::Kind::Snapshot, &[self.bound.namespace(), &self.name]), |_, record| {
                records.push(record);
                Ok(())
            })
        })?;
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let backend = self.backend.list(&[]).await?;
        let mut backend: HashMap<String, Info> = backend.into_iter().map(|info| (info.name.clone(), info)).collect();
        let both = records.into_iter().filter_map(|record| Some(overlay(backend.remove(&record.backend)?, record)));
        Ok(both.filter(|info| filter.matches(&Of(info))).collect())
    }

    async fn cleanup(&self) -> Result<()> {
        self.backend.cleanup().await
    }

    fn rebases(&self) -> bool {
        self.backend.rebases()
    }

    fn stacks_as_overlay(&self) -> bool {
        self.backend.stacks_as_overlay()
    }
}

/// Lets one at a time do something to a name.
#[derive(Default)]
pub(crate) struct Turns {
    taken: Mutex<HashSet<Key>>,
    ended: Notify,
}

/// One's turn, until it is dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    key: Key,
}

impl Turns {
    pub(crate) async fn take(&self, key: Key) -> Turn<'_> {
        loop {
            let ended = self.ended.notified();
            if self.taken.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone()) {
                return Turn { turns: self, key };
            }
            ended.await;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
        self.turns.ended.notify_waiters();
    }
}
