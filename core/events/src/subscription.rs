use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use core_types::Filter;
use tokio::sync::Notify;
use tracing::warn;

use crate::{Envelope, Event};

/// How much of what a subscriber has not taken yet is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Events in the queue of a subscriber that keeps up.
    pub queue: usize,
    /// Further events kept for one that does not; beyond these the oldest are dropped and counted.
    pub spill: usize,
    /// Bytes of encoded events kept in all, queue and spill.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { queue: 1024, spill: 64 * 1024, bytes: 16 << 20 }
    }
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Arc<Envelope>>,
    bytes: usize,
}

/// The end that the exchange writes to.
pub(crate) struct Mailbox {
    filter: Filter,
    limits: Limits,
    queue: Mutex<Queue>,
    arrived: Notify,
    closed: AtomicBool,
    lagging: AtomicBool,
    dropped: AtomicU64,
}

/// Roughly the memory of an envelope.
fn weight(envelope: &Envelope) -> usize {
    let event = match &envelope.event {
        Event::Encoded(any) => any.value.len() + any.type_url.len(),
        _ => 256,
    };
    size_of::<Envelope>() + envelope.topic.len() + event
}

impl Mailbox {
    pub(crate) fn new(filter: Filter, limits: Limits) -> Self {
        Self {
            filter,
            limits,
            queue: Mutex::default(),
            arrived: Notify::new(),
            closed: AtomicBool::new(false),
            lagging: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never waits for the subscriber.
    pub(crate) fn put(&self, envelope: &Arc<Envelope>) {
        if self.closed.load(Ordering::Acquire) || !self.filter.matches(envelope.as_ref()) {
            return;
        }
        let mut dropped = 0;
        let length = {
            let mut queue = self.queue();
            queue.events.push_back(Arc::clone(envelope));
            queue.bytes += weight(envelope);
            let most = self.limits.queue + self.limits.spill;
            while queue.events.len() > 1 && (queue.events.len() > most || queue.bytes > self.limits.bytes) {
                if let Some(oldest) = queue.events.pop_front() {
                    queue.bytes -= weight(&oldest);
                    dropped += 1;
                }
            }
            queue.events.len()
        };
        if dropped > 0 {
            let before = self.dropped.fetch_add(dropped, Ordering::Relaxed);
            if before == 0 {
                warn!(kept = length, "an event subscriber is too slow: its oldest events are dropped");
            }
        }
        if length > self.limits.queue && !self.lagging.swap(true, Ordering::Relaxed) {
            warn!(waiting = length, "an event subscriber lags behind");
        }
        self.arrived.notify_one();
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.arrived.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn take(&self) -> Option<Arc<Envelope>> {
        let mut queue = self.queue();
        let envelope = queue.events.pop_front()?;
        queue.bytes -= weight(&envelope);
        if queue.events.is_empty() {
            // Memory of a burst goes back.
            queue.events = VecDeque::new();
            self.lagging.store(false, Ordering::Relaxed);
        }
        Some(envelope)
    }
}

/// A subscriber's end of an [`Exchange`](crate::Exchange). Dropping it ends the subscription.
pub struct Subscription(pub(crate) Arc<Mailbox>);

impl Subscription {
    /// The next event, in the order of publication. None when the exchange is gone and nothing is left.
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Envelope> {
        loop {
            if let Some(envelope) = self.0.take() {
                return Some(Arc::unwrap_or_clone(envelope));
            }
            if self.0.is_closed() {
                return self.0.take().map(Arc::unwrap_or_clone);
            }
            self.0.arrived.notified().await;
        }
    }

    /// Events that were dropped because this subscriber did not take them in time.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Events that wait to be taken.
    pub fn waiting(&self) -> usize {
        self.0.queue().events.len()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.0.close();
    }
}
