//! The journal: what makes a commit durable with one sync.
//!
//! LMDB needs two syncs for a commit, its pages and then the page that points to them. Here it does none: a commit
//! writes its changes to the journal, and one sync of the journal makes them durable. A *checkpoint* syncs LMDB's
//! file, copies LMDB's two root pages into the header of the other of two journal files, and begins that one.
//!
//! After a crash the pages written since the checkpoint may be there or not. Those of the checkpoint are: the writer
//! keeps a read transaction open on it, so LMDB overwrites none of them. Opening puts the copied root pages back, which
//! makes the file what it was at the checkpoint, and applies the journal's records again, up to the first that is not
//! whole.

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::FileExt,
    path::Path,
};

use core_types::Digest;

/// Length of each of the two files; fixed, so that a sync need not touch the file system's own records.
const LENGTH: u64 = 4 << 20;
/// What a file begins with.
const MAGIC: &[u8; 8] = b"MDJRNL01";
const NAMES: [&str; 2] = ["journal.0", "journal.1"];
/// Before the payload of a record: its length, and the beginning of a digest over generation and payload.
const RECORD_HEAD: usize = 4 + 16;
/// Before the root pages in the header: magic, generation, length of the pages.
const HEADER_HEAD: usize = 8 + 8 + 4;
const SUM: usize = 64;

/// The open journal.
pub(crate) struct Journal {
    files: [File; 2],
    current: usize,
    generation: u64,
    offset: u64,
    unsynced: bool,
    /// How often the disk was waited for.
    pub(crate) syncs: u64,
    /// A record could not be written: only a checkpoint makes the records after it durable.
    pub(crate) broken: bool,
}

/// What a crash left to be done.
pub(crate) struct Recovery {
    /// LMDB's root pages at the checkpoint.
    pub(crate) roots: Vec<u8>,
    /// The changes since, in order.
    pub(crate) changes: Vec<Vec<u8>>,
}

fn sum(generation: u64, payload: &[u8]) -> String {
    let mut digester = core_types::Algorithm::Sha256.digester();
    digester.update(&generation.to_le_bytes());
    digester.update(payload);
    digester.finish().hex().to_owned()
}

/// Where records begin behind root pages of this length.
fn start(roots: usize) -> u64 {
    ((HEADER_HEAD + roots + SUM) as u64).next_multiple_of(4096)
}

fn read_at(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Generation and root pages of a file; none when its header is not whole.
fn header(file: &File) -> io::Result<Option<(u64, Vec<u8>)>> {
    let head = read_at(file, 0, HEADER_HEAD)?;
    let length = number(&head[16..20]);
    if &head[..8] != MAGIC || length > LENGTH / 4 {
        return Ok(None);
    }
    let length = usize::try_from(length).unwrap_or_default();
    let all = read_at(file, 0, HEADER_HEAD + length + SUM)?;
    let (body, sum) = all.split_at(HEADER_HEAD + length);
    if Digest::of(body).hex().as_bytes() != sum {
        return Ok(None);
    }
    Ok(Some((number(&head[8..16]), body[HEADER_HEAD..].to_vec())))
}

/// The records of a generation, and where the next one goes.
fn records(file: &File, generation: u64, start: u64) -> io::Result<(Vec<Vec<u8>>, u64)> {
    let bytes = read_at(file, start, usize::try_from(LENGTH - start).unwrap_or_default())?;
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(head) = bytes.get(at..at + RECORD_HEAD) {
        let length = usize::try_from(number(&head[..4])).unwrap_or(usize::MAX);
        let payload = bytes.get(at + RECORD_HEAD..).and_then(|rest| rest.get(..length));
        match payload {
            Some(payload) if length > 0 && sum(generation, payload).as_bytes()[..16] == head[4..] => {
                found.push(payload.to_vec());
                at += RECORD_HEAD + length;
            }
            _ => break,
        }
    }
    Ok((found, start + at as u64))
}

fn open_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    let length = file.metadata()?.len();
    if length < LENGTH {
        let zeros = vec![0; usize::try_from(LENGTH - length).unwrap_or_default()];
        file.write_all_at(&zeros, length)?;
        file.sync_all()?;
    }
    Ok(file)
}

impl Journal {
    /// Opens the journal in a directory, and says what has to be recovered before anything is written.
    pub(crate) fn open(directory: &Path) -> io::Result<(Self, Option<Recovery>)> {
        let files = [open_file(&directory.join(NAMES[0]))?, open_file(&directory.join(NAMES[1]))?];
        // Recovery under somebody who has the database open would destroy it.
        files[0].try_lock().map_err(|_| io::Error::new(ErrorKind::ResourceBusy, "it is open already"))?;
        File::open(directory)?.sync_all()?;
        let headers = [header(&files[0])?, header(&files[1])?];
        let age = |at: usize| headers[at].as_ref().map(|(generation, _)| *generation);
        let current = usize::from(age(1) > age(0));
        let mut journal = Self { files, current, generation: 0, offset: 0, unsynced: false, syncs: 0, broken: true };
        let [first, second] = headers;
        let Some((generation, roots)) = (if current == 0 { first } else { second }) else {
            return Ok((journal, None));
        };
        journal.generation = generation;
        let (changes, offset) = records(&journal.files[current], generation, start(roots.len()))?;
        journal.offset = offset;
        let recovery = (!changes.is_empty()).then_some(Recovery { roots, changes });
        Ok((journal, recovery))
    }

    /// Writes the changes of a commit; not synced. An error when they do not fit: a checkpoint is due then.
    pub(crate) fn append(&mut self, changes: &[u8]) -> io::Result<()> {
        let mut record = Vec::with_capacity(RECORD_HEAD + changes.len());
        let length = u32::try_from(changes.len()).map_err(|_| ErrorKind::FileTooLarge)?;
        record.extend_from_slice(&length.to_le_bytes());
        record.extend_from_slice(&sum(self.generation, changes).as_bytes()[..16]);
        record.extend_from_slice(changes);
        if self.broken || self.offset + record.len() as u64 > LENGTH {
            self.broken = true;
            return Err(ErrorKind::StorageFull.into());
        }
        if let Err(error) = self.files[self.current].write_all_at(&record, self.offset) {
            self.broken = true;
            return Err(error);
        }
        self.offset += record.len() as u64;
        self.unsynced = true;
        Ok(())
    }

    /// Makes what was written durable.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if self.unsynced {
            // After a failed sync the kernel may have dropped the data: only a checkpoint helps.
            self.files[self.current].sync_data().inspect_err(|_| self.broken = true)?;
            self.unsynced = false;
            self.syncs += 1;
        }
        Ok(())
    }

    /// Begins the other file. `roots` are LMDB's root pages, synced with all that they refer to.
    pub(crate) fn begin(&mut self, roots: &[u8]) -> io::Result<()> {
        let other = 1 - self.current;
        let generation = self.generation + 1;
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&generation.to_le_bytes());
        head.extend_from_slice(&u32::try_from(roots.len()).map_err(|_| ErrorKind::InvalidInput)?.to_le_bytes());
        head.extend_from_slice(roots);
        let digest = Digest::of(&head);
        head.extend_from_slice(digest.hex().as_bytes());
        self.files[other].write_all_at(&head, 0)?;
        self.files[other].sync_data()?;
        (self.current, self.generation, self.offset) = (other, generation, start(roots.len()));
        (self.unsynced, self.broken) = (false, false);
        // That of LMDB's file, and that of the header.
        self.syncs += 2;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_until_the_first_that_is_not_whole() {
        let directory = tempfile::tempdir().unwrap();
        let (mut journal, recovery) = Journal::open(directory.path()).unwrap();
        assert!(recovery.is_none());
        assert!(journal.append(b"early").is_err(), "not before the first checkpoint");
        journal.begin(&[7; 8192]).unwrap();
        for record in [&b"one"[..], b"two", b"three"] {
            journal.append(record).unwrap();
        }
        journal.sync().unwrap();
        let end = journal.offset;
        assert!(Journal::open(directory.path()).is_err(), "one at a time");
        journal.files[0].unlock().unwrap();
        let (_, recovery) = Journal::open(directory.path()).unwrap();
        let recovery = recovery.unwrap();
        assert_eq!((recovery.roots, recovery.changes.len()), (vec![7; 8192], 3));
        journal.files[journal.current].write_all_at(b"X", end - 2).unwrap();
        let (_, recovery) = Journal::open(directory.path()).unwrap();
        assert_eq!(recovery.unwrap().changes, [b"one".to_vec(), b"two".to_vec()]);
    }

    #[test]
    fn a_new_generation_does_not_read_the_records_of_an_old_one() {
        let directory = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(directory.path()).unwrap();
        for round in 0..3 {
            journal.begin(&[round; 8192]).unwrap();
            journal.append(b"same length").unwrap();
        }
        journal.begin(&[9; 8192]).unwrap();
        journal.files[0].unlock().unwrap();
        let (reopened, recovery) = Journal::open(directory.path()).unwrap();
        assert!(recovery.is_none());
        assert_eq!(reopened.generation, 4);
        drop(reopened);
        // A header that was cut off leaves the generation before.
        journal.append(b"kept").unwrap();
        journal.files[1 - journal.current].write_all_at(b"MDJRNL01\xff\xff", 0).unwrap();
        let (_, recovery) = Journal::open(directory.path()).unwrap();
        assert_eq!(recovery.unwrap().changes, [b"kept".to_vec()]);
    }
}
