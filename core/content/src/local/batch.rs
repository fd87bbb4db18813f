//! Data on its way to disk: gathered on the async side, hashed and written in one go on a blocking thread.

use std::{
    fs::File,
    io::{self, IoSlice, Write},
};

use bytes::{Bytes, BytesMut};
use core_types::{Digest, Digester, Error, ErrorKind, Result};

/// A batch goes to disk when it has this many bytes.
pub(super) const BATCH_BYTES: usize = 1 << 20;
/// … or this many pieces (the most that `writev` takes).
const BATCH_PIECES: usize = 1024;
/// Pieces below this are copied together, so that a tiny piece does not hold a large receive buffer.
const SMALL_PIECE: usize = 4096;

/// Pieces in order, of which the first `hashed` are in the digest already.
#[derive(Default)]
pub(super) struct Batch {
    pieces: Vec<Bytes>,
    tail: BytesMut,
    len: usize,
    hashed: usize,
}

impl Batch {
    pub(super) fn push(&mut self, data: Bytes) {
        self.len += data.len();
        if data.len() < SMALL_PIECE {
            self.tail.extend_from_slice(&data);
            return;
        }
        self.seal();
        self.pieces.push(data);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.len >= BATCH_BYTES || self.pieces.len() >= BATCH_PIECES - 1
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push(self.tail.split().freeze());
        }
    }

    /// Hashes what is not hashed yet.
    pub(super) fn hash(&mut self, digester: &mut Digester) {
        self.seal();
        for piece in self.pieces.iter().skip(self.hashed) {
            digester.update(piece);
        }
        self.hashed = self.pieces.len();
    }

    fn write_to(&self, mut file: &File) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = self.pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            match file.write_vectored(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The file of an ingest with the digest of what is in it, and the batch that goes in next.
pub(super) struct Sink {
    pub(super) file: File,
    pub(super) digester: Digester,
    pub(super) queue: Batch,
    /// Bytes in the file.
    pub(super) written: u64,
    failure: Option<(ErrorKind, String)>,
}

impl Sink {
    pub(super) fn new(file: File, digester: Digester, written: u64) -> Self {
        Self { file, digester, queue: Batch::default(), written, failure: None }
    }

    /// Hashes and writes the queue. After a failure nothing is written any more.
    pub(super) fn drain(&mut self) {
        let mut batch = std::mem::take(&mut self.queue);
        if self.failure.is_some() || batch.is_empty() {
            return;
        }
        batch.hash(&mut self.digester);
        match batch.write_to(&self.file) {
            Ok(()) => self.written += batch.len as u64,
            Err(error) => {
                let error = Error::io("write ingest", error);
                self.failure = Some((error.kind(), error.message().to_owned()));
            }
        }
    }

    /// What went wrong before, if anything did.
    pub(super) fn check(&self) -> Result<()> {
        match &self.failure {
            Some((kind, message)) => Err(Error::new(*kind, message.clone())),
            None => Ok(()),
        }
    }

    /// The digest with `pending` after what was written; only new data is hashed.
    pub(super) fn digest_with(&mut self, pending: &mut Batch) -> Digest {
        let Self { digester, queue, .. } = self;
        queue.hash(digester);
        pending.hash(digester);
        digester.clone().finish()
    }

    /// Starts anew with an empty file.
    pub(super) fn reset(&mut self, digester: Digester) -> io::Result<()> {
        use std::io::Seek;
        self.queue = Batch::default();
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.digester = digester;
        self.written = 0;
        self.failure = None;
        Ok(())
    }
}
