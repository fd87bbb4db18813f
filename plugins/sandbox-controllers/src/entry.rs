use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use core_events::Publisher;
use core_runtime_v2::SandboxShim;
use core_sandbox::SandboxExit;
use core_types::{Error, Result};
use tokio::{sync::watch, task::AbortHandle};

use crate::{events, remote::Remote};

/// Says, in the bundle, that the end was published: a later daemon does not tell it again.
const TOLD: &str = "exit-published";

/// The connection to the shim.
#[derive(Clone, Default)]
pub(crate) enum Link {
    /// Being made for the first time, or anew.
    #[default]
    Connecting,
    /// There.
    Up(Arc<Remote>),
    /// The shim may live but does not answer; why.
    Down(String),
    /// There is no sandbox any more.
    Gone,
}

/// What changes.
#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) link: Link,
    /// It was started.
    pub(crate) started: bool,
    /// It ended.
    pub(crate) exit: Option<SandboxExit>,
}

/// One sandbox.
pub(crate) struct Entry {
    pub(crate) shim: SandboxShim,
    pub(crate) state: watch::Sender<State>,
    /// Held by whoever starts, ends or cleans it up.
    pub(crate) changing: tokio::sync::Mutex<()>,
    told: AtomicBool,
    supervisor: Mutex<Option<AbortHandle>>,
}

impl Entry {
    pub(crate) fn new(shim: SandboxShim) -> Self {
        Self {
            shim,
            state: watch::Sender::default(),
            changing: tokio::sync::Mutex::default(),
            told: AtomicBool::new(false),
            supervisor: Mutex::default(),
        }
    }

    pub(crate) fn not_found(&self) -> Error {
        Error::not_found(format!("sandbox {} not found", self.shim.id()))
    }

    pub(crate) fn link(&self) -> Link {
        self.state.borrow().link.clone()
    }

    /// Changes the link; one that is gone stays gone.
    pub(crate) fn set_link(&self, link: Link) {
        self.state.send_if_modified(|state| {
            let changes = !matches!(state.link, Link::Gone);
            if changes {
                state.link = link;
            }
            changes
        });
    }

    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.state.borrow().link, Link::Gone)
    }

    /// The shim, once it is known whether it is there.
    ///
    /// # Errors
    /// NotFound when it is gone, Unavailable when it does not answer.
    pub(crate) async fn remote(&self, limit: Duration) -> Result<Arc<Remote>> {
        let mut states = self.state.subscribe();
        let settled = states.wait_for(|state| match &state.link {
            Link::Connecting => false,
            // Its loss is about to be noticed.
            Link::Up(remote) => !remote.is_closed(),
            Link::Down(_) | Link::Gone => true,
        });
        let why = match tokio::time::timeout(limit, settled).await {
            Ok(Ok(state)) => match &state.link {
                Link::Up(remote) => return Ok(Arc::clone(remote)),
                Link::Down(why) => why.clone(),
                _ => return Err(self.not_found()),
            },
            Ok(Err(_)) => return Err(self.not_found()),
            Err(_) => format!("no connection within {limit:?}"),
        };
        let id = self.shim.id();
        Err(Error::unavailable(format!("the shim of sandbox {id} does not answer, it is tried again: {why}")))
    }

    /// Reads whether a daemon before this one told the end. Touches the disk.
    pub(crate) fn load(&self) {
        self.told.store(self.shim.bundle().join(TOLD).exists(), Ordering::SeqCst);
    }

    /// Notes the end, and tells it once if the sandbox had been started.
    pub(crate) async fn end(&self, publisher: &dyn Publisher, exit: SandboxExit) {
        if self.state.borrow().started && !self.told.swap(true, Ordering::SeqCst) {
            events::publish_exit(publisher, self.shim.namespace(), self.shim.id(), &exit);
            let path = self.shim.bundle().join(TOLD);
            // Should it fail, the end is told twice.
            let _ = tokio::task::spawn_blocking(move || std::fs::write(path, "")).await;
        }
        self.state.send_if_modified(|state| {
            let first = state.exit.is_none();
            state.exit = state.exit.or(Some(exit));
            first
        });
    }

    /// Ends a background task together with this entry.
    pub(crate) fn keep(&self, supervisor: AbortHandle) {
        *self.supervisor.lock().unwrap_or_else(PoisonError::into_inner) = Some(supervisor);
    }

    /// Ends the background task.
    pub(crate) fn release(&self) {
        if let Some(supervisor) = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner).take() {
            supervisor.abort();
        }
    }
}
