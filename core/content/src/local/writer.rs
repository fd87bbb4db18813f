use std::{
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use async_trait::async_trait;
use bytes::Bytes;
use core_types::{Algorithm, Digest, Digester, Error, Labels, Result, ResultExt};
use tokio::{runtime::Handle, task::JoinHandle};
use tracing::warn;

use super::{
    batch::{BATCH_BYTES, Batch, Sink},
    layout::{Ingest, Layout, sync_dir},
    locks::Lock,
};
use crate::{IngestStatus, Writer, WriterOptions, helpers::run};

/// Writes one ingest. At most one batch is being written while the next one is gathered.
pub(super) struct LocalWriter {
    layout: Arc<Layout>,
    status: IngestStatus,
    algorithm: Algorithm,
    pending: Mutex<Batch>,
    sink: Arc<Mutex<Sink>>,
    running: Option<JoinHandle<()>>,
    /// Gone after a commit, also a failed one.
    lock: Option<Lock>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LocalWriter {
    /// Opens or resumes the ingest. Reads what is there to know its digest, so call it on a blocking thread.
    pub(super) fn open(layout: Arc<Layout>, options: WriterOptions, lock: Lock) -> Result<Self> {
        let WriterOptions { reference, total, expected } = options;
        if let Some(digest) = expected.as_ref().filter(|digest| layout.blob(digest).exists()) {
            return Err(Error::already_exists(format!("content {digest}")));
        }
        let algorithm = expected.as_ref().map_or(Algorithm::Sha256, Digest::algorithm);
        let ingest = layout.ingest(&reference);
        fs::create_dir_all(&ingest.0).doing(format_args!("create {}", ingest.0.display()))?;
        let mut digester = algorithm.digester();
        let resumed = match resume(&ingest, &reference, total, &mut digester) {
            Ok(status) => Some(status),
            Err(error) if error.is_not_found() => None,
            Err(error) => {
                warn!(reference, %error, "cannot resume ingest, starting it anew");
                None
            }
        };
        let status = match resumed {
            Some(status) => status,
            None => {
                let now = SystemTime::now();
                digester = algorithm.digester();
                if let Err(error) = ingest.describe(&reference, total, now) {
                    discard(&ingest);
                    return Err(error);
                }
                IngestStatus { reference, offset: 0, total, expected: None, started_at: now, updated_at: now }
            }
        };
        let data = ingest.data();
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(status.offset == 0)
            .open(&data)
            .doing(format_args!("open {}", data.display()))?;
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(status.offset))
            .map_err(|error| Error::io(format_args!("seek in {}", data.display()), error.into()))?;
        lock.set_offset(status.offset);
        Ok(Self {
            sink: Arc::new(Mutex::new(Sink::new(file, digester, status.offset))),
            status: IngestStatus { expected, ..status },
            layout,
            algorithm,
            pending: Mutex::default(),
            running: None,
            lock: Some(lock),
        })
    }

    fn held(&self) -> Result<&Lock> {
        self.lock.as_ref().ok_or_else(|| Error::failed_precondition("the writer is closed"))
    }

    /// Waits for the batch that is being written; keeps it when this future is dropped.
    async fn settle(&mut self) -> Result<()> {
        if let Some(running) = self.running.as_mut() {
            let ended = running.await;
            self.running = None;
            ended.map_err(|error| Error::internal(format!("content worker: {error}")))?;
            let (failed, written) = {
                let sink = locked(&self.sink);
                (sink.check(), sink.written)
            };
            if failed.is_err() {
                *locked(&self.pending) = Batch::default();
                self.moved_to(written);
                return failed;
            }
        }
        Ok(())
    }

    fn moved_to(&mut self, offset: u64) {
        self.status.offset = offset;
        self.status.updated_at = SystemTime::now();
        if let Some(lock) = &self.lock {
            lock.set_offset(offset);
        }
    }
}

#[async_trait]
impl Writer for LocalWriter {
    async fn write(&mut self, data: Bytes) -> Result<()> {
        self.held()?;
        let length = data.len() as u64;
        let full = {
            let mut pending = locked(&self.pending);
            pending.push(data);
            pending.is_full()
        };
        self.moved_to(self.status.offset + length);
        if full {
            self.settle().await?;
            locked(&self.sink).queue = std::mem::take(&mut *locked(&self.pending));
            let sink = Arc::clone(&self.sink);
            self.running = Some(tokio::task::spawn_blocking(move || locked(&sink).drain()));
        }
        Ok(())
    }

    fn status(&self) -> IngestStatus {
        self.status.clone()
    }

    fn digest(&self) -> Digest {
        locked(&self.sink).digest_with(&mut locked(&self.pending))
    }

    async fn truncate(&mut self, size: u64) -> Result<()> {
        if size != 0 {
            return Err(Error::unimplemented(format!("truncate an ingest to {size} bytes: only 0 is supported")));
        }
        self.held()?;
        // What failed before no longer matters.
        let _ = self.settle().await;
        *locked(&self.pending) = Batch::default();
        let (sink, algorithm) = (Arc::clone(&self.sink), self.algorithm);
        run(move || locked(&sink).reset(algorithm.digester()).doing("truncate ingest")).await?;
        self.moved_to(0);
        Ok(())
    }

    async fn commit(&mut self, size: u64, expected: Option<&Digest>, _labels: Labels) -> Result<Digest> {
        self.held()?;
        let settled = self.settle().await;
        let Some(lock) = self.lock.take() else {
            return Err(Error::failed_precondition("the writer is closed"));
        };
        settled?;
        let sink = Arc::clone(&self.sink);
        let pending = std::mem::take(&mut *locked(&self.pending));
        let layout = Arc::clone(&self.layout);
        let ingest = self.layout.ingest(&self.status.reference);
        let expected = expected.cloned();
        run(move || {
            let mut sink = locked(&sink);
            sink.queue = pending;
            sink.drain();
            sink.check()?;
            let committed = commit(&layout, &ingest, &sink, size, expected.as_ref());
            drop(lock);
            committed
        })
        .await
    }
}

impl Drop for LocalWriter {
    /// Leaves the ingest to be resumed: what was taken goes to the file, then the reference is free.
    fn drop(&mut self) {
        let Some(lock) = self.lock.take() else { return };
        let pending = std::mem::take(&mut *locked(&self.pending));
        let running = self.running.take().is_some_and(|running| !running.is_finished());
        if pending.is_empty() && !running {
            return;
        }
        lock.set_closing();
        let sink = Arc::clone(&self.sink);
        let flush = move || {
            let mut sink = locked(&sink);
            sink.drain();
            sink.queue = pending;
            sink.drain();
            drop(lock);
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(flush)),
            Err(_) => flush(),
        }
    }
}

/// Hashes the data of an ingest that is there. NotFound when there is none.
fn resume(ingest: &Ingest, reference: &str, total: u64, digester: &mut Digester) -> Result<IngestStatus> {
    let mut status = ingest.status()?;
    if status.reference != reference {
        return Err(Error::data_loss(format!("the ingest belongs to ref {}", status.reference)));
    }
    if total > 0 && status.total > 0 && total != status.total {
        return Err(Error::failed_precondition(format!("total was {} and is now {total}", status.total)));
    }
    status.offset = hash_file(ingest, digester)?;
    if status.total == 0 {
        status.total = total;
    }
    Ok(status)
}

fn hash_file(ingest: &Ingest, digester: &mut Digester) -> Result<u64> {
    let path = ingest.data();
    let mut file = fs::File::open(&path).doing(format_args!("open {}", path.display()))?;
    let mut buffer = vec![0; BATCH_BYTES];
    let mut hashed = 0;
    loop {
        let read = file.read(&mut buffer).doing(format_args!("read {}", path.display()))?;
        if read == 0 {
            return Ok(hashed);
        }
        digester.update(&buffer[..read]);
        hashed += read as u64;
    }
}

/// Verifies, syncs and renames. Nothing changes on disk before both size and digest are right.
fn commit(layout: &Layout, ingest: &Ingest, sink: &Sink, size: u64, expected: Option<&Digest>) -> Result<Digest> {
    let length = sink.file.metadata().doing("stat ingest")?.len();
    if size > 0 && size != length {
        return Err(Error::failed_precondition(format!("unexpected commit size {length}, expected {size}")));
    }
    let mut digest = sink.digester.clone().finish();
    if let Some(expected) = expected.filter(|expected| expected.algorithm() != digest.algorithm()) {
        let mut digester = expected.algorithm().digester();
        hash_file(ingest, &mut digester)?;
        digest = digester.finish();
    }
    if let Some(expected) = expected.filter(|expected| **expected != digest) {
        return Err(Error::failed_precondition(format!("unexpected commit digest {digest}, expected {expected}")));
    }
    let target = layout.blob(&digest);
    if target.exists() {
        discard(ingest);
        return Err(Error::already_exists(format!("content {digest}")));
    }
    sink.file.set_permissions(fs::Permissions::from_mode(0o444)).doing("make blob read-only")?;
    sink.file.set_modified(SystemTime::now()).doing("set time of blob")?;
    // Flushes the data and the length, before a name points to it.
    sink.file.sync_data().doing("sync ingest")?;
    let directory = layout.make_blobs(digest.algorithm())?;
    fs::rename(ingest.data(), &target).doing(format_args!("commit ingest as {}", target.display()))?;
    sync_dir(&directory)?;
    discard(ingest);
    Ok(digest)
}

fn discard(ingest: &Ingest) {
    if let Err(error) = ingest.remove() {
        warn!(path = %ingest.0.display(), %error, "cannot remove the directory of an ingest");
    }
}
