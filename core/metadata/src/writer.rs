//! Group commit: one thread that writes, many transactions to a sync.
//!
//! Requests wait in a queue. The thread takes all that are there, runs each in a transaction nested in a common one,
//! so that one that fails is undone alone, and commits them together. While it syncs, the next batch gathers.

use std::sync::{Arc, PoisonError};

use core_types::{Error, Result};
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender, error::TryRecvError, unbounded_channel},
    oneshot,
};

use crate::{
    error::from_heed,
    roots::Roots,
    store::{Store, Tx},
};

/// The most requests that are committed together.
const MOST: usize = 256;

/// How much a commit must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Survives the end of the process at once, and of the machine with the next commit. One sync.
    /// For records that only guard work in progress.
    Ordered,
    /// Survives the end of the machine when the answer is given. Two syncs.
    Full,
}

trait Job: Send {
    fn durability(&self) -> Durability;
    /// Runs the work; false when it failed. Can be called again when the whole batch was undone.
    fn run(&mut self, tx: &mut Tx<'_, '_>) -> bool;
    /// Gives the answer; `failed` is why the commit did not happen.
    fn finish(self: Box<Self>, failed: Option<&Error>);
}

struct Request<T, F> {
    work: F,
    durability: Durability,
    outcome: Option<Result<T>>,
    answer: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnMut(&mut Tx<'_, '_>) -> Result<T> + Send> Job for Request<T, F> {
    fn durability(&self) -> Durability {
        self.durability
    }

    fn run(&mut self, tx: &mut Tx<'_, '_>) -> bool {
        let outcome = (self.work)(tx);
        let well = outcome.is_ok();
        self.outcome = Some(outcome);
        well
    }

    fn finish(self: Box<Self>, failed: Option<&Error>) {
        let outcome = match (self.outcome, failed) {
            (Some(Ok(_)) | None, Some(error)) => Err(Error::new(error.kind(), error.message())),
            (Some(outcome), _) => outcome,
            (None, None) => Err(Error::internal("a metadata request was not run")),
        };
        // Whoever asked may have gone; the commit stands all the same.
        let _gone = self.answer.send(outcome);
    }
}

/// The way into the queue.
#[derive(Clone)]
pub(crate) struct Writer(UnboundedSender<Box<dyn Job>>);

/// The queue's other end.
pub(crate) struct Queue(UnboundedReceiver<Box<dyn Job>>);

/// A queue.
pub(crate) fn queue() -> (Writer, Queue) {
    let (sender, receiver) = unbounded_channel();
    (Writer(sender), Queue(receiver))
}

impl Writer {
    /// Runs `work` in a transaction; answers after the commit. `work` may run more than once and must have no effect
    /// besides the transaction's that would hurt then.
    pub(crate) async fn submit<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnMut(&mut Tx<'_, '_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, outcome) = oneshot::channel();
        let closed = || Error::unavailable("the metadata database is closed");
        self.0.send(Box::new(Request { work, durability, outcome: None, answer })).map_err(|_| closed())?;
        outcome.await.map_err(|_| closed())?
    }
}

/// Serves the queue until all its writers are gone.
pub(crate) fn serve(store: &Store, roots: &Arc<Roots>, mut queue: Queue) {
    while let Some(first) = queue.0.blocking_recv() {
        let mut batch = vec![first];
        while batch.len() < MOST {
            match queue.0.try_recv() {
                Ok(job) => batch.push(job),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        let failed = execute(store, roots, &mut batch).err();
        for job in batch {
            job.finish(failed.as_ref());
        }
        if let Err(error) = store.environment.extend() {
            tracing::debug!(%error, "the metadata file could not be made longer ahead of need");
        }
    }
    if let Err(error) = store.environment.env.force_sync() {
        tracing::error!(%error, "last sync of the metadata database");
    }
}

enum Attempt {
    Done,
    /// Nothing was kept: the map is full.
    Full,
}

fn execute(store: &Store, roots: &Roots, batch: &mut [Box<dyn Job>]) -> Result<()> {
    // Each step is gigabytes: what does not fit after a few is refused.
    for _ in 0..3 {
        let attempt = {
            let _open = store.gate.read().unwrap_or_else(PoisonError::into_inner);
            attempt(store, roots, batch)
        };
        if matches!(attempt?, Attempt::Done) {
            return Ok(());
        }
        let _alone = store.gate.write().unwrap_or_else(PoisonError::into_inner);
        let size = store.environment.grow()?;
        tracing::info!(size, "the map of the metadata database has grown");
    }
    Err(Error::resource_exhausted("metadata database: the request does not fit into the map"))
}

fn attempt(store: &Store, roots: &Roots, batch: &mut [Box<dyn Job>]) -> Result<Attempt> {
    let env = &store.environment.env;
    let alone = batch.len() == 1;
    let mut outer = env.write_txn().map_err(from_heed)?;
    let (mut changed, mut durable) = (false, false);
    for job in batch.iter_mut() {
        let (well, news) = if alone {
            run_one(store, job, &mut outer)
        } else {
            let mut inner = env.nested_write_txn(&mut outer).map_err(from_heed)?;
            let (well, news) = run_one(store, job, &mut inner);
            if well && !news.full {
                inner.commit().map_err(from_heed)?;
            }
            (well, news)
        };
        if news.full {
            return Ok(Attempt::Full);
        }
        if well && news.changed {
            roots.written(news.written);
            changed = true;
            durable |= job.durability() == Durability::Full;
        }
    }
    if !changed {
        return Ok(Attempt::Done);
    }
    match outer.commit() {
        Ok(()) => {}
        Err(heed::Error::Mdb(heed::MdbError::MapFull)) => return Ok(Attempt::Full),
        Err(error) => return Err(from_heed(error)),
    }
    if durable {
        env.force_sync().map_err(from_heed)?;
    }
    Ok(Attempt::Done)
}

struct News {
    written: Vec<crate::key::Key>,
    changed: bool,
    full: bool,
}

fn run_one(store: &Store, job: &mut Box<dyn Job>, transaction: &mut heed::RwTxn<'_>) -> (bool, News) {
    let mut tx = Tx::new(transaction, store.environment.table);
    let well = job.run(&mut tx);
    (well, News { written: tx.written, changed: tx.changed, full: tx.full })
}
