//! The streams of a process in a container: given to a client, or collected.

use std::{convert::Infallible, future::Future, path::Path, pin::pin, time::Duration};

use core_runtime_v2::Io;
use core_types::{Error, Result};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::watch,
};

use crate::{
    attach::{self, AttachStreams},
    fifo::{Ends, Fifos, Output},
};

/// Bytes of output moved at once.
const CHUNK: usize = 64 << 10;

/// The daemon's side of an exec's standard streams. The FIFOs go when it is dropped.
#[derive(Debug)]
pub struct ExecIo {
    ends: Ends,
    fifos: Fifos,
}

/// What a process wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Standard output, up to the limit.
    pub stdout: Vec<u8>,
    /// Standard error, up to the limit.
    pub stderr: Vec<u8>,
    /// Whether there was more than the limit of one of them. The rest was read and dropped.
    pub truncated: bool,
    /// Whether the output had not ended when the time for it ran out: another process holds it.
    pub held: bool,
}

impl ExecIo {
    /// Makes FIFOs named after the exec's id in a directory with that name in `parent`, and opens them.
    ///
    /// # Errors
    /// InvalidArgument for an id that is no file name; what making and opening them says. Nothing is left then.
    pub async fn create(parent: &Path, id: &str, stdin: bool, tty: bool) -> Result<Self> {
        if id.is_empty() || id.starts_with('.') || id.contains(['/', '\0']) {
            return Err(Error::invalid_argument(format!("{id:?} cannot be a file name")));
        }
        let (directory, id) = (parent.join(id), id.to_owned());
        let opened = tokio::task::spawn_blocking(move || {
            let fifos = Fifos::create(&directory, &id, stdin, tty)?;
            Ok::<_, Error>(Self { ends: fifos.open()?, fifos })
        });
        opened.await.map_err(|error| Error::internal(format!("open the streams: {error}")))?
    }

    /// The paths for the shim.
    pub fn streams(&self) -> Io {
        self.fifos.io().clone()
    }

    /// Copies between a client and the process, which has been started, until it has ended (`exited`) and its
    /// output too. Returns what `exited` does, and whether another process still holds the output `drain` after
    /// that; None waits for ever.
    ///
    /// A client that does not read stops the process, as a terminal does; the output for one that has gone is
    /// dropped. When its input ends, the process's input is closed, unless there is a terminal.
    pub async fn attach<T>(
        self,
        streams: AttachStreams,
        exited: impl Future<Output = T>,
        drain: Option<Duration>,
    ) -> (T, bool) {
        let AttachStreams { stdin: input, stdout, stderr, tty: client_tty, close_stdin } = streams;
        let tty = client_tty || self.fifos.io().terminal;
        let Ends { stdin, outputs: [out, err] } = &self.ends;
        let input = async {
            if let Some(mut input) = input.filter(|_| stdin.is_open()) {
                attach::forward(&mut input, stdin).await;
                if !tty {
                    stdin.close();
                    if let Some(close) = close_stdin {
                        close.await;
                    }
                }
            }
            std::future::pending::<Infallible>().await
        };
        let ended = watch::Sender::new(false);
        let outputs = async {
            tokio::join!(
                copy(out.as_ref(), Sink::of(stdout), ended.subscribe()),
                copy(err.as_ref(), Sink::of(stderr.filter(|_| !tty)), ended.subscribe()),
            );
        };
        tokio::select! {
            biased;
            done = until_drained(outputs, exited, &ended, drain) => done,
            never = input => match never {},
        }
    }

    /// Collects up to `limit` bytes of each output until the process has ended (`exited`) and its output too, but
    /// no longer than `drain` after the process; None waits for ever.
    pub async fn collect<T>(
        self,
        limit: usize,
        exited: impl Future<Output = T>,
        drain: Option<Duration>,
    ) -> (T, Collected) {
        let [out, err] = &self.ends.outputs;
        let ended = watch::Sender::new(false);
        let (mut stdout, mut stderr) = (Kept::new(limit), Kept::new(limit));
        let outputs = async {
            tokio::join!(
                copy(out.as_ref(), Sink::Memory(&mut stdout), ended.subscribe()),
                copy(err.as_ref(), Sink::Memory(&mut stderr), ended.subscribe()),
            );
        };
        let (status, held) = until_drained(outputs, exited, &ended, drain).await;
        let truncated = stdout.more || stderr.more;
        (status, Collected { stdout: stdout.bytes, stderr: stderr.bytes, truncated, held })
    }
}

/// Waits for a process and then for its outputs, for a limited time. Whether they are still held is told too.
async fn until_drained<T>(
    outputs: impl Future<Output = ()>,
    exited: impl Future<Output = T>,
    ended: &watch::Sender<bool>,
    drain: Option<Duration>,
) -> (T, bool) {
    let mut outputs = pin!(outputs);
    let mut exited = pin!(exited);
    let status = tokio::select! {
        status = &mut exited => status,
        () = &mut outputs => return (exited.await, false),
    };
    ended.send_replace(true);
    let held = match drain {
        None => {
            outputs.await;
            false
        }
        Some(drain) => tokio::time::timeout(drain, outputs).await.is_err(),
    };
    (status, held)
}

/// Bytes kept up to a limit.
struct Kept {
    bytes: Vec<u8>,
    limit: usize,
    more: bool,
}

impl Kept {
    fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, more: false }
    }

    fn put(&mut self, bytes: &[u8]) {
        let room = self.limit - self.bytes.len();
        self.more |= bytes.len() > room;
        self.bytes.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }
}

enum Sink<'a> {
    Nowhere,
    Memory(&'a mut Kept),
    Client(Box<dyn AsyncWrite + Send + Unpin>),
}

impl Sink<'_> {
    fn of(client: Option<Box<dyn AsyncWrite + Send + Unpin>>) -> Self {
        client.map_or(Self::Nowhere, Self::Client)
    }

    async fn put(&mut self, bytes: &[u8]) {
        match self {
            Self::Nowhere => {}
            Self::Memory(kept) => kept.put(bytes),
            Self::Client(writer) => {
                let written = async {
                    writer.write_all(bytes).await?;
                    writer.flush().await
                };
                if written.await.is_err() {
                    *self = Self::Nowhere;
                }
            }
        }
    }
}

/// Copies an output until it ends.
async fn copy(output: Option<&Output>, mut sink: Sink<'_>, mut process: watch::Receiver<bool>) {
    let Some(output) = output else { return };
    let mut buffer = Vec::new();
    let mut told = false;
    loop {
        // The end of the process is one more reason to look: an output that it never opened has no other.
        tokio::select! {
            ready = output.ready() => if ready.is_err() { break },
            _ = process.wait_for(|ended| *ended), if !told => told = true,
        }
        buffer.resize(CHUNK, 0);
        loop {
            match output.read(&mut buffer) {
                Ok(None) => break,
                Ok(Some(count @ 1..)) => sink.put(buffer.get(..count).unwrap_or_default()).await,
                Ok(Some(0)) | Err(_) => {
                    if let Sink::Client(writer) = &mut sink {
                        // One that has gone needs no end.
                        let _ = writer.shutdown().await;
                    }
                    return;
                }
            }
            tokio::task::coop::consume_budget().await;
        }
    }
}

#[cfg(test)]
#[path = "exec/tests.rs"]
mod tests;
