//! Where things are on disk, and the small files beside an ingest's data.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use core_types::{Algorithm, Digest, Error, Result, ResultExt};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::IngestStatus;

/// The algorithms that have a directory below `blobs`.
pub(super) const ALGORITHMS: [Algorithm; 3] = [Algorithm::Sha256, Algorithm::Sha384, Algorithm::Sha512];

/// The root of a store.
pub(super) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(super) fn blobs(&self, algorithm: Algorithm) -> PathBuf {
        self.root.join("blobs").join(algorithm.as_str())
    }

    pub(super) fn blob(&self, digest: &Digest) -> PathBuf {
        self.blobs(digest.algorithm()).join(digest.hex())
    }

    pub(super) fn ingests(&self) -> PathBuf {
        self.root.join("ingest")
    }

    /// Named by a digest, so that any reference is a safe name of bounded length.
    pub(super) fn ingest(&self, reference: &str) -> Ingest {
        Ingest(self.ingests().join(Digest::of(reference.as_bytes()).hex()))
    }

    /// Makes the directory for blobs of `algorithm` and makes its name durable.
    pub(super) fn make_blobs(&self, algorithm: Algorithm) -> Result<PathBuf> {
        let path = self.blobs(algorithm);
        if !path.is_dir() {
            fs::create_dir_all(&path).doing(format_args!("create {}", path.display()))?;
            sync_dir(&self.root.join("blobs"))?;
            sync_dir(&self.root)?;
        }
        Ok(path)
    }
}

/// The directory of an ingest.
pub(super) struct Ingest(pub(super) PathBuf);

impl Ingest {
    pub(super) fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    /// Writes the files that describe a new ingest.
    pub(super) fn describe(&self, reference: &str, total: u64, now: SystemTime) -> Result<()> {
        let stamp = format_time(now)?;
        let write = |name: &str, text: &str| {
            let path = self.0.join(name);
            fs::write(&path, text).doing(format_args!("write {}", path.display()))
        };
        write("ref", reference)?;
        write("startedat", &stamp)?;
        write("updatedat", &stamp)?;
        if total > 0 {
            write("total", &total.to_string())?;
        }
        Ok(())
    }

    /// Reads it back. NotFound while it is half made or half removed.
    pub(super) fn status(&self) -> Result<IngestStatus> {
        let metadata = fs::metadata(self.data()).doing(format_args!("ingest {}", self.0.display()))?;
        let read = |name: &str| fs::read_to_string(self.0.join(name)).doing(format_args!("read {name} of an ingest"));
        let updated_at = parse_time(&read("updatedat")?)?;
        Ok(IngestStatus {
            reference: read("ref")?,
            offset: metadata.len(),
            total: read("total").ok().and_then(|total| total.trim().parse().ok()).unwrap_or(0),
            expected: None,
            started_at: parse_time(&read("startedat")?)?,
            updated_at: metadata.modified().map_or(updated_at, |modified| modified.max(updated_at)),
        })
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.0)
    }
}

fn format_time(time: SystemTime) -> Result<String> {
    OffsetDateTime::from(time).format(&Rfc3339).map_err(|error| Error::internal(format!("format time: {error}")))
}

fn parse_time(text: &str) -> Result<SystemTime> {
    OffsetDateTime::parse(text.trim(), &Rfc3339)
        .map(SystemTime::from)
        .map_err(|error| Error::data_loss(format!("timestamp of an ingest, {text:?}: {error}")))
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(path: &Path) -> Result<()> {
    File::open(path).and_then(|dir| dir.sync_all()).doing(format_args!("sync directory {}", path.display()))
}
