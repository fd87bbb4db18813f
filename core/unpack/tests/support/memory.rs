//! Stores, snapshotters and appliers in memory.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::SystemTime,
};

use async_trait::async_trait;
use bytes::Bytes;
use core_content::{Info, IngestStatus, Reader, Store, Writer, WriterOptions};
use core_diff::{Applied, Applier, ApplyOptions};
use core_mount::Mount;
use core_snapshots::{Info as SnapshotInfo, Kind, Snapshotter, Usage};
use core_types::{Descriptor, Digest, Error, Labels, Result};

#[derive(Default)]
struct Contents {
    blobs: BTreeMap<Digest, (Vec<u8>, Labels)>,
    ingests: BTreeMap<String, (Vec<u8>, bool)>,
}

/// A content store in memory.
#[derive(Clone, Default)]
pub struct MemoryStore(Arc<Mutex<Contents>>);

impl MemoryStore {
    pub fn put(&self, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        self.0.lock().unwrap().blobs.insert(digest.clone(), (bytes.to_vec(), Labels::new()));
        digest
    }

    pub fn has(&self, digest: &Digest) -> bool {
        self.0.lock().unwrap().blobs.contains_key(digest)
    }

    pub fn labels(&self, digest: &Digest) -> Labels {
        self.0.lock().unwrap().blobs[digest].1.clone()
    }

    pub fn ingest_len(&self, reference: &str) -> Option<usize> {
        self.0.lock().unwrap().ingests.get(reference).map(|ingest| ingest.0.len())
    }

    pub fn put_ingest(&self, reference: &str, bytes: &[u8]) {
        self.0.lock().unwrap().ingests.insert(reference.into(), (bytes.to_vec(), false));
    }
}

struct MemoryReader(Vec<u8>);

impl Reader for MemoryReader {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = &self.0[usize::try_from(offset).unwrap().min(self.0.len())..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

struct MemoryWriter {
    store: MemoryStore,
    options: WriterOptions,
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        if let Some(ingest) = self.store.0.lock().unwrap().ingests.get_mut(&self.options.reference) {
            ingest.1 = false;
        }
    }
}

impl MemoryWriter {
    fn bytes(&self) -> Vec<u8> {
        self.store.0.lock().unwrap().ingests[&self.options.reference].0.clone()
    }
}

#[async_trait]
impl Writer for MemoryWriter {
    async fn write(&mut self, data: Bytes) -> Result<()> {
        self.store.0.lock().unwrap().ingests.get_mut(&self.options.reference).unwrap().0.extend_from_slice(&data);
        Ok(())
    }

    fn status(&self) -> IngestStatus {
        IngestStatus {
            reference: self.options.reference.clone(),
            offset: self.bytes().len() as u64,
            total: self.options.total,
            expected: self.options.expected.clone(),
            started_at: SystemTime::UNIX_EPOCH,
            updated_at: SystemTime::UNIX_EPOCH,
        }
    }

    fn digest(&self) -> Digest {
        Digest::of(&self.bytes())
    }

    async fn truncate(&mut self, _size: u64) -> Result<()> {
        self.store.0.lock().unwrap().ingests.get_mut(&self.options.reference).unwrap().0.clear();
        Ok(())
    }

    async fn commit(&mut self, size: u64, expected: Option<&Digest>, labels: Labels) -> Result<Digest> {
        let bytes = self.bytes();
        let digest = Digest::of(&bytes);
        if size > 0 && bytes.len() as u64 != size || expected.is_some_and(|expected| *expected != digest) {
            return Err(Error::failed_precondition(format!("unexpected commit digest {digest}")));
        }
        let mut contents = self.store.0.lock().unwrap();
        contents.ingests.remove(&self.options.reference);
        if contents.blobs.contains_key(&digest) {
            return Err(Error::already_exists(digest.to_string()));
        }
        contents.blobs.insert(digest.clone(), (bytes, labels));
        Ok(digest)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn info(&self, digest: &Digest) -> Result<Info> {
        let contents = self.0.lock().unwrap();
        let (bytes, labels) =
            contents.blobs.get(digest).ok_or_else(|| Error::not_found(format!("content {digest}")))?;
        Ok(Info {
            digest: digest.clone(),
            size: bytes.len() as u64,
            created_at: SystemTime::UNIX_EPOCH,
            updated_at: SystemTime::UNIX_EPOCH,
            labels: labels.clone(),
        })
    }

    async fn update(&self, info: Info, fieldpaths: &[String]) -> Result<Info> {
        {
            let mut contents = self.0.lock().unwrap();
            let blob = contents.blobs.get_mut(&info.digest).ok_or_else(|| Error::not_found("content"))?;
            for field in fieldpaths {
                let key = field.strip_prefix("labels.").unwrap();
                blob.1.insert(key.to_owned(), info.labels[key].clone());
            }
        }
        self.info(&info.digest).await
    }

    async fn list(&self, _filters: &[String]) -> Result<Vec<Info>> {
        Ok(Vec::new())
    }

    async fn delete(&self, digest: &Digest) -> Result<()> {
        self.0.lock().unwrap().blobs.remove(digest);
        Ok(())
    }

    async fn reader(&self, digest: &Digest) -> Result<Arc<dyn Reader>> {
        let contents = self.0.lock().unwrap();
        let blob = contents.blobs.get(digest).ok_or_else(|| Error::not_found(format!("content {digest}")))?;
        Ok(Arc::new(MemoryReader(blob.0.clone())))
    }

    async fn writer(&self, options: WriterOptions) -> Result<Box<dyn Writer>> {
        let mut contents = self.0.lock().unwrap();
        if options.expected.as_ref().is_some_and(|expected| contents.blobs.contains_key(expected)) {
            return Err(Error::already_exists("content"));
        }
        let ingest = contents.ingests.entry(options.reference.clone()).or_default();
        if std::mem::replace(&mut ingest.1, true) {
            return Err(Error::unavailable("another writer"));
        }
        drop(contents);
        Ok(Box::new(MemoryWriter { store: self.clone(), options }))
    }

    async fn status(&self, reference: &str) -> Result<IngestStatus> {
        Err(Error::not_found(reference))
    }

    async fn list_statuses(&self, _filters: &[String]) -> Result<Vec<IngestStatus>> {
        Ok(Vec::new())
    }

    async fn abort(&self, reference: &str) -> Result<()> {
        self.0.lock().unwrap().ingests.remove(reference);
        Ok(())
    }
}

/// A snapshotter that remembers names and parents.
#[derive(Default)]
pub struct MemorySnapshotter {
    pub rebases: bool,
    /// Mounts overlays.
    pub overlays: bool,
    /// The directory that all snapshots share; by default one that is not there.
    pub directory: Option<std::path::PathBuf>,
    /// Chain ids that `prepare` knows from elsewhere, as a remote snapshotter does.
    pub remote: Vec<String>,
    pub snapshots: Mutex<BTreeMap<String, SnapshotInfo>>,
}

impl MemorySnapshotter {
    pub fn new(rebases: bool) -> Self {
        Self { rebases, ..Self::default() }
    }

    /// Committed names with their parents.
    pub fn committed(&self) -> BTreeMap<String, String> {
        let all = self.snapshots.lock().unwrap();
        all.values()
            .filter(|info| info.kind == Kind::Committed)
            .map(|info| (info.name.clone(), info.parent.clone()))
            .collect()
    }

    pub fn active(&self) -> usize {
        self.snapshots.lock().unwrap().values().filter(|info| info.kind == Kind::Active).count()
    }

    fn insert(&self, name: &str, parent: &str, kind: Kind, labels: Labels) -> Result<()> {
        let mut all = self.snapshots.lock().unwrap();
        if all.contains_key(name) {
            return Err(Error::already_exists(name));
        }
        if !parent.is_empty() && !all.contains_key(parent) {
            return Err(Error::not_found(format!("parent {parent}")));
        }
        let (name, parent) = (name.to_owned(), parent.to_owned());
        let time = SystemTime::UNIX_EPOCH;
        let info = SnapshotInfo { kind, name: name.clone(), parent, labels, created_at: time, updated_at: time };
        all.insert(name, info);
        Ok(())
    }
}

#[async_trait]
impl Snapshotter for MemorySnapshotter {
    async fn stat(&self, key: &str) -> Result<SnapshotInfo> {
        self.snapshots.lock().unwrap().get(key).cloned().ok_or_else(|| Error::not_found(key))
    }

    async fn update(&self, info: SnapshotInfo, _fieldpaths: &[String]) -> Result<SnapshotInfo> {
        Ok(info)
    }

    async fn usage(&self, _key: &str) -> Result<Usage> {
        Ok(Usage::default())
    }

    async fn mounts(&self, _key: &str) -> Result<Vec<Mount>> {
        Ok(Vec::new())
    }

    async fn prepare(&self, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>> {
        if let Some(name) = labels.get("containerd.io/snapshot.ref").filter(|name| self.remote.contains(name)) {
            let parent = labels.get("containerd.io/snapshot/parent-chain-id").cloned().unwrap_or_default();
            self.insert(name, &parent, Kind::Committed, labels.clone())?;
            return Err(Error::already_exists(name.clone()));
        }
        self.insert(key, parent, Kind::Active, labels)?;
        let source = self.directory.as_ref().map_or_else(|| format!("/memory/{key}"), |dir| dir.display().to_string());
        Ok(vec![Mount { kind: "bind".into(), source, ..Mount::default() }])
    }

    async fn view(&self, _key: &str, _parent: &str, _labels: Labels) -> Result<Vec<Mount>> {
        Err(Error::unimplemented("view"))
    }

    async fn commit(&self, name: &str, key: &str, parent: Option<&str>, labels: Labels) -> Result<()> {
        let active = self.stat(key).await?;
        let parent = parent.map_or(active.parent, str::to_owned);
        self.insert(name, &parent, Kind::Committed, labels)?;
        self.remove(key).await
    }

    async fn remove(&self, key: &str) -> Result<()> {
        self.snapshots.lock().unwrap().remove(key).map(|_| ()).ok_or_else(|| Error::not_found(key))
    }

    async fn list(&self, _filters: &[String]) -> Result<Vec<SnapshotInfo>> {
        Ok(Vec::new())
    }

    async fn cleanup(&self) -> Result<()> {
        Ok(())
    }

    fn rebases(&self) -> bool {
        self.rebases
    }

    fn stacks_as_overlay(&self) -> bool {
        self.overlays
    }
}

/// Takes the bytes of a layer for its uncompressed content.
#[derive(Default)]
pub struct MemoryApplier {
    pub streamed: AtomicUsize,
    pub stored: AtomicUsize,
    /// Fails with this text after so many bytes.
    pub fails_after: Option<usize>,
    /// Layers that were to be flushed on their own.
    pub flushed: AtomicUsize,
    /// Layers extracted into an overlay.
    pub overlaid: AtomicUsize,
    /// Bytes read so far, by stream.
    pub read: Arc<AtomicUsize>,
}

impl MemoryApplier {
    fn note(&self, mounts: &[Mount], options: &ApplyOptions) {
        self.flushed.fetch_add(usize::from(options.sync), Ordering::SeqCst);
        self.overlaid.fetch_add(usize::from(mounts[0].kind == "overlay"), Ordering::SeqCst);
    }
}

#[async_trait]
impl Applier for MemoryApplier {
    async fn apply(
        &self,
        content: Arc<dyn Store>,
        layer: &Descriptor,
        mounts: &[Mount],
        options: ApplyOptions,
    ) -> Result<Applied> {
        self.note(mounts, &options);
        self.stored.fetch_add(1, Ordering::SeqCst);
        let reader = content.reader(&layer.digest).await?;
        let mut bytes = vec![0; usize::try_from(reader.size()).unwrap()];
        reader.read_at(&mut bytes, 0)?;
        Ok(Applied { diff_id: Digest::of(&bytes), size: bytes.len() as u64 })
    }

    async fn apply_stream(
        &self,
        mut stream: Box<dyn Read + Send>,
        mounts: &[Mount],
        options: ApplyOptions,
    ) -> Result<Applied> {
        self.note(mounts, &options);
        self.streamed.fetch_add(1, Ordering::SeqCst);
        let (fails_after, counter) = (self.fails_after, Arc::clone(&self.read));
        tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            let mut buffer = [0; 8192];
            loop {
                let count = stream.read(&mut buffer)?;
                counter.fetch_add(count, Ordering::SeqCst);
                if count == 0 {
                    return Ok(Applied { diff_id: Digest::of(&bytes), size: bytes.len() as u64 });
                }
                bytes.extend_from_slice(&buffer[..count]);
                if fails_after.is_some_and(|limit| bytes.len() > limit) {
                    return Err(Error::resource_exhausted("disk full"));
                }
            }
        })
        .await
        .unwrap()
    }
}
