//! Who has attached to a container: a bounded queue for each client and output.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch};

use crate::format::Stream;

/// Gives copies of the output to all who have attached, and knows which outputs have ended.
#[derive(Debug)]
pub(crate) struct Hub {
    state: Mutex<State>,
    clients: AtomicUsize,
    /// Which outputs have ended.
    ended: watch::Sender<[bool; 2]>,
}

#[derive(Debug, Default)]
struct State {
    clients: Vec<Client>,
    next: u64,
}

#[derive(Debug)]
struct Client {
    number: u64,
    queues: [Option<Sender>; 2],
    limit: usize,
    behind: Arc<Notify>,
}

#[derive(Debug)]
struct Sender {
    queue: mpsc::UnboundedSender<Bytes>,
    waiting: Arc<AtomicUsize>,
}

/// The end of a queue that a client reads.
#[derive(Debug)]
pub(crate) struct Receiver {
    queue: mpsc::UnboundedReceiver<Bytes>,
    waiting: Arc<AtomicUsize>,
}

impl Receiver {
    /// The next bytes; None at the end.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        let bytes = self.queue.recv().await?;
        self.waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
        Some(bytes)
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// A client that has attached, until this is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    hub: Arc<Hub>,
    number: u64,
    pub(crate) outputs: [Option<Receiver>; 2],
    /// Told when the client has fallen too far behind and got its last bytes.
    pub(crate) behind: Arc<Notify>,
    left: Notify,
}

impl Member {
    /// Gets nothing more than what waits already.
    pub(crate) fn leave(&self) {
        self.hub.leave(self.number);
        self.left.notify_one();
    }

    /// Waits until it has left.
    pub(crate) async fn left(&self) {
        self.left.notified().await;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.hub.leave(self.number);
    }
}

impl Hub {
    /// A hub of a process with the given outputs.
    pub(crate) fn new(outputs: [bool; 2]) -> Self {
        Self { state: Mutex::default(), clients: AtomicUsize::new(0), ended: watch::Sender::new(outputs.map(|is| !is)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a client of some outputs, of which no more than `limit` bytes may wait for it.
    pub(crate) fn join(self: &Arc<Self>, wanted: [bool; 2], limit: usize) -> Member {
        let mut state = self.state();
        let ended = *self.ended.borrow();
        let mut outputs = [None, None];
        let mut queues = [None, None];
        for stream in Stream::BOTH {
            let index = stream as usize;
            let (sender, receiver) = mpsc::unbounded_channel();
            let waiting = Arc::new(AtomicUsize::new(0));
            if wanted[index] {
                outputs[index] = Some(Receiver { queue: receiver, waiting: waiting.clone() });
                queues[index] = (!ended[index]).then_some(Sender { queue: sender, waiting });
            }
        }
        let behind = Arc::new(Notify::new());
        let number = state.next;
        state.next += 1;
        state.clients.push(Client { number, queues, limit, behind: behind.clone() });
        self.clients.store(state.clients.len(), Ordering::Release);
        drop(state);
        Member { hub: self.clone(), number, outputs, behind, left: Notify::new() }
    }

    fn leave(&self, number: u64) {
        let mut state = self.state();
        state.clients.retain(|client| client.number != number);
        self.clients.store(state.clients.len(), Ordering::Release);
    }

    /// Gives bytes to every client. One that is too far behind gets no more.
    pub(crate) fn send(&self, stream: Stream, bytes: &[u8]) {
        if self.clients.load(Ordering::Acquire) == 0 {
            return;
        }
        let bytes = Bytes::copy_from_slice(bytes);
        for client in &mut self.state().clients {
            let Some(Some(sender)) = client.queues.get_mut(stream as usize) else { continue };
            let waiting = sender.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
            if waiting + bytes.len() > client.limit && waiting > 0 {
                client.queues = [None, None];
                client.behind.notify_one();
            } else {
                // One that has gone will say so.
                let _ = sender.queue.send(bytes.clone());
            }
        }
    }

    /// Says that an output has ended.
    pub(crate) fn end(&self, stream: Stream) {
        let mut state = self.state();
        for client in &mut state.clients {
            if let Some(queue) = client.queues.get_mut(stream as usize) {
                *queue = None;
            }
        }
        self.ended.send_modify(|ended| ended[stream as usize] = true);
    }

    /// Waits until both outputs have ended.
    pub(crate) async fn ended(&self) {
        // The sender is here, so this does not fail.
        let _ = self.ended.subscribe().wait_for(|ended| *ended == [true, true]).await;
    }
}

#[cfg(test)]
impl Hub {
    pub(crate) fn members(&self) -> usize {
        self.clients.load(Ordering::Acquire)
    }
}
