use std::{
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use containerd_api::{runtime::sandbox::v1::sandbox_ttrpc, task::v3::task_ttrpc};
use containerd_ttrpc::{Router, Server};
use core_shim::{Host, Reaper};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    Result,
    args::Args,
    convert,
    log::Log,
    publisher::Publisher,
    sandbox::Sandboxes,
    socket::{self, Bound},
    start::TTRPC_ADDRESS,
    task::{Service, Tasks},
};

/// The older name of the task service.
const TASK_V2: &str = "containerd.task.v2.Task";
/// How long the last events may take to reach the daemon when the shim ends.
const FLUSH: Duration = Duration::from_secs(3);
/// Blocking work is mounting; it needs little stack.
const STACK: usize = 256 << 10;

/// Serves a pod until it is told to end.
pub(crate) fn serve(args: &Args) -> Result<()> {
    core_sys::limit_arenas(1);
    let listener = listener(args)?;
    listener.set_nonblocking(true)?;
    let path = listener.local_addr()?.as_pathname().map(Path::to_path_buf);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .thread_stack_size(STACK)
        .thread_keep_alive(Duration::from_secs(1))
        .build()?;
    let served = runtime.block_on(run(args, listener, path));
    // What still waits on a disk must not keep the shim.
    runtime.shutdown_background();
    served
}

/// The socket: the one that the `start` action passed as standard input, or the one that a flag names.
fn listener(args: &Args) -> Result<UnixListener> {
    if !args.socket.as_os_str().is_empty() {
        let path = &args.socket;
        return match socket::bind(path)? {
            Bound::New(listener) => Ok(listener),
            Bound::Served => Err(format!("{} is served already", path.display()).into()),
        };
    }
    let passed: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    let listener = UnixListener::from(passed);
    if listener.local_addr().is_err() {
        return Err("the server is started by the start action, which passes it a socket".into());
    }
    rustix::stdio::dup2_stdin(fs::File::open("/dev/null")?)?;
    Ok(listener)
}

async fn run(args: &Args, listener: UnixListener, path: Option<PathBuf>) -> Result<()> {
    let log = Log::open(Path::new("log"));
    let reaper = Reaper::start()?;
    let address = std::env::var(TTRPC_ADDRESS).ok();
    let (publisher, published) = Publisher::start(address.as_deref(), &args.namespace, log.clone());
    let namespace = args.namespace.clone();
    let host = Host {
        reaper,
        events: Arc::new(move |event| publisher.publish(convert::envelope(event, &namespace))),
        namespace: args.namespace.clone(),
    };
    let tasks = Arc::new(Tasks::new(host));
    let mut router = Router::default();
    let service = Arc::new(Service(tasks.clone()));
    task_ttrpc::register(&mut router, service.clone());
    task_ttrpc::register_as(TASK_V2, &mut router, service);
    sandbox_ttrpc::register(&mut router, Arc::new(Sandboxes::new(tasks.clone())));
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let stop = tasks.clone();
    let shutdown = async move {
        tokio::select! {
            () = stop.shutdown.notified() => {}
            _ = terminate.recv() => log.warn("ending on SIGTERM"),
            _ = interrupt.recv() => log.warn("ending on SIGINT"),
        }
    };
    // From here on nobody can come; those that are connected get their answers first.
    Server::serve_same_user(listener, Arc::new(router), shutdown).await;
    if let Some(path) = path {
        // The next shim would replace it anyway.
        let _ = fs::remove_file(path);
    }
    drop(tasks);
    // The queue ends with the last container; what the daemon does not take in time is lost.
    let _ = tokio::time::timeout(FLUSH, published).await;
    Ok(())
}
