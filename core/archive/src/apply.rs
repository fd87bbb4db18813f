use std::{
    io::Read,
    path::{Path, PathBuf},
};

use core_types::Digest;

use crate::{
    Archive, Entry, Error, Kind, Result,
    error::shown,
    pipeline,
    whiteout::{Marker, marker},
};

/// Making files, links, devices and directories.
mod create;
/// Deletions.
mod delete;
/// What the layer itself put where.
mod ledger;
/// Owner, mode, times and attributes.
mod metadata;
/// Names to directories, one component at a time.
mod place;
/// Removing trees.
mod remove;

pub(crate) use metadata::{is_overlay_attribute, xattrs_at};

use ledger::Ledger;
use place::Places;

/// Entries that one layer may have.
const ENTRIES_LIMIT: u64 = 16_000_000;

/// What becomes of a layer's deletions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whiteouts {
    /// What lower layers have is removed from the target, which holds a copy of them.
    Delete,
    /// The target is the upper directory of an overlay: deletions become its whiteouts and opaque marks.
    Overlay {
        /// Marks are `user.overlay.*` attributes, as the mount option `userxattr` wants.
        user_xattr: bool,
    },
}

/// How to extract a layer.
#[derive(Clone, Debug)]
pub struct ApplyOptions {
    /// What becomes of deletions.
    pub whiteouts: Whiteouts,
    /// With an overlay: the directories of the layers below, topmost first. A directory that the layer does not
    /// describe itself, but has files in, is made with the metadata it has there.
    pub parents: Vec<PathBuf>,
    /// Flush the file system of the target at the end.
    pub sync: bool,
}

impl Default for ApplyOptions {
    fn default() -> Self {
        Self { whiteouts: Whiteouts::Delete, parents: Vec::new(), sync: false }
    }
}

/// What extracting a layer found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// SHA-256 of the uncompressed archive.
    pub diff_id: Digest,
    /// Its length in bytes.
    pub size: u64,
}

/// Extracts the layer that `stream` brings, compressed or not, onto the directory `root`.
///
/// Nothing outside `root` is read or written, whatever the archive says. The stream is read to its end. After an
/// error the target holds a part of the layer.
///
/// # Errors
/// See [`Error`].
pub fn apply(root: &Path, stream: impl Read + Send, options: &ApplyOptions) -> Result<Applied> {
    let places = Places::open(root, &options.parents)?;
    let ((), total) = pipeline::run(stream, |pieces| {
        let mut archive = Archive::new(pieces);
        let mut layer = Layer {
            places,
            ledger: Ledger::new(options.whiteouts == Whiteouts::Delete),
            whiteouts: options.whiteouts,
            owner: metadata::Creator::current(),
        };
        layer.extract(&mut archive)?;
        archive.drain()?;
        if options.sync {
            rustix::fs::syncfs(layer.places.root()).map_err(|error| Error::io("flush the snapshot", error))?;
        }
        Ok(())
    })?;
    Ok(Applied { diff_id: total.digest, size: total.size })
}

/// A layer while it is extracted.
struct Layer {
    places: Places,
    ledger: Ledger,
    whiteouts: Whiteouts,
    owner: metadata::Creator,
}

impl Layer {
    fn extract<R: std::io::BufRead>(&mut self, archive: &mut Archive<R>) -> Result<()> {
        let mut count = 0;
        while let Some(entry) = archive.next_entry()? {
            count += 1;
            if count > ENTRIES_LIMIT {
                return Err(Error::invalid(format_args!("more than {ENTRIES_LIMIT} entries")));
            }
            self.extract_entry(&entry, archive).map_err(|error| match error {
                Error::Io { doing, source } => {
                    Error::Io { doing: format!("extract {}: {doing}", shown(&entry.path)), source }
                }
                other => other,
            })?;
        }
        self.set_directory_times();
        Ok(())
    }

    fn extract_entry<R: std::io::BufRead>(&mut self, entry: &Entry, archive: &mut Archive<R>) -> Result<()> {
        let path = place::normalize(&entry.path)?;
        // An entry for the root itself changes nothing: the snapshot's root is made by the snapshotter.
        let Some((parent, name)) = place::split(&path) else { return Ok(()) };
        match marker(name) {
            Marker::None => {}
            Marker::Ignore => return Ok(()),
            Marker::Invalid => {
                return Err(Error::invalid(format_args!("{} is no whiteout", shown(&entry.path))));
            }
            Marker::Delete(deleted) => {
                let directory = self.places.directory(parent)?;
                return self.delete(&directory, deleted);
            }
            Marker::Opaque => {
                let directory = self.places.directory(parent)?;
                return self.make_opaque(&directory);
            }
        }
        let directory = self.places.directory(parent)?;
        match &entry.kind {
            Kind::File => self.create_file(&directory, name, entry, archive)?,
            Kind::Directory => self.create_directory(&directory, name, &path, entry)?,
            Kind::Symlink(target) => self.create_symlink(&directory, name, target, entry)?,
            Kind::HardLink(target) => self.create_hard_link(&directory, name, target, entry)?,
            Kind::CharDevice(..) | Kind::BlockDevice(..) | Kind::Fifo => self.create_node(&directory, name, entry)?,
        }
        self.ledger.wrote(directory.path(), name);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
