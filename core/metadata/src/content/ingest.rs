//! Writers of a namespace.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use core_content::{Info, IngestStatus, Writer, WriterOptions};
use core_events::Event;
use core_leases::Resource;
use core_types::{Digest, Error, Labels, Result};

use crate::{
    database::Bound,
    fields::checked,
    key::{self, Key, Kind},
    record::Ingest,
    roots::{Pin, Use},
    store::Tx,
    trash::Claim,
    writer::Durability,
};

/// How long an ingest without a lease can be resumed.
const RESUMABLE: Duration = Duration::from_secs(24 * 60 * 60);
/// Bytes that are copied at once when a shared blob is written after all.
const PIECE: u64 = 1 << 20;

enum State {
    /// Nothing was written: the ingest stands for a blob that the backend has.
    Shared { digest: Digest, size: u64 },
    /// A writer of the backend.
    Open(Box<dyn Writer>),
    /// A commit has taken it.
    Taken,
}

/// A writer of a namespace; while it lives, its ingest and its lease are kept.
struct IngestWriter {
    bound: Bound,
    key: Key,
    reference: String,
    backend: String,
    state: State,
    started: SystemTime,
    claim: Option<Claim>,
    _pin: Pin,
    _use: Option<Use>,
}

/// Opens or resumes an ingest. `shared` is the size of the blob when the backend has it.
pub(crate) async fn open(
    bound: &Bound,
    options: WriterOptions,
    shared: Option<u64>,
    claim: Option<Claim>,
) -> Result<Box<dyn Writer>> {
    let key = key::named(Kind::Ingest, bound.namespace(), &options.reference);
    let pin = bound.db.inner.roots.pin(key.clone());
    let lease = bound.use_lease();
    bound.not_dying(&key).await?;
    let shared = shared.and_then(|size| options.expected.clone().map(|digest| (digest, size)));
    let expected = shared.as_ref().map(|(digest, _)| digest.clone());
    let (backend, fresh) = record(bound, &key, &options.reference, expected).await?;
    let state = match shared {
        Some((digest, size)) => State::Shared { digest, size },
        None => {
            let inner = WriterOptions { reference: backend.clone(), total: options.total, expected: None };
            match bound.db.inner.backends.content.writer(inner).await {
                Ok(writer) => State::Open(writer),
                Err(error) => {
                    if fresh && error.kind() != core_types::ErrorKind::Unavailable {
                        forget(bound, &key, &options.reference, &backend).await;
                    }
                    return Err(error.context(format!("ref {}", options.reference)));
                }
            }
        }
    };
    Ok(Box::new(IngestWriter {
        bound: bound.clone(),
        key,
        reference: options.reference,
        backend,
        state,
        started: SystemTime::now(),
        claim,
        _pin: pin,
        _use: lease,
    }))
}

/// Finds or makes the record of an ingest; answers its name in the backend, and whether it is new.
async fn record(bound: &Bound, key: &Key, reference: &str, expected: Option<Digest>) -> Result<(String, bool)> {
    let fresh = format!("{}/{}/{reference}", bound.namespace(), bound.db.number());
    let (bound_in, key, reference) = (bound.clone(), key.clone(), reference.to_owned());
    let work = move |tx: &mut Tx<'_, '_>| {
        let found: Option<Ingest> = tx.get(&key)?;
        let new = found.is_none();
        tx.ensure_namespace(bound_in.namespace())?;
        let leased = bound_in.add_to_lease(tx, &Resource::ingest(&reference))?;
        let backend = found.map_or_else(|| fresh.clone(), |found| found.backend);
        let record = Ingest {
            reference: reference.clone(),
            backend,
            expires_at: (!leased).then(|| SystemTime::now() + RESUMABLE),
            expected: expected.clone(),
        };
        tx.put(&key, &record)?;
        Ok((record.backend, new))
    };
    bound.db.write(Durability::Ordered, work).await
}

/// Removes the record of an ingest that could not be opened.
async fn forget(bound: &Bound, key: &Key, reference: &str, backend: &str) {
    let (bound_in, key, reference) = (bound.clone(), key.clone(), reference.to_owned());
    let backend = backend.to_owned();
    let work = move |tx: &mut Tx<'_, '_>| {
        if tx.get::<Ingest>(&key)?.is_some_and(|found| found.backend == backend) {
            tx.delete(&key)?;
            bound_in.remove_from_lease(tx, &Resource::ingest(&reference))?;
        }
        Ok(())
    };
    if let Err(error) = bound.db.remove(Durability::Ordered, work).await {
        tracing::warn!(%error, "an ingest that could not be opened stays recorded until it expires");
    }
}

impl IngestWriter {
    /// The backend's writer; a shared blob is copied to it up to `size` first.
    async fn unshare(&mut self, size: Option<u64>) -> Result<&mut Box<dyn Writer>> {
        if let State::Shared { digest, size: all } = &self.state {
            let (digest, keep) = (digest.clone(), size.unwrap_or(*all).min(*all));
            let content = &self.bound.db.inner.backends.content;
            let options = WriterOptions { reference: self.backend.clone(), total: 0, expected: None };
            let mut writer = content.writer(options).await?;
            if writer.status().offset > 0 {
                writer.truncate(0).await?;
            }
            if keep > 0 {
                let reader = content.reader(&digest).await?;
                let mut offset = 0;
                while offset < keep {
                    let length = usize::try_from(PIECE.min(keep - offset)).unwrap_or_default();
                    let reader = std::sync::Arc::clone(&reader);
                    let read = tokio::task::spawn_blocking(move || {
                        let mut piece = vec![0; length];
                        let read = reader.read_at(&mut piece, offset)?;
                        piece.truncate(read);
                        std::io::Result::Ok(Bytes::from(piece))
                    });
                    let piece = read.await.map_err(|error| Error::internal(error.to_string()))??;
                    if piece.is_empty() {
                        return Err(Error::data_loss(format!("content {digest} ends before its size")));
                    }
                    offset += piece.len() as u64;
                    writer.write(piece).await?;
                }
            }
            self.state = State::Open(writer);
        }
        match &mut self.state {
            State::Open(writer) => Ok(writer),
            _ => Err(Error::failed_precondition(format!("writer of {} is closed", self.reference))),
        }
    }
}

#[async_trait]
impl Writer for IngestWriter {
    async fn write(&mut self, data: Bytes) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        self.unshare(None).await?.write(data).await
    }

    fn status(&self) -> IngestStatus {
        match &self.state {
            State::Open(writer) => IngestStatus { reference: self.reference.clone(), ..writer.status() },
            other => {
                let (size, expected) = match other {
                    State::Shared { digest, size } => (*size, Some(digest.clone())),
                    _ => (0, None),
                };
                IngestStatus {
                    reference: self.reference.clone(),
                    offset: size,
                    total: size,
                    expected,
                    started_at: self.started,
                    updated_at: self.started,
                }
            }
        }
    }

    fn digest(&self) -> Digest {
        match &self.state {
            State::Open(writer) => writer.digest(),
            State::Shared { digest, .. } => digest.clone(),
            State::Taken => Digest::of(b""),
        }
    }

    async fn truncate(&mut self, size: u64) -> Result<()> {
        let shared = matches!(self.state, State::Shared { .. });
        let writer = self.unshare(Some(size)).await?;
        if shared { Ok(()) } else { writer.truncate(size).await }
    }

    async fn commit(&mut self, size: u64, expected: Option<&Digest>, mut labels: Labels) -> Result<Digest> {
        checked(&mut labels).map_err(|error| error.context("info.Labels"))?;
        let job = Commit {
            bound: self.bound.clone(),
            key: self.key.clone(),
            reference: self.reference.clone(),
            backend: self.backend.clone(),
            size,
            expected: expected.cloned(),
            labels,
            claim: self.claim.take(),
        };
        let mut state = std::mem::replace(&mut self.state, State::Taken);
        // On its own, so that a client that goes away in the middle leaves no blob without a record.
        let done = tokio::spawn(async move {
            let outcome = job.run(&mut state).await;
            (state, outcome)
        });
        let (state, outcome) = done.await.map_err(|error| Error::internal(error.to_string()))?;
        if outcome.is_err() {
            self.state = state;
        }
        outcome
    }
}

/// A commit with all it needs.
struct Commit {
    bound: Bound,
    key: Key,
    reference: String,
    backend: String,
    size: u64,
    expected: Option<Digest>,
    labels: Labels,
    claim: Option<Claim>,
}

impl Commit {
    async fn run(mut self, state: &mut State) -> Result<Digest> {
        let mut claims: Vec<Claim> = self.claim.take().into_iter().collect();
        let (digest, size) = match state {
            State::Shared { digest, size } => {
                self.check_size(*size)?;
                if self.expected.as_ref().is_some_and(|expected| expected != digest) {
                    return Err(Error::failed_precondition(format!("{:?} unexpected digest", self.reference)));
                }
                self.bound.db.inner.ingest_trash.suspect([self.backend.clone()]);
                (digest.clone(), *size)
            }
            State::Open(writer) => {
                let size = writer.status().offset;
                self.check_size(size)?;
                let trash = &self.bound.db.inner.content_trash;
                let digest = writer.digest();
                claims.push(trash.claim(digest.as_str()).await);
                let digest = match writer.commit(size, self.expected.as_ref(), Labels::new()).await {
                    Ok(digest) => digest,
                    Err(error) if error.is_already_exists() => self.expected.clone().unwrap_or(digest),
                    Err(error) => return Err(error.context(format!("ref {}", self.reference))),
                };
                claims.push(trash.claim(digest.as_str()).await);
                (digest, size)
            }
            State::Taken => {
                return Err(Error::failed_precondition(format!("writer of {} is closed", self.reference)));
            }
        };
        let existed = self.record(&digest, size).await?;
        *state = State::Taken;
        claims.into_iter().for_each(Claim::recorded);
        if existed {
            return Err(Error::already_exists(format!("content {digest}")));
        }
        let event = Event::ContentCreate { digest: digest.as_str().to_owned(), size };
        self.bound.publish("/content/create", event);
        Ok(digest)
    }

    fn check_size(&self, size: u64) -> Result<()> {
        if self.size != 0 && self.size != size {
            let (reference, wanted) = (&self.reference, self.size);
            return Err(Error::failed_precondition(format!(
                "{reference:?} failed size validation: {size} != {wanted}"
            )));
        }
        Ok(())
    }

    /// Writes the blob's record, removes the ingest's; true when the namespace had the blob already.
    async fn record(&self, digest: &Digest, size: u64) -> Result<bool> {
        let (bound, ingest, reference) = (self.bound.clone(), self.key.clone(), self.reference.clone());
        let blob = key::blob(bound.namespace(), digest.as_str());
        let now = SystemTime::now();
        let labels = self.labels.clone();
        let info = Info { digest: digest.clone(), size, created_at: now, updated_at: now, labels };
        let work = move |tx: &mut Tx<'_, '_>| {
            tx.delete(&ingest)?;
            bound.remove_from_lease(tx, &Resource::ingest(&reference))?;
            bound.add_to_lease(tx, &Resource::content(&info.digest))?;
            let existed = tx.has(&blob)?;
            if !existed {
                tx.ensure_namespace(bound.namespace())?;
                tx.put(&blob, &info)?;
            }
            Ok(existed)
        };
        self.bound.db.write(Durability::Full, work).await
    }
}
