//! The task manager: all tasks, and how they come and go.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use core_events::{Envelope, Event, Publisher};
use core_mount::Mount;
use core_types::{Error, ErrorKind, Namespace, Result, identifiers};
use futures::FutureExt;
use tokio::sync::Semaphore;

use crate::{
    Any, Connector, ExitStatus, Io, ShimClient, State,
    binary::{Daemon, Runner},
    bootstrap::Endpoint,
    bundle::Layout,
    config::Config,
    entry::{Entry, Key, Link, lock},
    events,
    resolve::{Resolver, search_path},
    task::{Task, within},
};

/// How to create a task.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// Name of the runtime, or absolute path of a shim.
    pub runtime: String,
    /// Options of the runtime, as the client sent them; those of the task win over those of the container.
    pub options: Option<Any>,
    /// The OCI spec, as the client sent it.
    pub spec: Option<Any>,
    /// The root file system.
    pub rootfs: Vec<Mount>,
    /// Standard streams.
    pub io: Io,
    /// Directory of a checkpoint to restore, empty for none.
    pub checkpoint: String,
    /// Id of the sandbox whose shim holds the task; empty for none.
    pub sandbox_id: String,
    /// Where the task service of the sandbox is (`<protocol>+<address>`), when its controller says so.
    pub task_address: String,
    /// The version of that task service.
    pub task_version: u32,
}

/// Owns all tasks: starts shims, finds them again after a restart, notices their death, cleans up.
pub struct TaskManager(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) layout: Layout,
    pub(crate) resolver: Resolver,
    pub(crate) runner: Arc<Runner>,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) events: Arc<dyn Publisher>,
    /// Bounds the binaries that run at a time for cleaning up.
    pub(crate) cleanups: Semaphore,
    table: Mutex<Table>,
    /// Where the shims of sandboxes are, for the tasks that go there.
    pub(crate) sandboxes: Mutex<BTreeMap<Key, Endpoint>>,
}

/// The tasks, and the ids that are being created or removed.
#[derive(Default)]
struct Table {
    tasks: BTreeMap<Key, Arc<Entry>>,
    busy: BTreeSet<Key>,
}

impl TaskManager {
    /// A manager without tasks; [`load`](Self::load) finds those of a daemon before.
    ///
    /// # Errors
    /// When the directories cannot be made.
    pub fn new(config: Config, connector: Arc<dyn Connector>, events: Arc<dyn Publisher>) -> Result<Self> {
        let layout = Layout { root: config.root.clone(), state: config.state.clone() };
        layout.prepare()?;
        let mut path = search_path(&config.executable, std::env::var_os("PATH"));
        if let Some(dirs) = &config.search_path {
            path.truncate(1);
            path.extend(dirs.iter().cloned());
        }
        let runner = Runner::new(Daemon {
            grpc: config.grpc_address.clone(),
            ttrpc: config.ttrpc_address.clone(),
            executable: config.executable.clone(),
            version: config.version.clone(),
            socket_dir: config.socket_dir.clone(),
            debug: config.debug,
            env: config.env.clone(),
        });
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Ok(Self(Arc::new(Inner {
            layout,
            resolver: Resolver::new(path),
            runner,
            connector,
            events,
            cleanups: Semaphore::new(processors * 2),
            table: Mutex::default(),
            sandboxes: Mutex::default(),
            config,
        })))
    }

    /// Creates a task: its bundle, its shim (unless a sandbox's is used), the container in it. Answers the
    /// task and the pid of its first process. When it fails nothing is left. It goes on when the caller gives up.
    ///
    /// # Errors
    /// AlreadyExists, InvalidArgument for a bad id, NotFound for a runtime that is not installed, the shim's.
    pub async fn create(&self, namespace: &Namespace, id: &str, options: CreateOptions) -> Result<(Task, u32)> {
        identifiers::validate(id)?;
        let key = Key { namespace: namespace.clone(), id: id.to_owned() };
        let reserved = Reserved::take(&self.0, key)?;
        let inner = self.0.clone();
        joined(tokio::spawn(async move { crate::create::create(&inner, &reserved, options).await }).await)
    }

    /// A task.
    ///
    /// # Errors
    /// NotFound.
    pub fn get(&self, namespace: &Namespace, id: &str) -> Result<Task> {
        let key = Key { namespace: namespace.clone(), id: id.to_owned() };
        let entry = lock(&self.0.table).tasks.get(&key).cloned();
        entry.map(|entry| self.0.task(entry)).ok_or_else(|| Error::not_found(format!("task {id} not found")))
    }

    /// The tasks of a namespace, or all, in the order of their ids.
    pub fn list(&self, namespace: Option<&Namespace>) -> Vec<Task> {
        let entries = lock(&self.0.table);
        let wanted = entries.tasks.values().filter(|entry| namespace.is_none_or(|it| *it == entry.key.namespace));
        wanted.map(|entry| self.0.task(entry.clone())).collect()
    }

    /// The states of the tasks of a namespace, asked for at the same time; a shim that does not answer within
    /// the deadline has state Unknown.
    pub async fn states(&self, namespace: &Namespace) -> Vec<State> {
        let tasks = self.list(Some(namespace));
        let states = futures::future::join_all(tasks.iter().map(Task::state_or_unknown)).await;
        states.into_iter().flatten().collect()
    }

    /// Deletes a task that ended and, when it was its last, ends the shim. Can be repeated after a failure; runs
    /// once at a time and goes on when the caller gives up.
    ///
    /// # Errors
    /// NotFound; FailedPrecondition while it runs; the shim's.
    pub async fn delete(&self, namespace: &Namespace, id: &str) -> Result<ExitStatus> {
        let task = self.get(namespace, id)?;
        let inner = self.0.clone();
        joined(tokio::spawn(async move { inner.delete(&task).await }).await)
    }

    /// What the shim of `runtime` says of itself: an encoded `containerd.types.RuntimeInfo`.
    ///
    /// # Errors
    /// As resolving the runtime; what the binary said.
    pub async fn runtime_info(&self, runtime: &str, options: Option<&Any>) -> Result<Vec<u8>> {
        let binary = self.0.resolver.resolve(runtime)?;
        self.0.runner.info(&binary, options, self.0.config.timeouts.short).await
    }

    /// Looks at an event that a shim published, so that the end of a task is not told a second time when the
    /// shim dies after it. To be called before the event is published.
    pub fn observe(&self, envelope: &Envelope) {
        let Event::Encoded(any) = &envelope.event else { return };
        let Some(id) = events::subject(&envelope.topic, any) else { return };
        let key = Key { namespace: envelope.namespace.clone(), id };
        let Some(entry) = lock(&self.0.table).tasks.get(&key).cloned() else { return };
        entry.tell(|told| match envelope.topic.as_str() {
            events::EXIT => told.exit = true,
            _ => told.delete = true,
        });
    }

    /// Waits until every task is connected, known to be gone, or known not to answer.
    pub async fn settled(&self) {
        for task in self.list(None) {
            let mut links = task.entry.links();
            // An entry that is dropped meanwhile is settled as well.
            let _ = links.wait_for(|link| !matches!(link, Link::Connecting)).await;
        }
    }
}

impl Drop for TaskManager {
    fn drop(&mut self) {
        // Shims outlive the daemon; only what watches them ends.
        let entries: Vec<_> = lock(&self.0.table).tasks.values().cloned().collect();
        entries.iter().for_each(|entry| entry.release());
    }
}

impl Inner {
    pub(crate) fn task(&self, entry: Arc<Entry>) -> Task {
        Task { entry, timeouts: self.config.timeouts }
    }

    /// Adds a task.
    pub(crate) fn insert(&self, entry: Arc<Entry>) {
        lock(&self.table).tasks.insert(entry.key.clone(), entry);
    }

    /// The task `id` of a namespace.
    pub(crate) fn find(&self, namespace: &Namespace, id: &str) -> Option<Arc<Entry>> {
        lock(&self.table).tasks.get(&Key { namespace: namespace.clone(), id: id.to_owned() }).cloned()
    }

    /// Takes a task out; its id stays reserved until the answer is dropped. Also answers whether other tasks
    /// use the same shim: of several that go at a time, exactly the last is told that none does.
    fn remove(self: &Arc<Self>, entry: &Entry) -> (Reserved, bool) {
        let mut table = lock(&self.table);
        table.tasks.remove(&entry.key);
        table.busy.insert(entry.key.clone());
        let address = entry.endpoint().map(|endpoint| endpoint.address);
        let shared = address.is_some()
            && table.tasks.values().any(|other| other.endpoint().map(|endpoint| endpoint.address) == address);
        (Reserved { inner: self.clone(), key: entry.key.clone() }, shared)
    }

    /// Whether another task uses the shim at `address`.
    pub(crate) fn is_shared(&self, endpoint: &Endpoint) -> bool {
        let table = lock(&self.table);
        table.tasks.values().any(|entry| entry.endpoint().is_some_and(|other| other.address == endpoint.address))
    }

    /// A connection to a shim: the one of another task of the same shim, or a new one.
    ///
    /// # Errors
    /// As [`Connector::connect`].
    pub(crate) async fn connect(
        &self,
        namespace: &Namespace,
        endpoint: &Endpoint,
        limit: Duration,
    ) -> Result<Arc<dyn ShimClient>> {
        if let Some(client) = self.shared_client(namespace, endpoint) {
            return Ok(client);
        }
        let socket = endpoint.socket()?;
        let connecting = self.connector.connect(namespace, &endpoint.protocol, endpoint.version, &socket, limit);
        within(limit, format!("connect to shim {}", endpoint.address), connecting).await
    }

    fn shared_client(&self, namespace: &Namespace, endpoint: &Endpoint) -> Option<Arc<dyn ShimClient>> {
        let table = lock(&self.table);
        let mut same = table
            .tasks
            .values()
            .filter(|entry| entry.key.namespace == *namespace && entry.endpoint().as_ref() == Some(endpoint));
        // Another task's supervisor may not have noticed yet that it broke.
        same.find_map(|entry| entry.client().filter(|client| client.closed().now_or_never().is_none()))
    }

    async fn delete(self: &Arc<Self>, task: &Task) -> Result<ExitStatus> {
        let entry = &task.entry;
        let timeouts = &self.config.timeouts;
        let ended = |error: Error| match entry.link() {
            // It ended, by another hand, after this request found it.
            Link::Gone(Some(exit)) => Ok(exit),
            _ => Err(error),
        };
        // Not under the lock: whoever cleans up after a dead shim needs it.
        let client = match task.client().await {
            Ok(client) => client,
            Err(error) => return ended(error),
        };
        let ending = entry.ending.lock().await;
        if entry.is_gone() {
            return ended(task.not_found());
        }
        let exit = match entry.told().deleted {
            Some(exit) => Ok(exit),
            None => within(timeouts.long, format!("delete of task {}", task.id()), client.delete(task.id(), "")).await,
        };
        match exit {
            Ok(exit) => {
                entry.tell(|told| told.deleted = Some(exit));
                self.end(entry, Some(exit)).await;
                Ok(exit)
            }
            Err(error) if error.is_not_found() => {
                self.end(entry, None).await;
                Err(error)
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                drop(ending);
                self.await_cleanup(entry).await.ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// After the connection broke in a Delete: whoever watches the shim cleans up and knows how the task ended.
    async fn await_cleanup(&self, entry: &Entry) -> Option<ExitStatus> {
        let timeouts = &self.config.timeouts;
        let mut links = entry.links();
        let gone = links.wait_for(|link| matches!(link, Link::Gone(_)));
        match tokio::time::timeout(timeouts.load + timeouts.cleanup * 2, gone).await {
            Ok(Ok(link)) => match &*link {
                Link::Gone(exit) => *exit,
                _ => None,
            },
            _ => None,
        }
    }

    /// Ends a task whose shim forgot it: shuts the shim down when it has no other, removes the bundle.
    /// The caller holds `entry.ending`.
    pub(crate) async fn end(self: &Arc<Self>, entry: &Arc<Entry>, exit: Option<ExitStatus>) {
        let (reserved, shared) = self.remove(entry);
        let client = entry.client();
        entry.set_link(Link::Gone(exit));
        entry.release();
        // A sandbox's shim is ended by whoever controls the sandbox.
        let sandboxed = entry.sandbox.is_some() && entry.endpoint().is_some_and(|endpoint| endpoint.version >= 3);
        if let Some(client) = client.filter(|_| !shared && !sandboxed) {
            self.shutdown(&*client, &entry.key.id).await;
        }
        let bundle = entry.bundle.clone();
        if let Err(error) = blocking(move || bundle.delete()).await {
            tracing::error!(id = entry.key.id, namespace = %entry.key.namespace, %error, "bundle not removed");
        }
        drop(reserved);
    }

    /// Asks a shim to end.
    pub(crate) async fn shutdown(&self, client: &dyn ShimClient, id: &str) {
        let limit = self.config.timeouts.shutdown;
        match within(limit, format!("shutdown of shim {id}"), client.shutdown(id, false)).await {
            Ok(()) => {}
            // It can be faster than its answer.
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            Err(error) => tracing::warn!(id, %error, "shim may be left behind"),
        }
    }

    /// Takes a task whose shim is dead out of the table, cleaned up. The caller holds `entry.ending`.
    pub(crate) async fn bury(self: &Arc<Self>, entry: &Arc<Entry>) {
        let record = crate::exits::read(&entry.bundle.path, "");
        let told = entry.told();
        let answer = {
            let _permit = self.cleanups.acquire().await;
            self.runner.delete(&entry.target(), self.config.timeouts.cleanup).await
        };
        if let Err(error) = &answer {
            tracing::warn!(id = entry.key.id, namespace = %entry.key.namespace, %error, "cleaning up after a dead shim failed");
        }
        let lost = ExitStatus { pid: 0, status: 255, exited_at: Some(std::time::SystemTime::now()) };
        let exit = told.deleted.or(record).or(answer.ok().filter(|exit| exit.exited_at.is_some())).unwrap_or(lost);
        let (reserved, _) = self.remove(entry);
        let bundle = entry.bundle.clone();
        if let Err(error) = blocking(move || bundle.delete()).await {
            tracing::error!(id = entry.key.id, namespace = %entry.key.namespace, %error, "bundle not removed");
        }
        drop(reserved);
        // What came in meanwhile counts too.
        let told = entry.told();
        if !told.exit {
            events::exit(&*self.events, &entry.key.namespace, &entry.key.id, &exit);
        }
        if !told.delete {
            events::delete(&*self.events, &entry.key.namespace, &entry.key.id, &exit);
        }
        entry.set_link(Link::Gone(Some(exit)));
    }
}

/// An id that nobody else may create or remove a task of, until dropped.
pub(crate) struct Reserved {
    inner: Arc<Inner>,
    pub(crate) key: Key,
}

impl Reserved {
    fn take(inner: &Arc<Inner>, key: Key) -> Result<Self> {
        let mut table = lock(&inner.table);
        if table.tasks.contains_key(&key) {
            return Err(Error::already_exists(format!("task {} already exists", key.id)));
        }
        if !table.busy.insert(key.clone()) {
            return Err(Error::already_exists(format!("task {} is being created or removed", key.id)));
        }
        Ok(Self { inner: inner.clone(), key })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        lock(&self.inner.table).busy.remove(&self.key);
    }
}

/// Runs disk work where it may block.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    joined(tokio::task::spawn_blocking(work).await)
}

fn joined<T>(result: std::result::Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    result.unwrap_or_else(|error| Err(Error::internal(format!("the request ended early: {error}"))))
}
