use std::{
    collections::{BTreeMap, HashSet},
    hash::{BuildHasher, RandomState},
};

use crate::Entry;

/// Times to be set on a directory when nothing is made in it any more.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) mtime: crate::Timestamp,
    pub(super) atime: Option<crate::Timestamp>,
}

/// What the layer itself put where, by the paths that names on disk have, with no symbolic links in them.
pub(super) struct Ledger {
    /// Keyed hashes of paths; none when nobody asks. Two paths of one hash would only keep a file too many.
    written: Option<HashSet<u64>>,
    hasher: RandomState,
    directories: BTreeMap<Vec<u8>, Times>,
}

impl Ledger {
    /// With `remember`, files are remembered too, so that a whiteout spares those of its own layer.
    pub(super) fn new(remember: bool) -> Self {
        Self { written: remember.then(HashSet::new), hasher: RandomState::new(), directories: BTreeMap::new() }
    }

    /// The layer has this, and so has the directories above it.
    pub(super) fn wrote(&mut self, directory: &[u8], name: &[u8]) {
        let Some(written) = &mut self.written else { return };
        let (mut directory, mut name) = (directory, name);
        while written.insert(self.hasher.hash_one((directory, name))) {
            let Some(above) = super::place::split(directory) else { return };
            (directory, name) = above;
        }
    }

    /// Whether the layer has this itself.
    pub(super) fn has_written(&self, directory: &[u8], name: &[u8]) -> bool {
        self.written.as_ref().is_some_and(|written| written.contains(&self.hasher.hash_one((directory, name))))
    }

    pub(super) fn directory(&mut self, path: Vec<u8>, entry: &Entry) {
        self.directories.insert(path, Times { mtime: entry.mtime, atime: entry.atime });
    }

    /// Forgets the directories at `path` and below, which are gone.
    pub(super) fn removed(&mut self, path: &[u8]) {
        self.directories
            .retain(|known, _| known.strip_prefix(path).is_none_or(|rest| !rest.is_empty() && !rest.starts_with(b"/")));
    }

    pub(super) fn take_directories(&mut self) -> BTreeMap<Vec<u8>, Times> {
        std::mem::take(&mut self.directories)
    }
}
