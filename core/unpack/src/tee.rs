use std::{
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

/// How many pieces (of some 16 to 64 KiB) may wait for the reader.
const DEPTH: usize = 32;

enum Piece {
    Data(Bytes),
    End,
}

/// The writing end. Dropping it without [`finish`](Self::finish) is an error for the reader, not an end.
pub(crate) struct Feed(mpsc::Sender<Piece>);

impl Feed {
    /// Whether the reader took it.
    pub(crate) async fn send(&self, data: Bytes) -> bool {
        self.0.send(Piece::Data(data)).await.is_ok()
    }

    pub(crate) async fn finish(self) {
        // A reader that is gone does not need the end.
        let _ = self.0.send(Piece::End).await;
    }
}

/// The reading end, for a blocking thread.
pub(crate) struct Outlet {
    receiver: mpsc::Receiver<Piece>,
    current: Bytes,
    ended: bool,
    starved: Arc<AtomicBool>,
}

impl Outlet {
    /// Becomes true when the reader was told that no more comes although it was not the end.
    pub(crate) fn starved(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.starved)
    }
}

pub(crate) fn channel() -> (Feed, Outlet) {
    let (sender, receiver) = mpsc::channel(DEPTH);
    (Feed(sender), Outlet { receiver, current: Bytes::new(), ended: false, starved: Arc::default() })
}

impl Read for Outlet {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.ended {
            match self.receiver.blocking_recv() {
                Some(Piece::Data(data)) => self.current = data,
                Some(Piece::End) => self.ended = true,
                None => {
                    self.starved.store(true, Ordering::SeqCst);
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the download was given up"));
                }
            }
        }
        let count = self.current.len().min(buffer.len());
        self.current.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}
