//! The store in a directory: `blobs/<algorithm>/<hex>` and `ingest/<sha256 of the reference>/{ref,data,…}`.
//!
//! It has neither namespaces nor labels: `core-metadata` keeps those.

/// Gathering, hashing and writing.
mod batch;
/// Paths and small files.
mod layout;
/// One writer for each reference.
mod locks;
#[cfg(test)]
mod tests;
/// The writer and its commit.
mod writer;

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, FileExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use async_trait::async_trait;
use core_types::{Digest, Error, Filter, Labels, Result, ResultExt};
use tracing::{debug, warn};

use self::{
    layout::{ALGORITHMS, Ingest, Layout},
    locks::Locks,
    writer::LocalWriter,
};
use crate::{Info, IngestStatus, Reader, Store, Writer, WriterOptions, helpers::run};

/// Blobs and ingests in a directory, in containerd's layout.
pub struct LocalStore {
    layout: Arc<Layout>,
    locks: Arc<Locks>,
}

impl LocalStore {
    /// Opens the store in `root` and makes the directory when it is not there.
    ///
    /// # Errors
    /// What the disk says.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&root)
            .doing(format_args!("create content store {}", root.display()))?;
        let layout = Layout::new(root);
        sweep(&layout)?;
        Ok(Self { layout: Arc::new(layout), locks: Arc::default() })
    }

    /// Replaces the size on disk by what the open writer has taken.
    fn live(&self, mut status: IngestStatus) -> IngestStatus {
        if let Some(offset) = self.locks.offset(&status.reference) {
            status.offset = offset;
        }
        status
    }
}

struct LocalReader {
    file: File,
    size: u64,
}

impl Reader for LocalReader {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

fn missing(digest: &Digest) -> Error {
    Error::not_found(format!("content {digest}"))
}

/// Gives a missing file the digest's name and leaves other failures as they are.
fn absent(digest: &Digest, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => missing(digest),
        _ => Error::io(format_args!("content {digest}"), error),
    }
}

fn info(digest: Digest, metadata: &fs::Metadata) -> Info {
    let time = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Info { digest, size: metadata.len(), created_at: time, updated_at: time, labels: Labels::new() }
}

/// The names in a directory; none when it is not there.
fn names(path: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(format_args!("list {}", path.display()), error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.doing(format_args!("list {}", path.display()))?;
        if let Ok(name) = entry.file_name().into_string() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Removes directories of ingests that a crash left without a reference, so that nobody could resume them.
fn sweep(layout: &Layout) -> Result<()> {
    for name in names(&layout.ingests())? {
        let ingest = Ingest(layout.ingests().join(name));
        if ingest.status().is_err() {
            warn!(path = %ingest.0.display(), "removing a half-made ingest");
            ingest.remove().doing(format_args!("remove {}", ingest.0.display()))?;
        }
    }
    Ok(())
}

fn list(layout: &Layout, filter: &Filter) -> Result<Vec<Info>> {
    let mut found = Vec::new();
    for algorithm in ALGORITHMS {
        let directory = layout.blobs(algorithm);
        for name in names(&directory)? {
            let Ok(digest) = Digest::parse(&format!("{}:{name}", algorithm.as_str())) else { continue };
            let Ok(metadata) = fs::symlink_metadata(directory.join(&name)) else { continue };
            let info = info(digest, &metadata);
            if metadata.is_file() && filter.matches(&info) {
                found.push(info);
            }
        }
    }
    Ok(found)
}

#[async_trait]
impl Store for LocalStore {
    async fn info(&self, digest: &Digest) -> Result<Info> {
        let (path, digest) = (self.layout.blob(digest), digest.clone());
        run(move || match fs::metadata(path) {
            Ok(metadata) => Ok(info(digest, &metadata)),
            Err(error) => Err(absent(&digest, error)),
        })
        .await
    }

    async fn update(&self, info: Info, _fieldpaths: &[String]) -> Result<Info> {
        Err(Error::unimplemented(format!("update content {}: this store keeps no labels", info.digest)))
    }

    async fn list(&self, filters: &[String]) -> Result<Vec<Info>> {
        let filter = Filter::parse_all(filters)?;
        let layout = Arc::clone(&self.layout);
        run(move || list(&layout, &filter)).await
    }

    async fn delete(&self, digest: &Digest) -> Result<()> {
        let (path, digest) = (self.layout.blob(digest), digest.clone());
        run(move || fs::remove_file(path).map_err(|error| absent(&digest, error))).await
    }

    async fn reader(&self, digest: &Digest) -> Result<Arc<dyn Reader>> {
        let (path, digest) = (self.layout.blob(digest), digest.clone());
        run(move || {
            let file = File::open(path).map_err(|error| absent(&digest, error))?;
            let size = file.metadata().doing(format_args!("content {digest}"))?.len();
            Ok(Arc::new(LocalReader { file, size }) as Arc<dyn Reader>)
        })
        .await
    }

    async fn writer(&self, options: WriterOptions) -> Result<Box<dyn Writer>> {
        if options.reference.is_empty() {
            return Err(Error::invalid_argument("ref must not be empty"));
        }
        let lock = self.locks.lock(&options.reference).await?;
        let layout = Arc::clone(&self.layout);
        let writer = run(move || LocalWriter::open(layout, options, lock)).await?;
        Ok(Box::new(writer))
    }

    async fn status(&self, reference: &str) -> Result<IngestStatus> {
        let ingest = self.layout.ingest(reference);
        let status = run(move || ingest.status()).await.doing(format_args!("ingest ref {reference}"))?;
        Ok(self.live(status))
    }

    async fn list_statuses(&self, filters: &[String]) -> Result<Vec<IngestStatus>> {
        let filter = Filter::parse_all(filters)?;
        let root = self.layout.ingests();
        let statuses = run(move || {
            let mut statuses = Vec::new();
            for name in names(&root)? {
                match Ingest(root.join(name)).status() {
                    Ok(status) if filter.matches(&status) => statuses.push(status),
                    Ok(_) => {}
                    // Being made or removed at this moment.
                    Err(error) => debug!(%error, "skipping an ingest"),
                }
            }
            Ok(statuses)
        })
        .await?;
        Ok(statuses.into_iter().map(|status| self.live(status)).collect())
    }

    async fn abort(&self, reference: &str) -> Result<()> {
        let ingest = self.layout.ingest(reference);
        let reference = reference.to_owned();
        run(move || match ingest.remove() {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Error::not_found(format!("ingest ref {reference:?}")))
            }
            Err(error) => Err(Error::io(format_args!("abort ingest ref {reference:?}"), error)),
        })
        .await
    }
}
