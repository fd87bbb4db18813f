use std::{
    fs::{DirBuilder, File},
    os::unix::fs::{DirBuilderExt, FileExt},
    path::Path,
};

use core_types::{Error, ErrorKind, Result, ResultExt};
use heed::{
    CommitOrAbort, Database, Env, EnvOpenOptions, MdbError, RwTxn, WithoutTls,
    byteorder::BE,
    types::{Bytes, U64},
};

use crate::record::Record;

/// Address space for the database; the file only grows as records do.
const MAP_SIZE: usize = 1 << 30;

/// The file is made longer when it has less than this beyond its data.
const SPARE_LOW: u64 = 64 << 10;
/// By how much it is made longer. Written, not only reserved: then a sync of pages within the file need not touch
/// the file system's journal, which halves the time of a commit.
const SPARE_STEP: usize = 512 << 10;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// Records by id, durable when a call returns.
pub(crate) struct Committed {
    env: Env<WithoutTls>,
    records: Database<'static, U64<BE>, Bytes>,
    file: File,
}

fn failed(error: heed::Error) -> Error {
    let kind = match &error {
        heed::Error::Io(io) => Error::from(std::io::Error::from(io.kind())).kind(),
        heed::Error::Mdb(MdbError::MapFull) => ErrorKind::ResourceExhausted,
        heed::Error::Mdb(MdbError::Corrupted | MdbError::PageNotFound | MdbError::Invalid) => ErrorKind::DataLoss,
        _ => ErrorKind::Internal,
    };
    Error::new(kind, error.to_string())
}

impl Committed {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(MAP_SIZE).max_readers(8);
        #[allow(unsafe_code)]
        // SAFETY: the file is mapped, so nobody else may change it in place. It lies in a directory of mode 0700
        // that belongs to this snapshotter, a root of which only one daemon opens at a time, and LMDB itself
        // locks it against a second writer; no flag that weakens its guarantees is set.
        let env = unsafe { options.open(path) }.map_err(failed)?;
        let transaction = env.write_txn().map_err(failed)?;
        let opened = env.create_databases_and_commit(transaction, |opener, transaction| {
            opener.create_database::<U64<BE>, Bytes>(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
        });
        let records = opened.map_err(failed)?.commit().ok_or_else(|| Error::internal("no table of snapshots"))?;
        let file = env.try_clone_inner_file().map_err(failed)?;
        let committed = Self { env, records, file };
        committed.extend(&committed.env.write_txn().map_err(failed)?)?;
        Ok(committed)
    }

    /// Keeps the file longer than its data. The transaction is the proof that nobody else writes.
    fn extend(&self, _writing: &RwTxn<'_>) -> Result<()> {
        let used = (self.env.info().last_page_number as u64 + 1) * PAGE;
        let length = self.file.metadata()?.len();
        if length < used + SPARE_LOW {
            self.file.write_all_at(&vec![0; SPARE_STEP], length.max(used))?;
            self.file.sync_all()?;
        }
        Ok(())
    }

    pub(crate) fn load(&self) -> Result<Vec<Record>> {
        let transaction = self.env.read_txn().map_err(failed)?;
        let mut records = Vec::new();
        for entry in self.records.iter(&transaction).map_err(failed)? {
            let (id, bytes) = entry.map_err(failed)?;
            let record = serde_json::from_slice(bytes)
                .map_err(|error| Error::data_loss(format!("record of snapshot {id}: {error}")))?;
            records.push(record);
        }
        Ok(records)
    }

    pub(crate) fn put(&self, record: &Record) -> Result<()> {
        let bytes = serde_json::to_vec(record).map_err(|error| Error::internal(error.to_string()))?;
        let write = || {
            let mut transaction = self.env.write_txn()?;
            // A disk too full for this says so in the commit.
            let _ = self.extend(&transaction);
            self.records.put(&mut transaction, &record.id, &bytes)?;
            transaction.commit()
        };
        write().map_err(failed).doing(format_args!("store snapshot {}", record.name))
    }

    pub(crate) fn delete(&self, record: &Record) -> Result<()> {
        let write = || {
            let mut transaction = self.env.write_txn()?;
            self.records.delete(&mut transaction, &record.id)?;
            transaction.commit()
        };
        write().map_err(failed).doing(format_args!("forget snapshot {}", record.name))
    }
}
