//! Commit.

use std::time::SystemTime;

use core_snapshots::Kind;
use core_types::{Error, Labels, Result, ResultExt};

use super::{Snapshots, inherited, missing};
use crate::{fields::checked, key, record::Snapshot, store::Tx, writer::Durability};

impl Snapshots {
    pub(super) async fn commit_as(
        &self,
        name: &str,
        key: &str,
        parent: Option<&str>,
        mut labels: Labels,
    ) -> Result<()> {
        key::check("snapshot name", name)?;
        checked(&mut labels).doing("info.Labels")?;
        let (this, name, key) = (self.clone(), name.to_owned(), key.to_owned());
        let parent = parent.filter(|parent| !parent.is_empty()).map(str::to_owned);
        // On its own: half a commit would leave a record whose snapshot has another name.
        let done = tokio::spawn(async move { this.commit_unbroken(&name, &key, parent, labels).await });
        done.await.map_err(|error| Error::internal(error.to_string()))?
    }

    async fn commit_unbroken(&self, name: &str, key: &str, parent: Option<String>, labels: Labels) -> Result<()> {
        let node = self.key(name);
        let _turn = self.bound.db.inner.collector.turns.take(node.clone()).await;
        let _lease = self.bound.enter_lease()?;
        let mut pins = Vec::new();
        for held in [Some(name), Some(key), parent.as_deref()].into_iter().flatten() {
            let node = self.key(held);
            pins.push(self.bound.db.inner.roots.pin(node.clone()));
            self.bound.not_dying(&node).await?;
        }
        let exists = || Error::already_exists(format!("snapshot {name:?}"));
        if self.bound.db.read(|view| view.has(&node))? && self.lease_existing(name).await? {
            return Err(exists());
        }
        let before = self.record(key)?;
        // Only a snapshot that was prepared without a parent gets one now.
        let rebased = parent.filter(|_| before.parent.is_empty());
        let backend_parent = match &rebased {
            None => None,
            Some(parent) => {
                let lost = || Error::not_found(format!("parent snapshot {parent} does not exist"));
                let found: Option<Snapshot> = self.bound.db.read(|view| view.get(&self.key(parent)))?;
                Some(found.ok_or_else(lost)?.backend)
            }
        };
        let backend_name = self.backend_name(name);
        let claim = self.trash.claim(&backend_name).await;
        self.backend.commit(&backend_name, &before.backend, backend_parent.as_deref(), inherited(&labels)).await?;
        let now = SystemTime::now();
        let record = Snapshot {
            name: name.to_owned(),
            kind: Kind::Committed,
            backend: backend_name,
            parent: rebased.clone().unwrap_or_else(|| before.parent.clone()),
            children: 0,
            labels,
            created_at: now,
            updated_at: now,
        };
        let (this, old, old_key) = (self.clone(), self.key(key), key.to_owned());
        let work = move |tx: &mut Tx<'_, '_>| {
            if !tx.delete(&old)? {
                return Err(missing(&old_key));
            }
            if let Some(parent) = &rebased {
                this.count_child(tx, parent, 1)?;
            }
            this.bound.remove_from_lease(tx, &this.resource(&old_key))?;
            this.bound.add_to_lease(tx, &this.resource(&record.name))?;
            tx.put(&node, &record)
        };
        self.bound.db.write(Durability::Full, work).await.map_err(|error| {
            tracing::error!(%error, key, "a snapshot was committed but not recorded; it is removed");
            error
        })?;
        claim.recorded();
        Ok(())
    }
}
