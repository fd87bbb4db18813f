//! What the manager keeps of one task.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use core_types::Namespace;
use tokio::{sync::watch, task::AbortHandle};

use crate::{ExitStatus, ShimClient, binary::Target, bootstrap::Endpoint, bundle::Bundle};

/// Namespace and id of a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: Namespace,
    pub(crate) id: String,
}

/// The connection to the shim.
#[derive(Clone)]
pub(crate) enum Link {
    /// Being made for the first time, or anew.
    Connecting,
    /// There.
    Up(Arc<dyn ShimClient>),
    /// The shim may live but does not answer; why.
    Down(String),
    /// The task is no more; how it ended, when that is known.
    Gone(Option<ExitStatus>),
}

/// What is known to have been told to the world.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// The exit of the first process was published.
    pub(crate) exit: bool,
    /// The deletion was published.
    pub(crate) delete: bool,
    /// What the shim answered to Delete: it forgot the task, the rest is ours.
    pub(crate) deleted: Option<ExitStatus>,
}

/// One task.
pub(crate) struct Entry {
    pub(crate) key: Key,
    pub(crate) bundle: Bundle,
    pub(crate) binary: PathBuf,
    pub(crate) sandbox: Option<String>,
    endpoint: Mutex<Option<Endpoint>>,
    link: watch::Sender<Link>,
    told: Mutex<Told>,
    /// Held by whoever ends the task: Delete, or the cleaning up after its shim.
    pub(crate) ending: tokio::sync::Mutex<()>,
    background: Mutex<Vec<AbortHandle>>,
}

impl Entry {
    pub(crate) fn new(key: Key, bundle: Bundle, binary: PathBuf, sandbox: Option<String>) -> Self {
        Self {
            key,
            bundle,
            binary,
            sandbox,
            endpoint: Mutex::default(),
            link: watch::Sender::new(Link::Connecting),
            told: Mutex::default(),
            ending: tokio::sync::Mutex::default(),
            background: Mutex::default(),
        }
    }

    /// The task, as its shim's binary is told of it.
    pub(crate) fn target(&self) -> Target<'_> {
        Target { binary: &self.binary, namespace: &self.key.namespace, id: &self.key.id, bundle: &self.bundle.path }
    }

    pub(crate) fn endpoint(&self) -> Option<Endpoint> {
        lock(&self.endpoint).clone()
    }

    pub(crate) fn set_endpoint(&self, endpoint: Endpoint) {
        *lock(&self.endpoint) = Some(endpoint);
    }

    pub(crate) fn link(&self) -> Link {
        self.link.borrow().clone()
    }

    pub(crate) fn links(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    /// Changes the link; one that is gone stays gone.
    pub(crate) fn set_link(&self, link: Link) {
        self.link.send_if_modified(|current| {
            if matches!(current, Link::Gone(_)) {
                return false;
            }
            *current = link;
            true
        });
    }

    pub(crate) fn is_gone(&self) -> bool {
        matches!(*self.link.borrow(), Link::Gone(_))
    }

    /// The connection, when it is there now.
    pub(crate) fn client(&self) -> Option<Arc<dyn ShimClient>> {
        match &*self.link.borrow() {
            Link::Up(client) => Some(client.clone()),
            _ => None,
        }
    }

    pub(crate) fn told(&self) -> Told {
        *lock(&self.told)
    }

    pub(crate) fn tell(&self, change: impl FnOnce(&mut Told)) {
        change(&mut lock(&self.told));
    }

    /// Ends a background task together with this entry.
    pub(crate) fn keep(&self, handle: AbortHandle) {
        lock(&self.background).push(handle);
    }

    /// Ends the background tasks.
    pub(crate) fn release(&self) {
        for handle in lock(&self.background).drain(..) {
            handle.abort();
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.release();
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
