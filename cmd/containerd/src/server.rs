//! Starting, serving, ending.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use containerd_ttrpc::Router;
use core_plugin::{Addresses, PluginSet, StartOptions, Transport, types};
use plugin_services::{GrpcRouter, GrpcService, TtrpcService, version};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixListener,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::JoinHandle,
};
use tokio_stream::{Stream, wrappers::UnixListenerStream};
use tonic::transport::server::Connected;

use crate::{
    builtins::{self, Listener},
    config::{self, Config, DEFAULT_ADDRESS, GRPC, TTRPC},
    idle, lock, notify, sockets,
};

/// Threads that run requests; they only convert and wait.
const WORKERS: usize = 2;
/// Threads for disk work at most: containers that write a lot have one each while they do, and others must not wait for
/// them. An idle thread ends soon.
const BLOCKING: usize = 256;
/// Stack of each thread, in bytes. Only what is used takes memory.
const STACK: usize = 2 << 20;
/// How long an idle thread for disk work stays.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// How long running requests may go on after the signal to end.
const DRAIN: Duration = Duration::from_secs(2);
/// How long plugins may take to end.
const CLOSE: Duration = Duration::from_secs(2);
/// How long disk work that nobody waits for may go on.
const LEAVE: Duration = Duration::from_millis(500);

/// Runs the daemon until it is told to end.
///
/// # Errors
/// What keeps it from starting.
pub(crate) fn run(config: Config) -> anyhow::Result<()> {
    let started = Instant::now();
    prepare(&config)?;
    let _lock = lock::take(Path::new(&config.root))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING)
        .thread_stack_size(STACK)
        .thread_keep_alive(KEEP_ALIVE)
        .enable_all()
        .build()?;
    let result = runtime.block_on(serve(config, started));
    runtime.shutdown_timeout(LEAVE);
    result
}

/// Makes the directories, cleans up after an earlier daemon.
pub(crate) fn prepare(config: &Config) -> anyhow::Result<()> {
    let (root, state) = (Path::new(&config.root), Path::new(&config.state));
    if !root.is_absolute() || !state.is_absolute() {
        bail!("root and state must be absolute paths");
    }
    if root == state {
        bail!("root and state must be different paths");
    }
    // Containers with their own users go through the state directory.
    for (path, mode) in [(root, 0o700), (state, 0o711)] {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(path)
            .with_context(|| format!("make directory {}", path.display()))?;
    }
    fs::set_permissions(root, fs::Permissions::from_mode(0o700))
        .with_context(|| format!("close {} to others", root.display()))?;
    if config.oom_score != 0
        && let Err(error) = fs::write("/proc/self/oom_score_adj", config.oom_score.to_string())
    {
        tracing::error!(%error, score = config.oom_score, "failed to change OOM score");
    }
    warn_about_unused(config);
    Ok(())
}

/// What the file can say and this daemon does not do.
fn warn_about_unused(config: &Config) {
    for (name, plugin) in &config.proxy_plugins {
        tracing::warn!(name, address = plugin.address, "proxy plugins are not supported yet, ignoring this one");
    }
    if !config.cgroup.path.is_empty() {
        tracing::warn!(
            path = config.cgroup.path,
            "cgroup.path is not supported, let the service manager place the daemon"
        );
    }
    if !config.temp.is_empty() {
        tracing::warn!(path = config.temp, "temp is not supported, set TMPDIR in the environment");
    }
    for section in
        ["io.containerd.server.v1.grpc-tcp", "io.containerd.server.v1.debug", "io.containerd.server.v1.metrics"]
    {
        if config.text(section, "address").is_some_and(|address| !address.is_empty()) {
            tracing::warn!(section, "this listener is not supported yet, ignoring it");
        }
    }
}

async fn serve(config: Config, started: Instant) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let daemon = tokio::select! {
        daemon = Daemon::start(&config) => daemon?,
        () = end(&mut signals.terminate, &mut signals.interrupt) => return Ok(()),
    };
    notify::ready();
    tracing::info!("containerd successfully booted in {:.6}s", started.elapsed().as_secs_f64());
    let idle = idle::run(daemon.servers.router.clone());
    tokio::pin!(idle);
    loop {
        tokio::select! {
            () = &mut idle => {}
            () = end(&mut signals.terminate, &mut signals.interrupt) => break,
            _ = signals.dump.recv() => dump(&daemon.plugins),
        }
    }
    notify::stopping();
    daemon.stop().await;
    Ok(())
}

/// A daemon that serves.
pub(crate) struct Daemon {
    plugins: Arc<PluginSet>,
    servers: Servers,
}

impl Daemon {
    /// Starts the plugins and listens.
    ///
    /// # Errors
    /// What keeps a required plugin or a listener from starting.
    pub(crate) async fn start(config: &Config) -> anyhow::Result<Self> {
        let temporary = PathBuf::from(&config.root).join("tmpmounts");
        tokio::task::spawn_blocking(move || {
            core_mount::set_temp_mount_location(&temporary)?;
            core_mount::cleanup_temp_mounts()
        })
        .await?
        .unwrap_or_else(|error| tracing::warn!(%error, "cleanup of temporary mounts"));
        tracing::info!(version = version::VERSION, revision = version::REVISION, "starting containerd");
        let plugins = start_plugins(config).await?;
        let servers = match Servers::start(&plugins) {
            Ok(servers) => servers,
            Err(error) => {
                plugins.close().await;
                return Err(error);
            }
        };
        plugins.serving().await;
        Ok(Self { plugins, servers })
    }

    /// Serves gRPC on one more kind of connection.
    pub(crate) fn serve_on<I, S>(&mut self, incoming: I)
    where
        I: Stream<Item = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
        S::ConnectInfo: Clone + Send + Sync + 'static,
    {
        let serving = serve_grpc(incoming, self.servers.router.clone(), self.servers.stopped());
        self.servers.tasks.push(tokio::spawn(serving));
    }

    /// Ends requests and plugins, each within a limited time.
    pub(crate) async fn stop(self) {
        self.servers.stop().await;
        if tokio::time::timeout(CLOSE, self.plugins.close()).await.is_err() {
            tracing::warn!("plugins did not end within {CLOSE:?}");
        }
    }
}

async fn start_plugins(config: &Config) -> anyhow::Result<Arc<PluginSet>> {
    let options = StartOptions {
        root: PathBuf::from(&config.root),
        state: PathBuf::from(&config.state),
        addresses: Addresses {
            grpc: config.text(GRPC, "address").unwrap_or(DEFAULT_ADDRESS).to_owned(),
            ttrpc: config.text(TTRPC, "address").map_or_else(|| format!("{DEFAULT_ADDRESS}.ttrpc"), str::to_owned),
        },
        config: config::sections(config).collect(),
        timeouts: Arc::new(config::timeouts(config)?),
        disabled: config.disabled_plugins.clone(),
        required: config.required_plugins.clone(),
    };
    Ok(builtins::registry()?.start(options).await?)
}

/// The listeners and what serves on them.
struct Servers {
    stop: watch::Sender<bool>,
    router: GrpcRouter,
    tasks: Vec<JoinHandle<()>>,
    paths: Vec<PathBuf>,
}

impl Servers {
    /// Collects what the plugins offer and listens.
    fn start(plugins: &PluginSet) -> anyhow::Result<Self> {
        let mut grpc = Vec::new();
        let mut ttrpc = Router::default();
        for offer in plugins.take_offers() {
            match offer.transport {
                Transport::Grpc => match offer.service.downcast::<GrpcService>() {
                    Ok(service) => grpc.push(*service),
                    Err(_) => bail!("a plugin offers a gRPC service of an unknown type"),
                },
                Transport::Ttrpc => match offer.service.downcast::<TtrpcService>() {
                    Ok(service) => (service.0)(&mut ttrpc),
                    Err(_) => bail!("a plugin offers a ttrpc service of an unknown type"),
                },
            }
        }
        let router = GrpcRouter::new(grpc);
        let mut servers = Self { stop: watch::Sender::new(false), router, tasks: Vec::new(), paths: Vec::new() };
        let listener: Listener =
            plugins.get(types::SERVER, "grpc").context("without a gRPC listener nothing can be served")?;
        let incoming = UnixListenerStream::new(servers.listen(&listener)?);
        servers.tasks.push(tokio::spawn(serve_grpc(incoming, servers.router.clone(), servers.stopped())));
        if let Ok(listener) = plugins.get::<Listener>(types::SERVER, "ttrpc") {
            let bound = servers.listen(&listener)?;
            let stopped = servers.stopped();
            servers.tasks.push(tokio::spawn(containerd_ttrpc::Server::serve(bound, Arc::new(ttrpc), stopped)));
        }
        Ok(servers)
    }

    fn listen(&mut self, listener: &Listener) -> anyhow::Result<UnixListener> {
        let bound = UnixListener::from_std(sockets::listen(listener)?)?;
        tracing::info!(address = listener.address, "serving...");
        self.paths.push(PathBuf::from(listener.address.trim_start_matches("unix://")));
        Ok(bound)
    }

    /// Resolves when the servers shall stop.
    fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stop = self.stop.subscribe();
        async move {
            // An error means that the sender is gone: stop as well.
            let _ = stop.wait_for(|stop| *stop).await;
        }
    }

    /// Takes no more requests, lets the running ones end for a while, then drops them.
    async fn stop(self) {
        for path in &self.paths {
            let _ = fs::remove_file(path);
        }
        let _ = self.stop.send(true);
        let drain = tokio::time::Instant::now() + DRAIN;
        for mut task in self.tasks {
            if tokio::time::timeout_at(drain, &mut task).await.is_err() {
                task.abort();
            }
        }
    }
}

async fn serve_grpc<I, S>(incoming: I, router: GrpcRouter, stopped: impl Future<Output = ()>)
where
    I: Stream<Item = io::Result<S>>,
    S: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    S::ConnectInfo: Clone + Send + Sync + 'static,
{
    let served = tonic::transport::Server::builder().serve_with_incoming_shutdown(router, incoming, stopped).await;
    if let Err(error) = served {
        tracing::error!(%error, "gRPC server failed");
    }
}

/// What the daemon is told by signals.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    dump: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            dump: signal(SignalKind::user_defined1())?,
        })
    }
}

/// Resolves when the daemon shall end.
async fn end(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => tracing::info!(signal = "SIGTERM", "received signal, ending"),
        _ = interrupt.recv() => tracing::info!(signal = "SIGINT", "received signal, ending"),
    }
}

/// Says in the log how the daemon stands.
fn dump(plugins: &PluginSet) {
    let metrics = tokio::runtime::Handle::current().metrics();
    let memory = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = memory.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default().trim();
    let files = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    tracing::info!(
        tasks = metrics.num_alive_tasks(),
        workers = metrics.num_workers(),
        resident,
        files,
        "=== BEGIN dump ==="
    );
    for plugin in plugins.infos() {
        let id = plugin.uri();
        match plugin.error {
            Some((_, error)) => tracing::info!(id, error, "plugin"),
            None => tracing::info!(id, "plugin"),
        }
    }
    tracing::info!("=== END dump ===");
}
