//! Group commit: one thread that writes, many transactions to a sync.
//!
//! Requests wait in a queue. The thread takes all that are there, runs each in a transaction nested in a common one,
//! so that one that fails is undone alone, commits them together, and syncs the [journal](crate::journal) once for all
//! of them. While it syncs, the next batch gathers.

use std::{
    sync::{
        Arc, PoisonError,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::Duration,
};

use core_types::{Error, Result};
use tokio::sync::oneshot;

use crate::{
    error::from_heed,
    roots::Roots,
    store::{Log, Store, Tx},
};

/// The most requests that are committed together.
const MOST: usize = 256;

/// After this time without a request, the journal is taken over into the file.
const IDLE: Duration = Duration::from_secs(1);

/// How much a commit must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Survives the end of the process at once, and of the machine with the next full commit or a second later. No
    /// sync. For records that only guard work in progress, and for removals.
    Ordered,
    /// Survives the end of the machine when the answer is given. One sync, for all that are committed together.
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
pub(crate) struct Writer(Sender<Box<dyn Job>>);

/// The queue's other end.
pub(crate) struct Queue(Receiver<Box<dyn Job>>);

/// A queue.
pub(crate) fn queue() -> (Writer, Queue) {
    let (sender, receiver) = channel();
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
pub(crate) fn serve(store: &Store, mut log: Log, roots: &Arc<Roots>, queue: &Queue) {
    let mut pending = false;
    loop {
        let next = match pending {
            true => queue.0.recv_timeout(IDLE),
            false => queue.0.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let first = match next {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => {
                pending = false;
                checkpoint(store, &mut log);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let mut batch = vec![first];
        batch.extend(queue.0.try_iter().take(MOST - 1));
        pending = true;
        let failed = execute(store, &mut log, roots, &mut batch).err();
        store.syncs.store(log.journal.syncs, Ordering::Relaxed);
        for job in batch {
            job.finish(failed.as_ref());
        }
    }
    if pending {
        checkpoint(store, &mut log);
    }
}

fn checkpoint(store: &Store, log: &mut Log) {
    if let Err(error) = log.checkpoint(&store.environment) {
        tracing::error!(%error, "checkpoint of the metadata database; it is tried again with the next commit");
        log.journal.broken = true;
    }
}

enum Attempt {
    Done,
    /// Nothing was kept: the map is full.
    Full,
}

fn execute(store: &Store, log: &mut Log, roots: &Roots, batch: &mut [Box<dyn Job>]) -> Result<()> {
    // Each step is gigabytes: what does not fit after a few is refused.
    for _ in 0..3 {
        let attempt = {
            let _open = store.gate.read().unwrap_or_else(PoisonError::into_inner);
            attempt(store, log, roots, batch)
        };
        if matches!(attempt?, Attempt::Done) {
            return Ok(());
        }
        let _alone = store.gate.write().unwrap_or_else(PoisonError::into_inner);
        let size = log.grow(&store.environment)?;
        tracing::info!(size, "the map of the metadata database has grown");
    }
    Err(Error::resource_exhausted("metadata database: the request does not fit into the map"))
}

fn attempt(store: &Store, log: &mut Log, roots: &Roots, batch: &mut [Box<dyn Job>]) -> Result<Attempt> {
    let env = &store.environment.env;
    let alone = batch.len() == 1;
    let mut outer = env.write_txn().map_err(from_heed)?;
    let (mut changes, mut durable) = (Vec::new(), false);
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
        if well {
            roots.written(news.written);
            changes.extend(news.changes);
            durable |= job.durability() == Durability::Full;
        }
    }
    if changes.is_empty() {
        drop(outer);
    } else {
        match outer.commit() {
            Ok(()) => {}
            Err(heed::Error::Mdb(heed::MdbError::MapFull)) => return Ok(Attempt::Full),
            Err(error) => return Err(from_heed(error)),
        }
    }
    let journal = &mut log.journal;
    let written = if changes.is_empty() { Ok(()) } else { journal.append(&changes) };
    let written = written.and_then(|()| if durable { journal.sync() } else { Ok(()) });
    if written.is_err() || journal.broken {
        // The journal is full, or cannot be written: LMDB's own file has it all.
        log.checkpoint(&store.environment)?;
    }
    Ok(Attempt::Done)
}

struct News {
    written: Vec<crate::key::Key>,
    changes: Vec<u8>,
    full: bool,
}

fn run_one(store: &Store, job: &mut Box<dyn Job>, transaction: &mut heed::RwTxn<'_>) -> (bool, News) {
    let mut tx = Tx::new(transaction, store.environment.table);
    let well = job.run(&mut tx);
    (well, News { written: tx.written, changes: tx.changes.finish(), full: tx.full })
}
