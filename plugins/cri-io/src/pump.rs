//! What moves output from a FIFO to the log and to the clients.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use tokio::sync::{Semaphore, watch};

use crate::{
    fifo::Output,
    format::{Lines, Stream},
    hub::Hub,
    log::Log,
};

/// Bytes read at once.
const CHUNK: usize = 64 << 10;
/// Bytes moved before others get a turn.
const TURN: usize = 16 << 20;
/// Buffers kept for later.
const SPARE_BUFFERS: usize = 2;
/// Largest buffer of lines kept for later.
const SPARE_LINES: usize = 512 << 10;

/// Turns taken at the same time in the whole process. More than processors, since a turn may wait for a disk; far
/// fewer than the threads of the blocking pool, which others need too.
static TURNS: Semaphore = Semaphore::const_new(64);
static BUFFERS: Mutex<Vec<Buffers>> = Mutex::new(Vec::new());

struct Buffers {
    input: Vec<u8>,
    lines: Vec<u8>,
}

impl Buffers {
    fn take() -> Self {
        let spare = BUFFERS.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| Self { input: vec![0; CHUNK], lines: Vec::new() })
    }

    fn give_back(self) {
        let mut spare = BUFFERS.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_BUFFERS && self.lines.capacity() <= SPARE_LINES {
            spare.push(self);
        }
    }
}

/// What the owner of a pump wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Output is moved until it ends.
    Running,
    /// The process has ended: an output without a writer has ended too, even if none was ever seen.
    Ended,
    /// Nothing more is to be read.
    Stop,
}

enum Turn {
    Idle,
    More,
    End,
}

/// Moves one output.
pub(crate) struct Pump {
    output: Output,
    stream: Stream,
    lines: Lines,
    log: Arc<Log>,
    hub: Arc<Hub>,
    phase: watch::Receiver<Phase>,
}

impl Drop for Pump {
    fn drop(&mut self) {
        // The daemon goes: what has been read must not be lost. The rest of the line will follow in the log.
        self.finish(&mut Vec::new());
    }
}

impl Pump {
    pub(crate) fn new(
        output: Output,
        lines: Lines,
        stream: Stream,
        log: Arc<Log>,
        hub: Arc<Hub>,
        phase: watch::Receiver<Phase>,
    ) -> Self {
        Self { output, stream, lines, log, hub, phase }
    }

    /// Moves everything until the output ends or the owner says so.
    pub(crate) async fn run(mut self) {
        let (hub, stream) = (self.hub.clone(), self.stream);
        let mut phase = self.phase.clone();
        // A pump of a daemon that has come back finds output that was there before.
        let mut more = true;
        loop {
            if !more {
                let ready = tokio::select! {
                    ready = self.output.ready() => ready.is_ok(),
                    changed = phase.changed() => changed.is_ok(),
                };
                if !ready {
                    return;
                }
            }
            let Ok(permit) = TURNS.acquire().await else { return };
            let first = more && *phase.borrow_and_update() == Phase::Running;
            let turn = tokio::task::spawn_blocking(move || {
                let turn = self.turn(first);
                drop(permit);
                (self, turn)
            });
            let Ok((pump, turn)) = turn.await else { return };
            self = pump;
            more = match turn {
                Turn::Idle => false,
                Turn::More => true,
                Turn::End => break,
            };
        }
        drop(self);
        hub.end(stream);
    }

    fn stopped(&self) -> bool {
        *self.phase.borrow() == Phase::Stop || self.phase.has_changed().is_err()
    }

    /// Moves what is there. Called without having been told that something is there (`unasked`), no writer does not
    /// mean the end: the process may not have been started.
    fn turn(&mut self, unasked: bool) -> Turn {
        let mut buffers = Buffers::take();
        let mut moved = 0;
        let turn = loop {
            if self.stopped() {
                break Turn::End;
            }
            match self.output.read(&mut buffers.input) {
                Ok(None) => break Turn::Idle,
                Ok(Some(0)) if unasked && moved == 0 => break Turn::Idle,
                Ok(Some(0)) => break self.end(&mut buffers.lines),
                Ok(Some(count)) => {
                    self.put(buffers.input.get(..count).unwrap_or_default(), &mut buffers.lines);
                    moved += count;
                }
                Err(error) => {
                    tracing::warn!(stream = self.stream.name(), %error, "output of a container cannot be read");
                    break self.end(&mut buffers.lines);
                }
            }
            if moved >= TURN {
                break Turn::More;
            }
        };
        buffers.give_back();
        turn
    }

    fn put(&mut self, bytes: &[u8], lines: &mut Vec<u8>) {
        if self.log.is_open() {
            lines.clear();
            self.lines.feed(bytes, SystemTime::now(), lines);
            self.log.write(lines);
        }
        self.hub.send(self.stream, bytes);
    }

    fn end(&mut self, lines: &mut Vec<u8>) -> Turn {
        self.finish(lines);
        Turn::End
    }

    fn finish(&mut self, lines: &mut Vec<u8>) {
        if self.lines.has_begun() {
            lines.clear();
            self.lines.finish(SystemTime::now(), lines);
            self.log.write(lines);
        }
    }
}
