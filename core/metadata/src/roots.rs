//! What holds objects besides records: open writers, work in flight, leases in use. And the news for a collection.
//!
//! A collection marks on one consistent view of the records and removes later, in small pieces. Whatever is written
//! or held in between is *news*: the piece that removes takes the news first, follows it in its own transaction, and
//! only then removes. All of it happens on the writer's thread, so no reference can slip between.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::key::Key;

#[derive(Default)]
struct State {
    /// Held by work in flight, with how often.
    pins: HashMap<Key, usize>,
    /// Leases (by key) that writers and holds work under, with how often.
    in_use: HashMap<Key, usize>,
    /// What leases held that were deleted while in use; for as long as they are.
    orphans: HashMap<Key, HashSet<Key>>,
    /// What was looked at under a lease: its holder relies on it.
    seen: HashMap<Key, HashSet<Key>>,
    /// While a collection runs: what was written or held since it began.
    news: Option<Vec<Key>>,
    /// About to be removed, in a transaction not committed yet.
    dying: HashSet<Key>,
}

impl State {
    fn note(&mut self, key: &Key) {
        if let Some(news) = &mut self.news {
            news.push(key.clone());
        }
    }
}

/// Roots in memory.
#[derive(Default)]
pub(crate) struct Roots(Mutex<State>);

/// What a collection begins with.
#[derive(Default)]
pub(crate) struct Held {
    /// Roots.
    pub(crate) nodes: Vec<Key>,
    /// Leases that count although they have expired.
    pub(crate) in_use: HashSet<Key>,
    /// What each lease holds besides its resources.
    pub(crate) seen: HashMap<Key, HashSet<Key>>,
}

/// Holds an object until it is dropped.
pub(crate) struct Pin {
    roots: Arc<Roots>,
    key: Key,
}

/// Keeps a lease, or what is left of it, until it is dropped.
pub(crate) struct Use {
    roots: Arc<Roots>,
    lease: Key,
    /// Called when a deleted lease has let go of what it held.
    released: Box<dyn Fn() + Send + Sync>,
}

impl Roots {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds an object. Does not say whether it is there.
    pub(crate) fn pin(self: &Arc<Self>, key: Key) -> Pin {
        let mut state = self.state();
        *state.pins.entry(key.clone()).or_default() += 1;
        state.note(&key);
        drop(state);
        Pin { roots: Arc::clone(self), key }
    }

    /// Whether an object is being removed in a transaction that is not committed yet.
    pub(crate) fn is_dying(&self, key: &Key) -> bool {
        self.state().dying.contains(key)
    }

    /// Works under a lease.
    pub(crate) fn use_lease(self: &Arc<Self>, lease: Key, released: Box<dyn Fn() + Send + Sync>) -> Use {
        let mut state = self.state();
        *state.in_use.entry(lease.clone()).or_default() += 1;
        state.note(&lease);
        drop(state);
        Use { roots: Arc::clone(self), lease, released }
    }

    /// Remembers that something was looked at under a lease.
    pub(crate) fn see(&self, lease: &Key, node: &Key) {
        let mut state = self.state();
        if state.seen.get(lease).is_some_and(|seen| seen.contains(node)) && state.news.is_none() {
            return;
        }
        state.seen.entry(lease.clone()).or_default().insert(node.clone());
        state.note(node);
    }

    /// A lease is being deleted; what it held stays for as long as it is in use.
    pub(crate) fn orphan(&self, lease: &Key, resources: impl IntoIterator<Item = Key>) {
        let mut state = self.state();
        let mut held = state.seen.remove(lease).unwrap_or_default();
        if state.in_use.contains_key(lease) {
            held.extend(resources);
            held.iter().for_each(|node| state.note(node));
            state.orphans.entry(lease.clone()).or_default().extend(held);
        }
    }

    /// Adds to what is left of a deleted lease; false when nothing is.
    pub(crate) fn adopt(&self, lease: &Key, node: Key) -> bool {
        let mut state = self.state();
        if !state.orphans.contains_key(lease) {
            return false;
        }
        state.note(&node);
        state.orphans.entry(lease.clone()).or_default().insert(node);
        true
    }

    /// Whether a deleted lease is still in use.
    pub(crate) fn is_orphaned(&self, lease: &Key) -> bool {
        self.state().orphans.contains_key(lease)
    }

    /// Takes note of what a transaction wrote.
    pub(crate) fn written(&self, keys: Vec<Key>) {
        if let Some(news) = &mut self.state().news {
            news.extend(keys);
        }
    }

    /// A collection begins.
    pub(crate) fn begin(&self) -> Held {
        let mut state = self.state();
        state.news = Some(Vec::new());
        let orphans = state.orphans.values().flatten().cloned();
        Held {
            nodes: state.pins.keys().cloned().chain(orphans).collect(),
            in_use: state.in_use.keys().cloned().collect(),
            seen: state.seen.clone(),
        }
    }

    /// Takes the news, and announces what will be removed unless the news keep it.
    pub(crate) fn take_news(&self, candidates: &[Key]) -> Vec<Key> {
        let mut state = self.state();
        state.dying = candidates.iter().cloned().collect();
        state.news.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The transaction that removed is over.
    pub(crate) fn buried(&self) {
        self.state().dying.clear();
    }

    /// A lease is gone: what was seen under it no longer matters.
    pub(crate) fn forget(&self, lease: &Key) {
        self.state().seen.remove(lease);
    }

    /// A collection is over.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.news = None;
        state.dying.clear();
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut state = self.roots.state();
        if let Some(count) = state.pins.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                state.pins.remove(&self.key);
            }
        }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut state = self.roots.state();
        let Some(count) = state.in_use.get_mut(&self.lease) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        state.in_use.remove(&self.lease);
        let released = state.orphans.remove(&self.lease).is_some();
        drop(state);
        if released {
            (self.released)();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_lease_holds_while_it_is_in_use() {
        let roots = Arc::new(Roots::default());
        let lease = b"lease".to_vec();
        let held = roots.use_lease(lease.clone(), Box::new(|| {}));
        roots.orphan(&lease, [b"blob".to_vec()]);
        assert!(roots.begin().nodes.contains(&b"blob".to_vec()));
        assert!(roots.adopt(&lease, b"more".to_vec()));
        drop(held);
        assert!(roots.begin().nodes.is_empty());
        assert!(!roots.adopt(&lease, b"late".to_vec()));
    }

    #[test]
    fn pins_and_sights_are_news_for_a_collection_that_runs() {
        let roots = Arc::new(Roots::default());
        let _before = roots.pin(b"before".to_vec());
        assert_eq!(roots.begin().nodes, [b"before".to_vec()]);
        drop(roots.pin(b"short".to_vec()));
        roots.see(&b"lease".to_vec(), &b"seen".to_vec());
        assert_eq!(roots.take_news(&[]), [b"short".to_vec(), b"seen".to_vec()]);
        assert!(roots.take_news(&[]).is_empty());
    }
}
