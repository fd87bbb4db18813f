//! Interactive streams: what the streaming server asks for.

use std::{
    io,
    path::Path,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use async_trait::async_trait;
use containerd_api_cri::v1 as cri_v1;
use core_runtime_v2::Task;
use core_types::{Error, Result};
use plugin_cri_io::AttachStreams;
use plugin_cri_streaming::{
    AttachRequest, Duplex, ExecRequest, PortForwardRequest, Runtime, Server, Streams, TerminalSize,
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, sync::mpsc};

use crate::{
    cri::Cri,
    exec::{self, Execution},
    netns,
};

/// How long the process behind a forwarded port may take to accept.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a client may send on after the process behind a forwarded port has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where streams are reached.
pub(crate) struct StreamUrls(pub(crate) Arc<Server>);

impl StreamUrls {
    /// Exec: the URL for a command.
    ///
    /// # Errors
    /// NotFound, FailedPrecondition for a container that does not run, InvalidArgument, ResourceExhausted.
    pub(crate) fn exec(&self, cri: &Cri, request: cri_v1::ExecRequest) -> Result<String> {
        let container = exec::running(cri, &request.container_id)?;
        self.0.exec_url(&ExecRequest {
            container: container.id().to_owned(),
            command: request.cmd,
            tty: request.tty,
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
        })
    }

    /// Attach: the URL for the container's own streams.
    ///
    /// # Errors
    /// As [`exec`](Self::exec).
    pub(crate) fn attach(&self, cri: &Cri, request: cri_v1::AttachRequest) -> Result<String> {
        let container = exec::running(cri, &request.container_id)?;
        self.0.attach_url(&AttachRequest {
            container: container.id().to_owned(),
            tty: request.tty,
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
        })
    }

    /// PortForward: the URL for ports of a pod.
    ///
    /// # Errors
    /// NotFound, FailedPrecondition for a pod that is not ready, InvalidArgument, ResourceExhausted.
    pub(crate) fn port_forward(&self, cri: &Cri, request: cri_v1::PortForwardRequest) -> Result<String> {
        let sandbox = cri.sandboxes.get(&request.pod_sandbox_id)?;
        if !sandbox.is_ready() {
            return Err(Error::failed_precondition(format!("sandbox {} is not running", sandbox.id())));
        }
        let port = |port: &i32| {
            u16::try_from(*port)
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| Error::invalid_argument(format!("port: {port} is no port")))
        };
        let ports = request.port.iter().map(port).collect::<Result<_>>()?;
        self.0.port_forward_url(&PortForwardRequest { sandbox: sandbox.id().to_owned(), ports })
    }
}

/// What the streaming server runs. Made before the service that it works for, and tied to it afterwards.
#[derive(Default)]
pub(crate) struct Streamer(OnceLock<Weak<Cri>>);

impl Streamer {
    /// Ties it to its service.
    pub(crate) fn bind(&self, cri: &Arc<Cri>) {
        let _ = self.0.set(Arc::downgrade(cri));
    }

    fn cri(&self) -> Result<Arc<Cri>> {
        let bound = self.0.get().and_then(Weak::upgrade);
        bound.ok_or_else(|| Error::unavailable("the runtime service is not there"))
    }
}

#[async_trait]
impl Runtime for Streamer {
    async fn exec(&self, container: &str, command: Vec<String>, streams: Streams) -> Result<i32> {
        let cri = self.cri()?;
        let container = exec::running(&cri, container)?;
        exec::guarded(move |gone| async move {
            let (stdin, tty) = (streams.stdin.is_some(), streams.tty);
            let Execution { task, id, io } = Execution::new(&cri, &container, command, stdin, tty).await?;
            let outcome = async {
                task.start(&id).await?;
                let resizing = resize(&task, &id, streams.resize);
                let client = AttachStreams {
                    stdin: streams.stdin,
                    stdout: streams.stdout,
                    stderr: streams.stderr,
                    tty,
                    close_stdin: Some(close_stdin(&task, &id)),
                };
                let give_up = async {
                    let _ = gone.await;
                };
                let ended = io.attach(client, exec::end(&task, &id, give_up), exec::drain(&cri));
                let (exit, _) = with(ended, resizing).await;
                let exit = exit?.ok_or_else(|| Error::cancelled("the client went away"))?;
                Ok(i32::try_from(exit.status).unwrap_or(i32::MAX))
            };
            let outcome = outcome.await;
            exec::forget(&task, &id).await;
            outcome
        })
        .await
    }

    async fn attach(&self, container: &str, streams: Streams) -> Result<()> {
        let cri = self.cri()?;
        let container = exec::running(&cri, container)?;
        let task = cri.tasks.get(&cri.namespace, container.id())?;
        let io = container.io();
        let io = io.ok_or_else(|| Error::failed_precondition("the container's streams could not be opened again"))?;
        let client = AttachStreams {
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
            tty: streams.tty,
            close_stdin: Some(close_stdin(&task, "")),
        };
        with(io.attach(client), resize(&task, "", streams.resize)).await
    }

    async fn port_forward(&self, sandbox: &str, port: u16, stream: Box<dyn Duplex>) -> Result<()> {
        let cri = self.cri()?;
        let sandbox = cri.sandboxes.get(sandbox)?;
        let connection = match sandbox.state().netns {
            Some(path) => connect_in(&path, port).await?,
            None => connect(port).await?,
        };
        join(stream, connection).await.map_err(|error| Error::io(format_args!("forward port {port}"), error))
    }
}

/// Copies between a client and a process. When the process has said all, the client may end for a moment; what the
/// process still says to a client that has ended is waited for.
async fn join(client: Box<dyn Duplex>, process: TcpStream) -> io::Result<()> {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_process, mut to_process) = process.into_split();
    let there = async {
        // A process that takes no more may still have something to say.
        let _ = tokio::io::copy(&mut from_client, &mut to_process).await;
        let _ = to_process.shutdown().await;
    };
    let back = async {
        tokio::io::copy(&mut from_process, &mut to_client).await?;
        to_client.shutdown().await
    };
    tokio::pin!(there, back);
    let ended = tokio::select! {
        ended = &mut back => ended,
        () = &mut there => return back.await,
    };
    let _ = tokio::time::timeout(LAST_WORDS, there).await;
    ended
}

/// Runs `side` beside `work`, for as long as that takes.
async fn with<T>(work: impl Future<Output = T>, side: impl Future<Output = ()>) -> T {
    tokio::pin!(work, side);
    tokio::select! {
        done = &mut work => done,
        () = &mut side => work.await,
    }
}

/// Passes the sizes of a client's terminal on.
async fn resize(task: &Task, id: &str, mut sizes: mpsc::Receiver<TerminalSize>) {
    while let Some(size) = sizes.recv().await {
        if let Err(error) = task.resize_pty(id, u32::from(size.width), u32::from(size.height)).await {
            tracing::debug!(id = task.id(), exec = id, %error, "size of a terminal");
        }
    }
}

/// Tells the shim that no more input comes.
fn close_stdin(task: &Task, id: &str) -> futures::future::BoxFuture<'static, ()> {
    let (task, id) = (task.clone(), id.to_owned());
    Box::pin(async move {
        if let Err(error) = task.close_io(&id).await {
            tracing::debug!(id = task.id(), exec = id, %error, "end of input");
        }
    })
}

/// Connects to a port of this network, IPv4 first.
async fn connect(port: u16) -> Result<TcpStream> {
    let attempt = async {
        match TcpStream::connect(("127.0.0.1", port)).await {
            Ok(connection) => Ok(connection),
            Err(_) => TcpStream::connect(("::1", port)).await,
        }
    };
    let connected = tokio::time::timeout(CONNECT, attempt).await;
    let connected = connected.map_err(|_| Error::deadline_exceeded(format!("connect to port {port}")))?;
    connected.map_err(|error| Error::io(format_args!("connect to port {port}"), error))
}

/// Connects to a port of a pinned network. A thread of its own enters it and ends with that.
async fn connect_in(path: &Path, port: u16) -> Result<TcpStream> {
    let path = path.to_owned();
    let (sender, connected) = tokio::sync::oneshot::channel();
    let work = move || {
        let attempt = netns::enter(&path).and_then(|()| {
            let (v4, v6) = (([127, 0, 0, 1], port).into(), (std::net::Ipv6Addr::LOCALHOST, port).into());
            let connect = |address| std::net::TcpStream::connect_timeout(address, CONNECT);
            let connected = connect(&v4).or_else(|_| connect(&v6));
            connected.map_err(|error| Error::io(format_args!("connect to port {port} of the pod"), error))
        });
        let _ = sender.send(attempt);
    };
    std::thread::Builder::new()
        .name("port-forward".into())
        .spawn(work)
        .map_err(|error| Error::io("start a thread", error))?;
    let connection = connected.await.unwrap_or_else(|_| Err(Error::internal("the connecting thread broke off")))?;
    let in_runtime = connection.set_nonblocking(true).and_then(|()| TcpStream::from_std(connection));
    in_runtime.map_err(|error| Error::io(format_args!("forward port {port}"), error))
}
