//! Blobs and ingests of a namespace, over the store that all namespaces share.
//!
//! A record says that a namespace has a blob; the blob itself is in the backend once. A namespace that names the digest
//! of a blob which the backend has gets the record without the bytes being sent again.

mod ingest;

use std::sync::Arc;

use async_trait::async_trait;
use core_content::{Info, IngestStatus, Reader, Store, Writer, WriterOptions};
use core_events::Event;
use core_leases::Resource;
use core_types::{Digest, Error, Filter, Result};

use crate::{
    database::Bound,
    fields::{Of, update_labels},
    key::{self, Key, Kind},
    record::{Ingest, NamespaceRecord},
    store::Tx,
    writer::Durability,
};

/// Label of a namespace whose content others get even when content is isolated.
const SHAREABLE: &str = "containerd.io/namespace.shareable";

/// The content of a namespace.
pub(crate) struct ContentStore(Bound);

fn missing(digest: &Digest) -> Error {
    Error::not_found(format!("content digest {digest}"))
}

fn no_ingest(reference: &str) -> Error {
    Error::not_found(format!("reference {reference:?}"))
}

impl ContentStore {
    pub(crate) fn new(bound: Bound) -> Self {
        Self(bound)
    }

    fn blob(&self, digest: &Digest) -> Key {
        key::blob(self.0.namespace(), digest.as_str())
    }

    fn backend(&self) -> &Arc<dyn Store> {
        &self.0.db.inner.backends.content
    }

    fn ingest(&self, reference: &str) -> Result<Ingest> {
        let key = key::named(Kind::Ingest, self.0.namespace(), reference);
        self.0.db.read(|view| view.get(&key))?.ok_or_else(|| no_ingest(reference))
    }

    /// Whether the policy lets this namespace have a blob that others have.
    fn may_share(&self, digest: &Digest) -> Result<bool> {
        if !self.0.db.inner.options.isolated {
            return Ok(true);
        }
        self.0.db.read(|view| {
            let mut names = Vec::new();
            view.scan(&key::prefix(Kind::Namespace, &[]), |_, record: NamespaceRecord| {
                if record.labels.get(SHAREABLE).is_some_and(|value| value == "true") {
                    names.push(record.name);
                }
                Ok(())
            })?;
            for name in names {
                if view.has(&key::blob(&name, digest.as_str()))? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    /// Answers AlreadyExists for a blob that the namespace has; the lease holds it then.
    async fn refuse_existing(&self, digest: &Digest) -> Result<()> {
        let blob = self.blob(digest);
        self.0.see(&blob).await?;
        let mut there = self.0.db.read(|view| view.has(&blob))?;
        if there && self.0.lease_key.is_some() {
            let (bound, resource) = (self.0.clone(), Resource::content(digest));
            let work = move |tx: &mut Tx<'_, '_>| {
                let there = tx.has(&blob)?;
                if there {
                    bound.add_to_lease(tx, &resource)?;
                }
                Ok(there)
            };
            there = self.0.db.write(Durability::Ordered, work).await?;
        }
        if there { Err(Error::already_exists(format!("content {digest}"))) } else { Ok(()) }
    }
}

#[async_trait]
impl Store for ContentStore {
    async fn info(&self, digest: &Digest) -> Result<Info> {
        let blob = self.blob(digest);
        self.0.see(&blob).await?;
        self.0.db.read(|view| view.get(&blob))?.ok_or_else(|| missing(digest))
    }

    async fn update(&self, info: Info, fieldpaths: &[String]) -> Result<Info> {
        let (blob, fieldpaths) = (self.blob(&info.digest), fieldpaths.to_vec());
        self.0.see(&blob).await?;
        let work = move |tx: &mut Tx<'_, '_>| {
            let mut updated: Info = tx.get(&blob)?.ok_or_else(|| missing(&info.digest))?;
            let what = format!("content info {:?}", info.digest);
            update_labels(&what, &mut updated.labels, &info.labels, &fieldpaths)?;
            updated.updated_at = std::time::SystemTime::now();
            tx.put(&blob, &updated)?;
            Ok(updated)
        };
        self.0.db.write(Durability::Full, work).await
    }

    async fn list(&self, filters: &[String]) -> Result<Vec<Info>> {
        let filter = Filter::parse_all(filters)?;
        let mut found = Vec::new();
        self.0.db.read(|view| {
            view.scan(&key::prefix(Kind::Blob, &[self.0.namespace()]), |_, info: Info| {
                if filter.matches(&Of(&info)) {
                    found.push(info);
                }
                Ok(())
            })
        })?;
        Ok(found)
    }

    async fn delete(&self, digest: &Digest) -> Result<()> {
        let (bound, blob, gone) = (self.0.clone(), self.blob(digest), digest.clone());
        let work = move |tx: &mut Tx<'_, '_>| {
            if !tx.delete(&blob)? {
                return Err(missing(&gone));
            }
            bound.remove_from_lease(tx, &Resource::content(&gone))
        };
        self.0.db.submit(Durability::Ordered, work).await?;
        self.0.db.inner.content_trash.suspect([digest.as_str().to_owned()]);
        self.0.db.mutated(true);
        self.0.publish("/content/delete", Event::ContentDelete { digest: digest.as_str().to_owned() });
        Ok(())
    }

    async fn reader(&self, digest: &Digest) -> Result<Arc<dyn Reader>> {
        self.info(digest).await?;
        self.backend().reader(digest).await
    }

    async fn writer(&self, options: WriterOptions) -> Result<Box<dyn Writer>> {
        key::check("ref", &options.reference)?;
        let mut shared = None;
        let mut claim = None;
        if let Some(digest) = &options.expected {
            self.refuse_existing(digest).await?;
            claim = Some(self.0.db.inner.content_trash.claim(digest.as_str()).await);
            if self.may_share(digest)? {
                let found = self.backend().info(digest).await.ok().map(|info| info.size);
                shared = found.filter(|size| options.total == 0 || options.total == *size);
            }
        }
        ingest::open(&self.0, options, shared, claim).await
    }

    async fn status(&self, reference: &str) -> Result<IngestStatus> {
        let record = self.ingest(reference)?;
        let mut status = self.backend().status(&record.backend).await?;
        reference.clone_into(&mut status.reference);
        Ok(status)
    }

    async fn list_statuses(&self, filters: &[String]) -> Result<Vec<IngestStatus>> {
        let filter = Filter::parse_all(filters)?;
        let mut records: Vec<Ingest> = Vec::new();
        self.0.db.read(|view| {
            view.scan(&key::prefix(Kind::Ingest, &[self.0.namespace()]), |_, record| {
                records.push(record);
                Ok(())
            })
        })?;
        let mut found = Vec::new();
        for record in records {
            match self.backend().status(&record.backend).await {
                Ok(status) => {
                    let status = IngestStatus { reference: record.reference, ..status };
                    if filter.matches(&Of(&status)) {
                        found.push(status);
                    }
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    async fn abort(&self, reference: &str) -> Result<()> {
        let key = key::named(Kind::Ingest, self.0.namespace(), reference);
        let (bound, gone) = (self.0.clone(), reference.to_owned());
        let work = move |tx: &mut Tx<'_, '_>| {
            let record: Ingest = tx.get(&key)?.ok_or_else(|| no_ingest(&gone))?;
            tx.delete(&key)?;
            bound.remove_from_lease(tx, &Resource::ingest(&gone))?;
            Ok(record)
        };
        let record = self.0.db.remove(Durability::Ordered, work).await?;
        match self.backend().abort(&record.backend).await {
            Ok(()) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => {
                self.0.db.inner.ingest_trash.suspect([record.backend]);
                Err(error)
            }
        }
    }
}
