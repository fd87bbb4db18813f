//! The LMDB environment: opening it, growing it, and keeping its file longer than its data.
//!
//! The only unsafe code of this crate is here: LMDB maps a file and cannot check what others do to it.
#![allow(unsafe_code)]

use std::{
    fs::{self, File, OpenOptions},
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
/// LMDB has two root pages, at the beginning of the file, and writes them in turn.
const ROOTS: usize = 2;
/// By how much the map grows when it is full.
const MAP_STEP: usize = 16 << 30;
/// Read transactions at once.
const READERS: u32 = 2048;
/// Disk that is kept for the file beyond its last page, in bytes: on a full disk, removals can still be recorded.
const RESERVE: u64 = 1 << 20;

/// An open environment.
pub(crate) struct Environment {
    pub(crate) env: Env<WithoutTls>,
    pub(crate) table: Table,
    file: File,
}

/// Makes the directory of a database, for its user alone.
pub(crate) fn make_directory(path: &Path) -> Result<()> {
    let doing = || format!("make metadata directory {}", path.display());
    fs::create_dir_all(path).doing(doing())?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).doing(doing())
}

/// Opens the environment in the directory `path`, making it when needed.
pub(crate) fn open(path: &Path, map_size: Option<usize>) -> Result<Environment> {
    let doing = || format!("open metadata database {}", path.display());
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(map_size.unwrap_or(MAP_SIZE)).max_readers(READERS).max_dbs(8);
    // SAFETY: the directory is the daemon's own and private to its user; one daemon at a time opens it (it holds a
    // lock on its root), and nothing but LMDB writes its pages while it is open.
    // NO_SYNC would let a crash of the machine damage it; the journal is there to mend that.
    let env = unsafe { options.flags(EnvFlags::NO_SYNC | EnvFlags::NO_READ_AHEAD).open(path) };
    let env = env.map_err(from_heed).doing(doing())?;
    env.clear_stale_readers().map_err(from_heed).doing(doing())?;
    let transaction = env.write_txn().map_err(from_heed).doing(doing())?;
    let opened = env.create_databases_and_commit(transaction, |opener, transaction| {
        opener.create_database::<Bytes, Bytes>(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
    });
    let table = opened.map_err(from_heed).doing(doing())?.commit().ok_or_else(|| Error::internal("no table"))?;
    let file = env.try_clone_inner_file().map_err(from_heed).doing(doing())?;
    // LMDB opens its data so that programs which are run later would inherit it.
    let data = path.join("data.mdb");
    core_sys::close_on_exec_of_file(&data)
        .map_err(|error| Error::io(format_args!("close {} on exec", data.display()), error))?;
    let environment = Environment { env, table, file };
    environment.reserve();
    Ok(environment)
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

    /// Takes disk beyond the last page in use. Without any left it goes on with what it has.
    fn reserve(&self) {
        let page = u64::from(self.env.unnamed_database_stat().page_size);
        let used = (self.env.info().last_page_number as u64 + 1) * page;
        let there = self.file.metadata().map_or(0, |file| file.len());
        if there >= used + RESERVE / 2 {
            return;
        }
        if let Err(error) = rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), used, RESERVE) {
            tracing::debug!(%error, "no disk can be reserved for the metadata database");
        }
    }

    /// Syncs the file and copies the pages that say where everything is. Only the writer calls it, between transactions.
    pub(crate) fn synced_roots(&self) -> Result<Vec<u8>> {
        self.reserve();
        self.env.force_sync().map_err(from_heed)?;
        let page = usize::try_from(self.env.unnamed_database_stat().page_size).unwrap_or(4096);
        let mut roots = vec![0; ROOTS * page];
        self.file.read_exact_at(&mut roots, 0).doing("read the roots of the metadata database")?;
        Ok(roots)
    }
}

/// Puts the root pages back into the file of an environment that is not open.
pub(crate) fn restore_roots(path: &Path, roots: &[u8]) -> Result<()> {
    let path = path.join("data.mdb");
    let doing = || format!("recover {}", path.display());
    let file = OpenOptions::new().write(true).open(&path).doing(doing())?;
    file.write_all_at(roots, 0).doing(doing())?;
    file.sync_data().doing(doing())
}
