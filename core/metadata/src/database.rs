//! The database as a whole: opening and closing, and what all handles share.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use core_events::{Event, Publisher};
use core_leases::Resource;
use core_snapshots::Snapshotter;
use core_types::{Error, Namespace, Result, ResultExt, Scope};

use crate::{
    containers::Containers,
    content::ContentStore,
    gc::Collector,
    images::Images,
    key::{self, Key, Kind},
    leases::Leases,
    namespaces::Namespaces,
    roots::{Roots, Use},
    sandboxes::Sandboxes,
    snapshots::Snapshots,
    store::{Store, Tx, View},
    trash::Trash,
    writer::{self, Durability, Writer},
};

/// Numbers for backend names are reserved in pieces of this size, so that taking one needs no transaction.
const RESERVED: u64 = 1 << 24;

/// What the records are about.
#[derive(Clone)]
pub struct Backends {
    /// The one content store, without namespaces.
    pub content: Arc<dyn core_content::Store>,
    /// Snapshotters by name, without namespaces.
    pub snapshotters: BTreeMap<String, Arc<dyn Snapshotter>>,
    /// Where events go.
    pub events: Arc<dyn Publisher>,
}

/// How to open a database.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Size of the memory map in bytes, a multiple of the page size; 16 GiB of address space when not given. It grows
    /// by itself.
    pub map_size: Option<usize>,
    /// Content of one namespace has to be pushed whole before another sees it (containerd's `isolated` policy).
    /// Otherwise a namespace that names the digest of a blob another has gets it without a copy.
    pub isolated: bool,
}

type Callback = Box<dyn Fn(bool) + Send + Sync>;

pub(crate) struct Inner {
    pub(crate) store: Arc<Store>,
    pub(crate) roots: Arc<Roots>,
    pub(crate) backends: Backends,
    pub(crate) options: Options,
    pub(crate) content_trash: Arc<Trash>,
    pub(crate) ingest_trash: Arc<Trash>,
    pub(crate) snapshot_trash: BTreeMap<String, Arc<Trash>>,
    pub(crate) collector: Collector,
    writer: Mutex<Option<Writer>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    numbers: AtomicU64,
    callbacks: Arc<Mutex<Vec<Callback>>>,
}

/// The database. Clones are the same database.
#[derive(Clone)]
pub struct Database {
    pub(crate) inner: Arc<Inner>,
}

impl Database {
    /// Opens the database in the directory `path` (containerd's `io.containerd.metadata.v1.lmdb` below its root).
    ///
    /// # Errors
    /// FailedPrecondition for a database of a newer version or one that this process has open; DataLoss for a damaged
    /// one; what the disk says.
    pub async fn open(path: &Path, backends: Backends) -> Result<Self> {
        Self::open_with(path, backends, Options::default()).await
    }

    /// As [`open`](Self::open), with options.
    ///
    /// # Errors
    /// As there.
    pub async fn open_with(path: &Path, backends: Backends, options: Options) -> Result<Self> {
        let (path, map_size) = (path.to_owned(), options.map_size);
        let opened = tokio::task::spawn_blocking(move || Store::open(&path, map_size)).await;
        let (store, log) = opened.map_err(|error| Error::internal(error.to_string()))??;
        let store = Arc::new(store);
        let roots = Arc::new(Roots::default());
        let (writer, queue) = writer::queue();
        let thread = {
            let (store, roots) = (Arc::clone(&store), Arc::clone(&roots));
            let builder = std::thread::Builder::new().name("metadata-writer".to_owned());
            builder.spawn(move || writer::serve(&store, log, &roots, &queue)).doing("start the metadata writer")?
        };
        let snapshot_trash = backends.snapshotters.keys().map(|name| (name.clone(), Trash::new())).collect();
        let database = Self {
            inner: Arc::new(Inner {
                store,
                roots,
                backends,
                options,
                content_trash: Trash::new(),
                ingest_trash: Trash::new(),
                snapshot_trash,
                collector: Collector::default(),
                writer: Mutex::new(Some(writer)),
                thread: Mutex::new(Some(thread)),
                numbers: AtomicU64::new(0),
                callbacks: Arc::default(),
            }),
        };
        let first = database.write(Durability::Full, |tx| {
            let key = key::meta("sequence");
            let next = tx.get::<u64>(&key)?.unwrap_or(1);
            tx.put(&key, &next.saturating_add(RESERVED))?;
            Ok(next)
        });
        let first = first.await?;
        database.inner.numbers.store(first, Ordering::Relaxed);
        Ok(database)
    }

    /// Ends the writer after what is queued, and syncs. Handles that are left answer Unavailable to writes. The
    /// environment itself closes with the last handle.
    pub async fn close(&self) {
        let thread = {
            drop(self.inner.writer.lock().unwrap_or_else(PoisonError::into_inner).take());
            self.inner.thread.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        if let Some(thread) = thread {
            let _ended = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }

    /// Blobs and ingests.
    pub fn content(&self, scope: &Scope) -> Arc<dyn core_content::Store> {
        Arc::new(ContentStore::new(self.bind(scope)))
    }

    /// Snapshots of one snapshotter.
    ///
    /// # Errors
    /// InvalidArgument for an empty name, NotFound for one that is not configured.
    pub fn snapshotter(&self, scope: &Scope, name: &str) -> Result<Arc<dyn Snapshotter>> {
        if name.is_empty() {
            return Err(Error::invalid_argument("snapshotter argument must not be empty"));
        }
        let backend = self.inner.backends.snapshotters.get(name);
        let trash = self.inner.snapshot_trash.get(name);
        let (Some(backend), Some(trash)) = (backend, trash) else {
            let known: Vec<&str> = self.inner.backends.snapshotters.keys().map(String::as_str).collect();
            return Err(Error::not_found(format!("snapshotter {name} not loaded; there are: {}", known.join(", "))));
        };
        Ok(Arc::new(Snapshots::new(self.bind(scope), name, Arc::clone(backend), Arc::clone(trash))))
    }

    /// Images.
    pub fn images(&self, scope: &Scope) -> Arc<dyn core_images::Store> {
        Arc::new(Images::new(self.bind(scope)))
    }

    /// Containers.
    pub fn containers(&self, scope: &Scope) -> Containers {
        Containers::new(self.bind(scope))
    }

    /// Leases.
    pub fn leases(&self, scope: &Scope) -> Leases {
        Leases::new(self.bind(scope))
    }

    /// Sandboxes.
    pub fn sandboxes(&self, scope: &Scope) -> Sandboxes {
        Sandboxes::new(self.bind(scope))
    }

    /// Namespaces.
    pub fn namespaces(&self) -> Namespaces {
        Namespaces::new(self.clone())
    }

    /// Names of the snapshotters.
    pub fn snapshotter_names(&self) -> Vec<String> {
        self.inner.backends.snapshotters.keys().cloned().collect()
    }

    /// Works under the scope's lease until the answer is dropped: an extraction in this process, say. What the lease
    /// holds is kept for so long even when the lease expires or is deleted. Nothing without a lease.
    pub fn hold(&self, scope: &Scope) -> Hold {
        Hold(self.bind(scope).use_lease())
    }

    /// Calls `callback` after each change; with true after one that may have left garbage. It must not wait.
    pub fn on_mutation(&self, callback: impl Fn(bool) + Send + Sync + 'static) {
        self.inner.callbacks.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(callback));
    }

    /// How often the writer has waited for the disk since the start: what commits cost.
    pub fn syncs(&self) -> u64 {
        self.inner.store.syncs.load(Ordering::Relaxed)
    }

    pub(crate) fn bind(&self, scope: &Scope) -> Bound {
        let namespace = scope.namespace.as_str();
        let lease = scope.lease.as_deref().filter(|lease| !lease.is_empty());
        let lease_key = lease.map(|lease| key::named(Kind::Lease, namespace, lease));
        Bound { db: self.clone(), scope: scope.clone(), lease_key }
    }

    /// Reads a consistent view.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&View<'_>) -> Result<T>) -> Result<T> {
        self.inner.store.read(read)
    }

    /// Writes, and tells of the change.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnMut(&mut Tx<'_, '_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let value = self.submit(durability, work).await?;
        self.mutated(false);
        Ok(value)
    }

    /// Writes something that may leave garbage, and tells of it.
    pub(crate) async fn remove<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnMut(&mut Tx<'_, '_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let value = self.submit(durability, work).await?;
        self.mutated(true);
        Ok(value)
    }

    /// Writes without telling.
    pub(crate) async fn submit<T: Send + 'static>(
        &self,
        durability: Durability,
        work: impl FnMut(&mut Tx<'_, '_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let writer = self.inner.writer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let writer = writer.ok_or_else(|| Error::unavailable("the metadata database is closed"))?;
        writer.submit(durability, work).await
    }

    /// Waits until what was queued before is committed.
    pub(crate) async fn settle(&self) -> Result<()> {
        self.submit(Durability::Ordered, |_| Ok(())).await
    }

    /// Makes everything committed so far durable.
    pub(crate) async fn flush(&self) -> Result<()> {
        self.submit(Durability::Full, |_| Ok(())).await
    }

    pub(crate) fn mutated(&self, dirty: bool) {
        notify(&self.inner.callbacks, dirty);
    }

    /// A number that no other backend name of this database has.
    pub(crate) fn number(&self) -> u64 {
        self.inner.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Publishes what has happened. It has happened whether or not somebody hears of it, so a failure is only logged.
    pub(crate) fn publish(&self, namespace: &Namespace, topic: &str, event: Event) {
        if let Err(error) = self.inner.backends.events.publish(namespace, topic, event) {
            tracing::warn!(%error, topic, "event not published");
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Ends the writer's loop; it finishes by itself and syncs.
        drop(self.writer.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    }
}

fn notify(callbacks: &Mutex<Vec<Callback>>, dirty: bool) {
    for callback in callbacks.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        callback(dirty);
    }
}

/// See [`Database::hold`].
pub struct Hold(#[expect(dead_code, reason = "holds by living")] Option<Use>);

/// A database and where requests belong.
#[derive(Clone)]
pub(crate) struct Bound {
    pub(crate) db: Database,
    pub(crate) scope: Scope,
    pub(crate) lease_key: Option<Key>,
}

impl Bound {
    /// The namespace's name.
    pub(crate) fn namespace(&self) -> &str {
        self.scope.namespace.as_str()
    }

    /// Publishes in the namespace.
    pub(crate) fn publish(&self, topic: &str, event: Event) {
        self.db.publish(&self.scope.namespace, topic, event);
    }

    /// Keeps the lease while work under it goes on.
    pub(crate) fn use_lease(&self) -> Option<Use> {
        let callbacks = Arc::clone(&self.db.inner.callbacks);
        let released = Box::new(move || notify(&callbacks, true));
        self.lease_key.clone().map(|lease| self.db.inner.roots.use_lease(lease, released))
    }

    /// As [`use_lease`](Self::use_lease); NotFound for a lease that is gone.
    pub(crate) fn enter_lease(&self) -> Result<Option<Use>> {
        let held = self.use_lease();
        if let (Some(lease), Some(key)) = (&self.scope.lease, &self.lease_key)
            && !self.db.read(|view| view.has(key))?
            && !self.db.inner.roots.is_orphaned(key)
        {
            return Err(Error::not_found(format!("lease {lease:?} does not exist")));
        }
        Ok(held)
    }

    /// Lets the lease hold what its user is about to look at.
    pub(crate) async fn see(&self, node: &Key) -> Result<()> {
        let Some(lease) = &self.lease_key else { return Ok(()) };
        self.db.inner.roots.see(lease, node);
        self.not_dying(node).await
    }

    /// Waits when an object is just being removed, so that it is not seen any more.
    pub(crate) async fn not_dying(&self, node: &Key) -> Result<()> {
        if self.db.inner.roots.is_dying(node) { self.db.settle().await } else { Ok(()) }
    }

    /// Adds a resource to the lease, if there is one; true when there is. NotFound for a lease that is gone, unless it
    /// was deleted while in use.
    pub(crate) fn add_to_lease(&self, tx: &mut Tx<'_, '_>, resource: &Resource) -> Result<bool> {
        let (Some(lease), Some(lease_key)) = (&self.scope.lease, &self.lease_key) else { return Ok(false) };
        if tx.has(lease_key)? {
            let key = key::lease_resource(self.namespace(), lease, resource);
            if !tx.has(&key)? {
                tx.put(&key, resource)?;
            }
            return Ok(true);
        }
        if self.db.inner.roots.adopt(lease_key, key::of_resource(self.namespace(), resource)?) {
            return Ok(true);
        }
        Err(Error::not_found(format!("lease {lease:?} does not exist")))
    }

    /// Takes a resource from the lease, if there is one.
    pub(crate) fn remove_from_lease(&self, tx: &mut Tx<'_, '_>, resource: &Resource) -> Result<()> {
        if let Some(lease) = &self.scope.lease {
            tx.delete(&key::lease_resource(self.namespace(), lease, resource))?;
        }
        Ok(())
    }
}
