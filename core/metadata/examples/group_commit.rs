//! Shows that concurrent writers share a sync: how many syncs commits cost with one writer, and with many.
//!
//! `cargo run --release -p core-metadata --example group_commit [DIRECTORY]`; the directory chooses the disk.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use core_content::{Info, IngestStatus, Reader, Store, Writer, WriterOptions};
use core_events::{Any, Event, Publisher};
use core_metadata::{Backends, Container, Database, Runtime};
use core_types::{Digest, Error, Namespace, Result, Scope};

/// A store without blobs.
struct Nothing;

fn none<T>() -> Result<T> {
    Err(Error::not_found("there is none"))
}

#[async_trait::async_trait]
impl Store for Nothing {
    async fn info(&self, _: &Digest) -> Result<Info> {
        none()
    }
    async fn update(&self, _: Info, _: &[String]) -> Result<Info> {
        none()
    }
    async fn list(&self, _: &[String]) -> Result<Vec<Info>> {
        Ok(Vec::new())
    }
    async fn delete(&self, _: &Digest) -> Result<()> {
        none()
    }
    async fn reader(&self, _: &Digest) -> Result<Arc<dyn Reader>> {
        none()
    }
    async fn writer(&self, _: WriterOptions) -> Result<Box<dyn Writer>> {
        none()
    }
    async fn status(&self, _: &str) -> Result<IngestStatus> {
        none()
    }
    async fn list_statuses(&self, _: &[String]) -> Result<Vec<IngestStatus>> {
        Ok(Vec::new())
    }
    async fn abort(&self, _: &str) -> Result<()> {
        none()
    }
}

impl Publisher for Nothing {
    fn publish(&self, _: &Namespace, _: &str, _: Event) -> Result<()> {
        Ok(())
    }
}

/// Time for each of `writers` to make `each` containers, divided by `each`.
async fn round(database: &Database, writers: usize, each: usize) -> Duration {
    let scope = Scope::new(Namespace::new("bench").unwrap());
    let round = database.containers(&scope).list(&[]).await.unwrap().len();
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for writer in 0..writers {
        let containers = database.containers(&scope);
        tasks.spawn(async move {
            for number in 0..each {
                let container = Container {
                    runtime: Runtime { name: "io.containerd.runc.v2".into(), options: None },
                    spec: Some(Any { type_url: "spec".into(), value: vec![b'x'; 8000].into() }),
                    ..Container::new(format!("c-{round}-{writer}-{number}"))
                };
                containers.create(container).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    start.elapsed() / u32::try_from(each).unwrap()
}

#[tokio::main]
async fn main() {
    let root = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let directory = tempfile::tempdir_in(root).unwrap();
    let backends = Backends { content: Arc::new(Nothing), snapshotters: BTreeMap::new(), events: Arc::new(Nothing) };
    let database = Database::open(&directory.path().join("metadata"), backends).await.unwrap();
    round(&database, 1, 20).await;
    println!(
        "{:>8} {:>12} {:>12} {:>8} {:>8} {:>13}",
        "writers", "round", "per commit", "commits", "syncs", "commits/sync"
    );
    for writers in [1, 4, 16, 64, 256] {
        let before = database.syncs();
        let each: usize = 50;
        let time = round(&database, writers, each).await;
        let per_commit = time / u32::try_from(writers).unwrap();
        let (commits, syncs) = (writers * each, database.syncs() - before);
        println!(
            "{writers:>8} {time:>12.1?} {per_commit:>12.1?} {commits:>8} {syncs:>8} {:>13.1}",
            commits as f64 / syncs as f64
        );
    }
    database.close().await;
}
