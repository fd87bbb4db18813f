//! What may have to be removed from a backend, and what must not be at the moment.
//!
//! Nothing here decides that something is garbage: a name in the trash is looked up among the records, under the lock
//! that keeps others from claiming it, before it is removed.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use core_types::Result;
use tokio::sync::Notify;

#[derive(Default)]
struct State {
    claims: HashMap<String, usize>,
    removing: HashSet<String>,
    suspects: BTreeSet<String>,
    sweep_all: bool,
}

/// The trash of one backend.
pub(crate) struct Trash {
    state: Mutex<State>,
    removed: Notify,
}

/// Keeps a name from removal until it is dropped; then it is a suspect unless [`Claim::recorded`].
pub(crate) struct Claim {
    trash: Arc<Trash>,
    name: String,
    recorded: bool,
}

impl Trash {
    /// Empty, but all of the backend is to be looked through once: a crash may have left something.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { sweep_all: true, ..State::default() }), removed: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a name; waits while it is being removed.
    pub(crate) async fn claim(self: &Arc<Self>, name: &str) -> Claim {
        loop {
            let removed = self.removed.notified();
            {
                let mut state = self.state();
                if !state.removing.contains(name) {
                    *state.claims.entry(name.to_owned()).or_default() += 1;
                    return Claim { trash: Arc::clone(self), name: name.to_owned(), recorded: false };
                }
            }
            removed.await;
        }
    }

    /// Adds names that may be garbage.
    pub(crate) fn suspect(&self, names: impl IntoIterator<Item = String>) {
        self.state().suspects.extend(names);
    }

    /// Whether all of the backend is to be looked through; asked once.
    pub(crate) fn take_sweep_all(&self) -> bool {
        std::mem::take(&mut self.state().sweep_all)
    }

    /// Looks through all of the backend next time.
    pub(crate) fn sweep_all_again(&self) {
        self.state().sweep_all = true;
    }

    /// The suspects; they are no longer in the trash.
    pub(crate) fn take_suspects(&self) -> Vec<String> {
        std::mem::take(&mut self.state().suspects).into_iter().collect()
    }

    /// Begins to remove `name` unless it is claimed or `known`; false when it must stay.
    pub(crate) fn begin_removal(&self, name: &str, known: impl FnOnce() -> Result<bool>) -> Result<bool> {
        let mut state = self.state();
        if state.claims.contains_key(name) || known()? {
            return Ok(false);
        }
        state.removing.insert(name.to_owned());
        Ok(true)
    }

    /// The removal is over.
    pub(crate) fn end_removal(&self, name: &str) {
        self.state().removing.remove(name);
        self.removed.notify_waiters();
    }
}

impl Claim {
    /// A record has the name now, or the backend does not: it is no suspect.
    pub(crate) fn recorded(mut self) {
        self.recorded = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = self.trash.state();
        if let Some(count) = state.claims.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                state.claims.remove(&self.name);
            }
        }
        if !self.recorded {
            state.suspects.insert(self.name.clone());
        }
    }
}
