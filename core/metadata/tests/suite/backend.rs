//! Backends in memory, which note what would be lost by whom.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex},
    time::SystemTime,
};

use async_trait::async_trait;
use bytes::Bytes;
use core_content as content;
use core_events::{Event, Publisher};
use core_mount::Mount;
use core_snapshots as snapshots;
use core_types::{Digest, Error, Labels, Namespace, Result};

#[derive(Default)]
struct Blobs {
    blobs: BTreeMap<Digest, Bytes>,
    ingests: BTreeMap<String, Vec<u8>>,
    open: BTreeSet<String>,
}

/// A content store.
#[derive(Clone, Default)]
pub struct MemoryContent(Arc<Mutex<Blobs>>);

impl MemoryContent {
    pub fn has(&self, digest: &Digest) -> bool {
        self.0.lock().unwrap().blobs.contains_key(digest)
    }

    pub fn count(&self) -> usize {
        self.0.lock().unwrap().blobs.len()
    }

    pub fn ingests(&self) -> Vec<String> {
        self.0.lock().unwrap().ingests.keys().cloned().collect()
    }

    /// Puts a blob there past the database.
    pub fn put(&self, data: &'static [u8]) -> Digest {
        let digest = Digest::of(data);
        self.0.lock().unwrap().blobs.insert(digest.clone(), Bytes::from_static(data));
        digest
    }

    /// Loses a blob.
    pub fn lose(&self, digest: &Digest) {
        self.0.lock().unwrap().blobs.remove(digest);
    }
}

struct MemoryReader(Bytes);

impl content::Reader for MemoryReader {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).unwrap().min(self.0.len());
        let length = buffer.len().min(self.0.len() - from);
        buffer[..length].copy_from_slice(&self.0[from..from + length]);
        Ok(length)
    }
}

struct MemoryWriter {
    store: MemoryContent,
    reference: String,
    total: u64,
}

impl MemoryWriter {
    fn data(&self) -> Vec<u8> {
        self.store.0.lock().unwrap().ingests.get(&self.reference).cloned().unwrap_or_default()
    }
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        self.store.0.lock().unwrap().open.remove(&self.reference);
    }
}

fn status(reference: &str, offset: usize, total: u64) -> content::IngestStatus {
    content::IngestStatus {
        reference: reference.to_owned(),
        offset: offset as u64,
        total,
        expected: None,
        started_at: SystemTime::now(),
        updated_at: SystemTime::now(),
    }
}

#[async_trait]
impl content::Writer for MemoryWriter {
    async fn write(&mut self, data: Bytes) -> Result<()> {
        tokio::task::yield_now().await;
        let mut state = self.store.0.lock().unwrap();
        let lost = || Error::data_loss(format!("ingest {} was aborted under its writer", self.reference));
        state.ingests.get_mut(&self.reference).ok_or_else(lost)?.extend_from_slice(&data);
        Ok(())
    }
    fn status(&self) -> content::IngestStatus {
        status(&self.reference, self.data().len(), self.total)
    }
    fn digest(&self) -> Digest {
        Digest::of(&self.data())
    }
    async fn truncate(&mut self, _: u64) -> Result<()> {
        self.store.0.lock().unwrap().ingests.insert(self.reference.clone(), Vec::new());
        Ok(())
    }
    async fn commit(&mut self, size: u64, expected: Option<&Digest>, _: Labels) -> Result<Digest> {
        tokio::task::yield_now().await;
        let mut state = self.store.0.lock().unwrap();
        let lost = || Error::data_loss(format!("ingest {} was aborted under its writer", self.reference));
        let data = state.ingests.get(&self.reference).cloned().ok_or_else(lost)?;
        let digest = Digest::of(&data);
        if size != 0 && size != data.len() as u64 || expected.is_some_and(|expected| *expected != digest) {
            return Err(Error::failed_precondition("other size or digest"));
        }
        state.ingests.remove(&self.reference);
        if state.blobs.insert(digest.clone(), data.into()).is_some() {
            return Err(Error::already_exists("blob"));
        }
        Ok(digest)
    }
}

#[async_trait]
impl content::Store for MemoryContent {
    async fn info(&self, digest: &Digest) -> Result<content::Info> {
        let state = self.0.lock().unwrap();
        let data = state.blobs.get(digest).ok_or_else(|| Error::not_found("blob"))?;
        Ok(content::Info {
            digest: digest.clone(),
            size: data.len() as u64,
            created_at: SystemTime::now(),
            updated_at: SystemTime::now(),
            labels: Labels::new(),
        })
    }
    async fn update(&self, info: content::Info, _: &[String]) -> Result<content::Info> {
        Ok(info)
    }
    async fn list(&self, _: &[String]) -> Result<Vec<content::Info>> {
        let digests: Vec<Digest> = self.0.lock().unwrap().blobs.keys().cloned().collect();
        let mut found = Vec::new();
        for digest in digests {
            if let Ok(info) = self.info(&digest).await {
                found.push(info);
            }
        }
        Ok(found)
    }
    async fn delete(&self, digest: &Digest) -> Result<()> {
        tokio::task::yield_now().await;
        let removed = self.0.lock().unwrap().blobs.remove(digest);
        removed.map(drop).ok_or_else(|| Error::not_found("blob"))
    }
    async fn reader(&self, digest: &Digest) -> Result<Arc<dyn content::Reader>> {
        let state = self.0.lock().unwrap();
        let data = state.blobs.get(digest).ok_or_else(|| Error::not_found("blob"))?;
        Ok(Arc::new(MemoryReader(data.clone())))
    }
    async fn writer(&self, options: content::WriterOptions) -> Result<Box<dyn content::Writer>> {
        let mut state = self.0.lock().unwrap();
        if !state.open.insert(options.reference.clone()) {
            return Err(Error::unavailable("ref is locked"));
        }
        state.ingests.entry(options.reference.clone()).or_default();
        Ok(Box::new(MemoryWriter { store: self.clone(), reference: options.reference, total: options.total }))
    }
    async fn status(&self, reference: &str) -> Result<content::IngestStatus> {
        let state = self.0.lock().unwrap();
        let data = state.ingests.get(reference).ok_or_else(|| Error::not_found("ingest"))?;
        Ok(status(reference, data.len(), 0))
    }
    async fn list_statuses(&self, _: &[String]) -> Result<Vec<content::IngestStatus>> {
        let state = self.0.lock().unwrap();
        Ok(state.ingests.iter().map(|(reference, data)| status(reference, data.len(), 0)).collect())
    }
    async fn abort(&self, reference: &str) -> Result<()> {
        let removed = self.0.lock().unwrap().ingests.remove(reference);
        removed.map(drop).ok_or_else(|| Error::not_found("ingest"))
    }
}

/// A snapshotter.
#[derive(Clone, Default)]
pub struct MemorySnapshotter {
    pub all: Arc<Mutex<BTreeMap<String, snapshots::Info>>>,
    /// Answers AlreadyExists to a prepare with this target, and has a committed snapshot for it.
    pub remote: Option<String>,
}

impl MemorySnapshotter {
    pub fn names(&self) -> Vec<String> {
        self.all.lock().unwrap().keys().cloned().collect()
    }

    pub fn lose(&self, name: &str) {
        self.all.lock().unwrap().remove(name);
    }

    async fn make(&self, kind: snapshots::Kind, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>> {
        tokio::task::yield_now().await;
        let mut all = self.all.lock().unwrap();
        if let Some(target) = labels.get("containerd.io/snapshot.ref").filter(|t| self.remote.as_ref() == Some(*t)) {
            all.insert(target.clone(), info(snapshots::Kind::Committed, target, parent, labels.clone()));
            return Err(Error::already_exists("target"));
        }
        if all.contains_key(key) {
            return Err(Error::already_exists("key"));
        }
        if !parent.is_empty() {
            let found = all.get(parent).ok_or_else(|| Error::not_found(format!("backend parent {parent}")))?;
            if found.kind != snapshots::Kind::Committed {
                return Err(Error::invalid_argument("parent is not committed"));
            }
        }
        all.insert(key.to_owned(), info(kind, key, parent, labels));
        Ok(vec![Mount { kind: "bind".into(), source: key.into(), ..Mount::default() }])
    }
}

fn info(kind: snapshots::Kind, name: &str, parent: &str, labels: Labels) -> snapshots::Info {
    let now = SystemTime::now();
    snapshots::Info { kind, name: name.into(), parent: parent.into(), labels, created_at: now, updated_at: now }
}

#[async_trait]
impl snapshots::Snapshotter for MemorySnapshotter {
    async fn stat(&self, key: &str) -> Result<snapshots::Info> {
        let found = self.all.lock().unwrap().get(key).cloned();
        found.ok_or_else(|| Error::not_found(format!("backend snapshot {key}")))
    }
    async fn update(&self, info: snapshots::Info, _: &[String]) -> Result<snapshots::Info> {
        let mut all = self.all.lock().unwrap();
        let found = all.get_mut(&info.name).ok_or_else(|| Error::not_found("snapshot"))?;
        found.labels = info.labels;
        Ok(found.clone())
    }
    async fn usage(&self, key: &str) -> Result<snapshots::Usage> {
        self.stat(key).await.map(|_| snapshots::Usage { inodes: 1, size: 1 })
    }
    async fn mounts(&self, key: &str) -> Result<Vec<Mount>> {
        let info = self.stat(key).await?;
        Ok(vec![Mount { kind: "bind".into(), source: info.name, ..Mount::default() }])
    }
    async fn prepare(&self, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>> {
        self.make(snapshots::Kind::Active, key, parent, labels).await
    }
    async fn view(&self, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>> {
        self.make(snapshots::Kind::View, key, parent, labels).await
    }
    async fn commit(&self, name: &str, key: &str, parent: Option<&str>, labels: Labels) -> Result<()> {
        tokio::task::yield_now().await;
        let mut all = self.all.lock().unwrap();
        let mut found = all.remove(key).ok_or_else(|| Error::not_found(format!("backend snapshot {key}")))?;
        name.clone_into(&mut found.name);
        found.kind = snapshots::Kind::Committed;
        found.labels = labels;
        if let Some(parent) = parent {
            parent.clone_into(&mut found.parent);
        }
        all.insert(name.to_owned(), found);
        Ok(())
    }
    async fn remove(&self, key: &str) -> Result<()> {
        tokio::task::yield_now().await;
        let mut all = self.all.lock().unwrap();
        if all.values().any(|info| info.parent == key) {
            return Err(Error::failed_precondition("snapshot has children"));
        }
        all.remove(key).map(drop).ok_or_else(|| Error::not_found("snapshot"))
    }
    async fn list(&self, _: &[String]) -> Result<Vec<snapshots::Info>> {
        Ok(self.all.lock().unwrap().values().cloned().collect())
    }
    async fn cleanup(&self) -> Result<()> {
        Err(Error::unimplemented("no cleanup"))
    }
    fn rebases(&self) -> bool {
        true
    }
}

/// Remembers topics.
#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    /// What was published since the last call.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Publisher for Heard {
    fn publish(&self, namespace: &Namespace, topic: &str, _: Event) -> Result<()> {
        self.0.lock().unwrap().push(format!("{namespace}{topic}"));
        Ok(())
    }
}
