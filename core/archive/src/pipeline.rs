use std::{
    io::{self, BufRead, Read},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use core_types::{Algorithm, Digest};

use crate::{
    Error, Result,
    decompress::{Decoder, read_full},
};

/// Bytes in one piece that goes from thread to thread.
const PIECE: usize = 256 << 10;
/// Pieces between two threads.
const DEPTH: usize = 6;

/// What is known of a stream when all of it went through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Total {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

type Piece = io::Result<Vec<u8>>;

/// Decompresses `stream` on one thread, hashes what comes out on a second, and calls `work` with it on this one,
/// all at the same time. `work` must read to the end for the total to be right.
///
/// The threads end when the stream ends, or at its next piece when `work` returns early.
pub(crate) fn run<T>(stream: impl Read + Send, work: impl FnOnce(&mut Pieces) -> Result<T>) -> Result<(T, Total)> {
    thread::scope(|scope| {
        let (inflated, to_hash) = sync_channel::<Piece>(DEPTH);
        let (hashed, to_work) = sync_channel::<Piece>(DEPTH);
        let (used, free) = sync_channel::<Vec<u8>>(2 * DEPTH + 2);
        let failed = |error| Error::io("start a thread", error);
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        named("layer-inflate").spawn_scoped(scope, move || inflate(stream, &inflated, &free)).map_err(failed)?;
        let hasher = named("layer-hash").spawn_scoped(scope, move || hash(&to_hash, &hashed)).map_err(failed)?;
        let mut pieces = Pieces { from: to_work, used, current: Vec::new(), at: 0, ended: false };
        let result = work(&mut pieces);
        drop(pieces);
        let total = hasher.join().ok();
        let value = result?;
        total.map(|total| (value, total)).ok_or_else(|| Error::io("hash layer", io::Error::other("its thread died")))
    })
}

fn inflate(stream: impl Read, out: &SyncSender<Piece>, free: &Receiver<Vec<u8>>) {
    let mut decoder = match Decoder::new(stream) {
        Ok(decoder) => decoder,
        Err(error) => {
            let _ = out.send(Err(io::Error::other(error)));
            return;
        }
    };
    loop {
        let mut piece = free.try_recv().unwrap_or_default();
        piece.resize(PIECE, 0);
        let piece = match read_full(&mut decoder, &mut piece) {
            Ok(0) => return,
            Ok(count) => {
                piece.truncate(count);
                Ok(piece)
            }
            Err(error) => Err(error),
        };
        let failed = piece.is_err();
        if out.send(piece).is_err() || failed {
            return;
        }
    }
}

fn hash(from: &Receiver<Piece>, out: &SyncSender<Piece>) -> Total {
    let mut digester = Algorithm::Sha256.digester();
    let mut size = 0;
    for piece in from {
        if let Ok(data) = &piece {
            digester.update(data);
            size += data.len() as u64;
        }
        if out.send(piece).is_err() {
            break;
        }
    }
    Total { digest: digester.finish(), size }
}

/// The uncompressed stream.
pub(crate) struct Pieces {
    from: Receiver<Piece>,
    used: SyncSender<Vec<u8>>,
    current: Vec<u8>,
    at: usize,
    ended: bool,
}

impl BufRead for Pieces {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.current.len() && !self.ended {
            let last = std::mem::take(&mut self.current);
            self.at = 0;
            if last.capacity() >= PIECE {
                let _ = self.used.try_send(last);
            }
            match self.from.recv() {
                Ok(piece) => self.current = piece.inspect_err(|_| self.ended = true)?,
                Err(_) => self.ended = true,
            }
        }
        Ok(&self.current[self.at..])
    }

    fn consume(&mut self, count: usize) {
        self.at = self.current.len().min(self.at + count);
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_is_hashed_and_seen() {
        let data: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let (seen, total) = run(&data[..], |pieces| {
            let mut seen = Vec::new();
            pieces.read_to_end(&mut seen).unwrap();
            Ok(seen)
        })
        .unwrap();
        assert_eq!(total, Total { digest: Digest::of(&data), size: data.len() as u64 });
        assert!(seen == data);
    }

    #[test]
    fn leaving_early_ends_the_threads() {
        let endless = io::repeat(7);
        let error = run(endless, |_| Err::<(), _>(Error::invalid("enough"))).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)));
    }
}
