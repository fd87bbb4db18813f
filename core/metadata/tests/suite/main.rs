//! The database over backends in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod backend;
mod content;
mod crash;
mod gc;
mod leases;
mod objects;
mod snapshots;
mod stress;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use backend::{Heard, MemoryContent, MemorySnapshotter};
use bytes::Bytes;
use core_content::WriterOptions;
use core_images::Image;
use core_metadata::{Backends, Database, Options};
use core_snapshots::Snapshotter;
use core_types::{Descriptor, Digest, ErrorKind, Labels, Namespace, Result, Scope, media_types};

/// A database with its backends, which live on when it is opened again.
pub struct World {
    directory: Arc<tempfile::TempDir>,
    pub content: MemoryContent,
    pub snapshotter: MemorySnapshotter,
    pub heard: Heard,
    pub db: Database,
}

impl World {
    pub async fn new() -> Self {
        Self::with(MemorySnapshotter::default(), Options::default()).await
    }

    pub async fn with(snapshotter: MemorySnapshotter, options: Options) -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let (content, heard) = (MemoryContent::default(), Heard::default());
        let db = open(directory.path(), &content, &snapshotter, &heard, options).await.unwrap();
        Self { directory, content, snapshotter, heard, db }
    }

    /// Closes the database, and opens it again.
    pub async fn reopen(self) -> Self {
        let Self { directory, content, snapshotter, heard, db } = self;
        db.close().await;
        drop(db);
        let db = open(directory.path(), &content, &snapshotter, &heard, Options::default()).await.unwrap();
        Self { directory, content, snapshotter, heard, db }
    }

    /// The database's directory.
    pub fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("metadata")
    }

    /// Another database over the same backends.
    pub async fn at(&self, directory: tempfile::TempDir) -> Self {
        let Self { content, snapshotter, heard, .. } = self;
        let db = open(directory.path(), content, snapshotter, heard, Options::default()).await.unwrap();
        let (content, snapshotter, heard) = (content.clone(), snapshotter.clone(), heard.clone());
        Self { directory: Arc::new(directory), content, snapshotter, heard, db }
    }

    pub fn snapshots(&self, scope: &Scope) -> Arc<dyn Snapshotter> {
        self.db.snapshotter(scope, "memory").unwrap()
    }

    /// Writes a blob, and commits it.
    pub async fn put(&self, scope: &Scope, data: &[u8], labels: Labels) -> Result<Digest> {
        put(&self.db, scope, data, labels).await
    }
}

pub async fn put(db: &Database, scope: &Scope, data: &[u8], labels: Labels) -> Result<Digest> {
    let digest = Digest::of(data);
    let reference = format!("write-{digest}");
    let options = WriterOptions { reference, total: data.len() as u64, expected: Some(digest.clone()) };
    let mut writer = db.content(scope).writer(options).await?;
    if writer.status().offset < data.len() as u64 {
        writer.write(Bytes::copy_from_slice(data)).await?;
    }
    writer.commit(data.len() as u64, Some(&digest), labels).await
}

async fn open(
    path: &Path,
    content: &MemoryContent,
    snapshotter: &MemorySnapshotter,
    heard: &Heard,
    options: Options,
) -> Result<Database> {
    let snapshotter: Arc<dyn Snapshotter> = Arc::new(snapshotter.clone());
    let backends = Backends {
        content: Arc::new(content.clone()),
        snapshotters: BTreeMap::from([("memory".to_owned(), snapshotter)]),
        events: Arc::new(heard.clone()),
    };
    Database::open_with(&path.join("metadata"), backends, options).await
}

pub fn scope(namespace: &str) -> Scope {
    Scope::new(Namespace::new(namespace).unwrap())
}

pub fn labels<const N: usize>(labels: [(&str, &str); N]) -> Labels {
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

pub fn image(name: &str, target: &Digest) -> Image {
    Image {
        name: name.to_owned(),
        labels: Labels::new(),
        target: Descriptor::new(media_types::OCI_MANIFEST, target.clone(), 1),
        created_at: std::time::SystemTime::UNIX_EPOCH,
        updated_at: std::time::SystemTime::UNIX_EPOCH,
    }
}

pub fn paths<const N: usize>(paths: [&str; N]) -> Vec<String> {
    paths.map(str::to_owned).into()
}

#[track_caller]
pub fn refused<T>(result: Result<T>, kind: ErrorKind) {
    match result {
        Ok(_) => panic!("expected {kind:?}"),
        Err(error) => assert_eq!(error.kind(), kind, "{error}"),
    }
}
