//! Prepare and view.

use std::time::SystemTime;

use core_mount::Mount;
use core_snapshots::{Info, Kind};
use core_types::{Error, Labels, Result, ResultExt, labels};

use super::{Snapshots, inherited};
use crate::{fields::checked, key, record::Snapshot, store::Tx, writer::Durability};

/// What the transaction at the end found.
enum Recorded {
    Now,
    Before,
}

impl Snapshots {
    pub(super) async fn create(&self, kind: Kind, key: &str, parent: &str, mut labels: Labels) -> Result<Vec<Mount>> {
        key::check("snapshot key", key)?;
        checked(&mut labels).doing("info.Labels")?;
        let (this, key, parent) = (self.clone(), key.to_owned(), parent.to_owned());
        // On its own, so that a client that goes away in the middle leaves no snapshot without a record.
        let done = tokio::spawn(async move { this.create_unbroken(kind, &key, &parent, labels).await });
        done.await.map_err(|error| Error::internal(error.to_string()))?
    }

    async fn create_unbroken(&self, kind: Kind, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>> {
        let target = labels.get(labels::SNAPSHOT_REF).cloned();
        let involved = [Some(key), Some(parent).filter(|parent| !parent.is_empty()), target.as_deref()];
        let _lease = self.bound.enter_lease()?;
        let mut pins = Vec::new();
        for name in involved.into_iter().flatten() {
            let node = self.key(name);
            pins.push(self.bound.db.inner.roots.pin(node.clone()));
            self.bound.not_dying(&node).await?;
        }
        let backend_parent = self.check_new(key, parent, target.as_deref()).await?;
        let name = self.backend_name(key);
        let claim = self.trash.claim(&name).await;
        let made = match kind {
            Kind::View => self.backend.view(&name, &backend_parent, inherited(&labels)).await,
            _ => self.backend.prepare(&name, &backend_parent, inherited(&labels)).await,
        };
        let now = SystemTime::now();
        let mut record = Snapshot {
            name: key.to_owned(),
            kind,
            backend: name.clone(),
            parent: parent.to_owned(),
            children: 0,
            labels,
            created_at: now,
            updated_at: now,
        };
        let mounts = match (made, target) {
            (Ok(mounts), _) => mounts,
            (Err(error), Some(target)) if error.is_already_exists() => {
                return self.adopt(record, target, backend_parent).await;
            }
            (Err(error), None) if error.is_already_exists() => {
                return Err(Error::unknown(format!("unexpected answer of the snapshotter: {error}")));
            }
            (Err(error), _) => return Err(error),
        };
        record.kind = kind;
        match self.insert(record, backend_parent).await {
            Ok(Recorded::Now) => {
                claim.recorded();
                Ok(mounts)
            }
            outcome => {
                if let Err(error) = self.backend.remove(&name).await {
                    tracing::warn!(%error, key = name, "a snapshot without a record stays until the next collection");
                }
                outcome.and_then(|_| Err(Error::already_exists(format!("snapshot {key:?}"))))
            }
        }
    }

    /// AlreadyExists when the key or the target is there; the lease holds it then. Otherwise the parent's name in
    /// the backend.
    async fn check_new(&self, key: &str, parent: &str, target: Option<&str>) -> Result<String> {
        for (name, what) in [(target, "target snapshot"), (Some(key), "snapshot")] {
            let Some(name) = name else { continue };
            let there = self.bound.db.read(|view| view.has(&self.key(name)))?;
            if there && self.lease_existing(name).await? {
                return Err(Error::already_exists(format!("{what} {name:?}")));
            }
        }
        if parent.is_empty() {
            return Ok(String::new());
        }
        let lost = || Error::not_found(format!("parent snapshot {parent} does not exist"));
        let found: Option<Snapshot> = self.bound.db.read(|view| view.get(&self.key(parent)))?;
        Ok(found.ok_or_else(lost)?.backend)
    }

    /// The backend has a committed snapshot for the target: takes it into the namespace, and answers AlreadyExists.
    async fn adopt(&self, mut record: Snapshot, target: String, parent: String) -> Result<Vec<Mount>> {
        let filter = format!("labels.{:?}=={target:?},parent=={parent:?}", labels::SNAPSHOT_REF);
        let found = self.backend.list(&[filter]).await.doing("look for the target among the backend's snapshots")?;
        let fits = |info: &Info| {
            info.kind == Kind::Committed
                && info.parent == parent
                && info.labels.get(labels::SNAPSHOT_REF) == Some(&target)
        };
        let lost = || Error::not_found(format!("target snapshot {target:?} in backend"));
        let info = found.into_iter().find(fits).ok_or_else(lost)?;
        let claim = self.trash.claim(&info.name).await;
        for (key, value) in info.labels {
            record.labels.entry(key).or_insert(value);
        }
        record.name.clone_from(&target);
        record.kind = Kind::Committed;
        record.backend = info.name;
        (record.created_at, record.updated_at) = (info.created_at, info.updated_at);
        self.insert(record, parent).await?;
        claim.recorded();
        Err(Error::already_exists(format!("target snapshot {target:?} from snapshotter")))
    }

    async fn insert(&self, record: Snapshot, backend_parent: String) -> Result<Recorded> {
        let (this, node) = (self.clone(), self.key(&record.name));
        let work = move |tx: &mut Tx<'_, '_>| {
            tx.ensure_namespace(this.bound.namespace())?;
            this.bound.add_to_lease(tx, &this.resource(&record.name))?;
            if tx.has(&node)? {
                return Ok(Recorded::Before);
            }
            if !record.parent.is_empty() {
                let parent = this.count_child(tx, &record.parent, 1)?;
                if parent.backend != backend_parent {
                    let name = &record.parent;
                    return Err(Error::invalid_argument(format!("parent snapshot {name} is another one by now")));
                }
            }
            tx.put(&node, &record)?;
            Ok(Recorded::Now)
        };
        self.bound.db.write(Durability::Ordered, work).await
    }
}
