//! Removing from the backends what no record has.
//!
//! Each backend is cleaned by one task at a time, and each of its answers has a deadline: a snapshotter that hangs
//! stops only its own cleaning.

use std::{collections::HashSet, future::Future, sync::Arc, time::Duration};

use core_types::{Digest, Error, ErrorKind, Result};

use super::verify::report;
use crate::{
    database::{Database, Inner},
    key::{self, Kind},
    record::{Ingest, NamespaceRecord, Snapshot},
    store::View,
    trash::Trash,
};

/// How long a backend may take for one answer.
const ANSWER: Duration = Duration::from_secs(60);

async fn within<T>(what: &str, answer: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(ANSWER, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::deadline_exceeded(format!("{what}: no answer within {ANSWER:?}"))),
    }
}

/// The namespace and the client's name in a backend name `<namespace>/<number>/<name>`.
fn parse(name: &str) -> Option<(&str, &str)> {
    let (namespace, rest) = name.split_once('/')?;
    let (number, name) = rest.split_once('/')?;
    number.parse::<u64>().is_ok().then_some((namespace, name))
}

fn blob_known(view: &View<'_>, digest: &str) -> Result<bool> {
    let mut namespaces = Vec::new();
    view.scan(&key::prefix(Kind::Namespace, &[]), |_, record: NamespaceRecord| {
        namespaces.push(record.name);
        Ok(())
    })?;
    for namespace in namespaces {
        if view.has(&key::blob(&namespace, digest))? {
            return Ok(true);
        }
    }
    let mut expected = false;
    view.scan(&[Kind::Ingest as u8], |_, ingest: Ingest| {
        expected |= ingest.expected.as_ref().is_some_and(|expected| expected.as_str() == digest);
        Ok(())
    })?;
    Ok(expected)
}

fn ingest_known(view: &View<'_>, name: &str) -> Result<bool> {
    let Some((namespace, reference)) = parse(name) else { return Ok(false) };
    let found: Option<Ingest> = view.get(&key::named(Kind::Ingest, namespace, reference))?;
    Ok(found.is_some_and(|ingest| ingest.backend == name))
}

fn snapshot_known(view: &View<'_>, snapshotter: &str, name: &str) -> Result<bool> {
    if let Some((namespace, key)) = parse(name) {
        let found: Option<Snapshot> = view.get(&key::snapshot(namespace, snapshotter, key))?;
        if found.is_some_and(|record| record.backend == name) {
            return Ok(true);
        }
    }
    // A remote snapshotter gives names of its own, and the same one to several namespaces.
    let mut known = false;
    view.scan(&[Kind::Snapshot as u8], |node, record: Snapshot| {
        known |= record.backend == name && key::part(node, 1)? == snapshotter;
        Ok(())
    })?;
    Ok(known)
}

impl Database {
    /// Cleans all backends, each on its own. Failures are logged: the next collection tries again.
    pub(super) async fn clean(&self) {
        let mut tasks = tokio::task::JoinSet::new();
        let this = self.clone();
        tasks.spawn(async move { ("content".to_owned(), this.clean_content().await) });
        for name in self.snapshotter_names() {
            let this = self.clone();
            tasks.spawn(async move {
                let cleaned = this.clean_snapshots(&name).await;
                (format!("snapshotter {name}"), cleaned)
            });
        }
        while let Some(done) = tasks.join_next().await {
            match done {
                Ok((_, Ok(()))) => {}
                Ok((backend, Err(error))) => {
                    tracing::warn!(backend, %error, "the rest stays until the next collection");
                }
                Err(error) => tracing::error!(%error, "cleaning of a backend"),
            }
        }
    }

    async fn clean_content(&self) -> Result<()> {
        let lock = self.cleaning("content");
        let Ok(_alone) = lock.try_lock() else { return Ok(()) };
        let Inner { content_trash: blobs, ingest_trash: ingests, backends, .. } = &*self.inner;
        let content = &backends.content;
        if blobs.take_sweep_all() {
            let records = self.blob_records()?;
            let all = within("list blobs", content.list(&[])).await.inspect_err(|_| blobs.sweep_all_again())?;
            let all: HashSet<String> = all.into_iter().map(|info| info.digest.as_str().to_owned()).collect();
            report(records.into_iter().filter(|record| !all.contains(&record.name)));
            blobs.suspect(all);
        }
        if ingests.take_sweep_all() {
            let all = within("list ingests", content.list_statuses(&[])).await;
            ingests.suspect(all.inspect_err(|_| ingests.sweep_all_again())?.into_iter().map(|status| status.reference));
        }
        self.empty(ingests, ingest_known, |name| async move { content.abort(&name).await }).await?;
        let delete = |name: String| async move { content.delete(&Digest::parse(&name)?).await };
        self.empty(blobs, blob_known, delete).await.map(drop)
    }

    async fn clean_snapshots(&self, name: &str) -> Result<()> {
        let lock = self.cleaning(name);
        let Ok(_alone) = lock.try_lock() else { return Ok(()) };
        let inner = &self.inner;
        let (Some(backend), Some(trash)) = (inner.backends.snapshotters.get(name), inner.snapshot_trash.get(name))
        else {
            return Ok(());
        };
        let mut removed = false;
        if trash.take_sweep_all() {
            let records = self.snapshot_records(Some(name))?;
            let all = within("list snapshots", backend.list(&[])).await.inspect_err(|_| trash.sweep_all_again())?;
            let all: HashSet<String> = all.into_iter().map(|info| info.name).collect();
            report(records.into_iter().filter(|(_, key)| !all.contains(key)).map(|(record, _)| record));
            trash.suspect(all);
            // A crash may have left directories that the snapshotter itself does not know.
            removed = true;
        }
        let known = |view: &View<'_>, backend_name: &str| snapshot_known(view, name, backend_name);
        // Parents go after their children: as long as something goes, what had to stay is tried again.
        while self.empty(trash, known, |key| async move { backend.remove(&key).await }).await? {
            removed = true;
        }
        if removed {
            match within("cleanup", backend.cleanup()).await {
                Err(error) if error.kind() != ErrorKind::Unimplemented => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes all suspects that no record has. What others stand on goes back to the trash; true when some of that is
    /// there and something was removed.
    async fn empty<F: Future<Output = Result<()>>>(
        &self,
        trash: &Arc<Trash>,
        known: impl Fn(&View<'_>, &str) -> Result<bool>,
        remove: impl Fn(String) -> F,
    ) -> Result<bool> {
        let mut suspects = trash.take_suspects().into_iter();
        let (mut removed, mut stood_on) = (0_usize, Vec::new());
        let mut failed = None;
        for name in suspects.by_ref() {
            let begun = trash.begin_removal(&name, || self.read(|view| known(view, &name)));
            let outcome = match begun {
                Ok(false) => continue,
                Ok(true) => {
                    let outcome = within("remove", remove(name.clone())).await;
                    trash.end_removal(&name);
                    outcome
                }
                Err(error) => Err(error),
            };
            match outcome {
                Ok(()) => removed += 1,
                Err(error) if error.is_not_found() => {}
                Err(error) if error.kind() == ErrorKind::FailedPrecondition => stood_on.push(name),
                Err(error) => {
                    let context = error.context(format!("remove {name}"));
                    trash.suspect([name]);
                    failed = Some(context);
                    break;
                }
            }
        }
        let again = removed > 0 && !stood_on.is_empty();
        trash.suspect(suspects.chain(stood_on));
        failed.map_or(Ok(again), Err)
    }
}
