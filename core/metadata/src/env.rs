//! The LMDB environment: opening it, growing it, and keeping its file longer than its data.
//!
//! The only unsafe code of this crate is here: LMDB maps a file and cannot check what others do to it.
#![allow(unsafe_code)]

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
};

use core_types::{Error, Result, ResultExt};
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, WithoutTls, types::Bytes};

use crate::error::from_heed;

/// The one table; kinds and namespaces are told apart by the beginning of the key.
pub(crate) type Table = Database<'static, Bytes, Bytes>;

/// Size of the memory map at first: address space, not memory or disk.
const MAP_SIZE: usize = 16 << 30;
/// By how much the map grows when it is full.
const MAP_STEP: usize = 16 << 30;
/// Read transactions at once.
const READERS: u32 = 2048;
/// The file is made longer when it has less than this beyond its data.
const SPARE_LOW: u64 = 1 << 20;
/// By how much it is made longer. Written, not only reserved: a sync of pages within the file need not touch the file
/// system's journal, which makes each commit cheaper.
const SPARE_STEP: u64 = 4 << 20;

/// An open environment.
pub(crate) struct Environment {
    pub(crate) env: Env<WithoutTls>,
    pub(crate) table: Table,
    file: File,
}

/// Opens the environment in the directory `path`, making both when needed.
pub(crate) fn open(path: &Path, map_size: Option<usize>) -> Result<Environment> {
    let doing = || format!("open metadata database {}", path.display());
    fs::create_dir_all(path).doing(doing())?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).doing(doing())?;
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(map_size.unwrap_or(MAP_SIZE)).max_readers(READERS).max_dbs(8);
    // SAFETY: the directory is the daemon's own and private to its user; one daemon at a time opens it (it holds a
    // lock on its root), and nothing but LMDB writes its pages: `extend` only writes beyond the end of the file.
    // NO_META_SYNC keeps the data whole after a crash; the writer syncs once more where a commit must be durable.
    let env = unsafe { options.flags(EnvFlags::NO_META_SYNC | EnvFlags::NO_READ_AHEAD).open(path) };
    let env = env.map_err(from_heed).doing(doing())?;
    env.clear_stale_readers().map_err(from_heed).doing(doing())?;
    let transaction = env.write_txn().map_err(from_heed).doing(doing())?;
    let opened = env.create_databases_and_commit(transaction, |opener, transaction| {
        opener.create_database::<Bytes, Bytes>(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
    });
    let table = opened.map_err(from_heed).doing(doing())?.commit().ok_or_else(|| Error::internal("no table"))?;
    let file = env.try_clone_inner_file().map_err(from_heed).doing(doing())?;
    Ok(Environment { env, table, file })
}

impl Environment {
    /// Makes the map larger. No transaction may be open: the caller holds the gate.
    pub(crate) fn grow(&self) -> Result<usize> {
        let size = self.env.info().map_size.saturating_add(MAP_STEP);
        // SAFETY: every transaction of this process is begun under the store's gate for sharing, and the caller holds
        // it alone, so none is open.
        unsafe { self.env.resize(size) }.map_err(from_heed).doing("grow the map of the metadata database")?;
        Ok(size)
    }

    /// Makes the file longer when its data comes near to its end. Only the writer calls it, between transactions.
    pub(crate) fn extend(&self) -> io::Result<()> {
        static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
        let used = (self.env.info().last_page_number as u64 + 1) * 4096;
        let mut length = self.file.metadata()?.len();
        if length >= used + SPARE_LOW {
            return Ok(());
        }
        let end = length.max(used) + SPARE_STEP;
        while length < end {
            let piece = (end - length).min(ZEROS.len() as u64);
            self.file.write_all_at(&ZEROS[..usize::try_from(piece).unwrap_or(0)], length)?;
            length += piece;
        }
        self.file.sync_all()
    }
}
