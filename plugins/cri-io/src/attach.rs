//! Clients: their streams, and what copies between them and a process.

use std::{fmt, io, sync::Arc, time::Duration};

use core_types::{Error, Result};
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{
    fifo::Stdin,
    hub::{Hub, Member, Receiver},
};

/// Bytes of an output that may wait for an attached client. One that falls further behind is disconnected.
pub const ATTACH_BACKLOG: usize = 4 << 20;

/// How long a client that leaves may take to read what waits for it.
const LINGER: Duration = Duration::from_secs(10);
/// Bytes of input moved at once.
const INPUT: usize = 32 << 10;

/// The streams of a client.
#[derive(Default)]
pub struct AttachStreams {
    /// What the client types. Its end closes the process's input if the container's `stdin_once` says so.
    pub stdin: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Takes standard output.
    pub stdout: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Takes standard error; unused with a terminal.
    pub stderr: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Whether the client uses a terminal.
    pub tty: bool,
    /// Run once when the process's input is to be closed: it must tell the task (`close_io`), since the shim keeps
    /// an end of the FIFO open. This crate has closed its own end by then.
    pub close_stdin: Option<BoxFuture<'static, ()>>,
}

impl fmt::Debug for AttachStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttachStreams")
            .field("stdin", &self.stdin.is_some())
            .field("stdout", &self.stdout.is_some())
            .field("stderr", &self.stderr.is_some())
            .field("tty", &self.tty)
            .finish_non_exhaustive()
    }
}

/// Copies between a client and a container until the output ends or the client goes.
pub(crate) async fn attach(
    hub: &Arc<Hub>,
    stdin: &Stdin,
    streams: AttachStreams,
    stdin_once: bool,
    tty: bool,
) -> Result<()> {
    let AttachStreams { stdin: input, stdout, stderr, tty: client_tty, close_stdin } = streams;
    let tty = tty || client_tty;
    let outputs = [stdout, stderr.filter(|_| !tty)];
    let mut member = hub.join([outputs[0].is_some(), outputs[1].is_some()], ATTACH_BACKLOG);
    let receivers = std::mem::take(&mut member.outputs);
    let output = copy_outputs(hub, &member, receivers, outputs);
    let input = async {
        let Some(mut input) = input.filter(|_| stdin.is_open()) else { return std::future::pending().await };
        forward(&mut input, stdin).await;
        if stdin_once && !tty {
            stdin.close();
            if let Some(close) = close_stdin {
                close.await;
            }
            std::future::pending().await
        }
    };
    tokio::pin!(output);
    tokio::select! {
        ended = &mut output => return ended,
        () = input => member.leave(),
    }
    // What waits is still the client's; without outputs there is nothing to wait for.
    match tokio::time::timeout(LINGER, output).await {
        Ok(ended) => ended,
        Err(_) => Ok(()),
    }
}

async fn copy_outputs(
    hub: &Hub,
    member: &Member,
    receivers: [Option<Receiver>; 2],
    writers: [Option<Box<dyn AsyncWrite + Send + Unpin>>; 2],
) -> Result<()> {
    let [out, err] = receivers;
    let [to_out, to_err] = writers;
    if out.is_none() && err.is_none() {
        // An input alone lasts as long as the process has outputs, or until it ends.
        tokio::select! {
            () = hub.ended() => {}
            () = member.left() => {}
        }
        return Ok(());
    }
    let copied = async { tokio::try_join!(copy_output(out, to_out), copy_output(err, to_err)) };
    tokio::select! {
        biased;
        () = member.behind.notified() => Err(Error::resource_exhausted(format!(
            "the attached client reads too slowly: more than {} MiB of output wait for it",
            ATTACH_BACKLOG >> 20
        ))),
        // A client that cannot be written to has gone, which is no failure.
        _ = copied => Ok(()),
    }
}

async fn copy_output(receiver: Option<Receiver>, writer: Option<Box<dyn AsyncWrite + Send + Unpin>>) -> io::Result<()> {
    let (Some(mut receiver), Some(mut writer)) = (receiver, writer) else { return Ok(()) };
    while let Some(bytes) = receiver.next().await {
        writer.write_all(&bytes).await?;
        if receiver.is_empty() {
            writer.flush().await?;
        }
    }
    writer.shutdown().await
}

/// Copies input until it ends, or until the process's input is closed.
pub(crate) async fn forward(input: &mut (dyn AsyncRead + Send + Unpin), stdin: &Stdin) {
    let mut buffer = vec![0; INPUT];
    // A client whose connection breaks is one that has ended.
    while let Ok(count @ 1..) = input.read(&mut buffer).await {
        if let Err(error) = stdin.write_all(buffer.get(..count).unwrap_or_default()).await {
            if error.kind() != io::ErrorKind::BrokenPipe {
                tracing::warn!(%error, "standard input of a container cannot be written");
            }
            return;
        }
    }
}
