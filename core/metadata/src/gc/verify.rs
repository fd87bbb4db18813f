//! Records whose data is gone: damage that is reported, not hidden.

use std::collections::HashSet;

use core_content::Info;
use core_types::Result;

use crate::{
    database::Database,
    key::{self, Kind},
    record::Snapshot,
};

/// A record without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dangling {
    /// The namespace of the record.
    pub namespace: String,
    /// `content` or the snapshotter's name.
    pub backend: String,
    /// A digest, or a snapshot's key.
    pub name: String,
}

/// Logs records whose data is gone.
pub(super) fn report(lost: impl Iterator<Item = Dangling>) {
    for Dangling { namespace, backend, name } in lost {
        tracing::warn!(namespace, backend, name, "the data of a record is gone; remove the object, or restore it");
    }
}

impl Database {
    /// Looks for records whose blob or snapshot the backend does not have. The first collection after the start does
    /// the same and logs what it finds.
    ///
    /// # Errors
    /// What the database and the backends say.
    pub async fn verify(&self) -> Result<Vec<Dangling>> {
        // Records first: what is committed while the backends list has its data in their lists.
        let (blobs, snapshots) = (self.blob_records()?, self.snapshot_records(None)?);
        let content = self.inner.backends.content.list(&[]).await?;
        let there: HashSet<String> = content.into_iter().map(|info| info.digest.as_str().to_owned()).collect();
        let mut lost: Vec<Dangling> = blobs.into_iter().filter(|record| !there.contains(&record.name)).collect();
        for (name, backend) in &self.inner.backends.snapshotters {
            let there: HashSet<String> = backend.list(&[]).await?.into_iter().map(|info| info.name).collect();
            let of_this = snapshots.iter().filter(|(record, _)| record.backend == *name);
            lost.extend(of_this.filter(|(_, key)| !there.contains(key)).map(|(record, _)| record.clone()));
        }
        Ok(lost)
    }

    pub(super) fn blob_records(&self) -> Result<Vec<Dangling>> {
        let mut found = Vec::new();
        self.read(|view| {
            view.scan(&[Kind::Blob as u8], |node, info: Info| {
                let namespace = key::part(node, 0)?.to_owned();
                found.push(Dangling { namespace, backend: "content".into(), name: info.digest.as_str().into() });
                Ok(())
            })
        })?;
        Ok(found)
    }

    /// Snapshots with their names in the backend.
    pub(super) fn snapshot_records(&self, only: Option<&str>) -> Result<Vec<(Dangling, String)>> {
        let mut found = Vec::new();
        self.read(|view| {
            view.scan(&[Kind::Snapshot as u8], |node, record: Snapshot| {
                let (namespace, backend) = (key::part(node, 0)?.to_owned(), key::part(node, 1)?.to_owned());
                if only.is_none_or(|only| only == backend) {
                    found.push((Dangling { namespace, backend, name: record.name }, record.backend));
                }
                Ok(())
            })
        })?;
        Ok(found)
    }
}
