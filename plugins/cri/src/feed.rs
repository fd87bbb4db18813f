//! Events of pods and containers for `GetContainerEvents`. Each reader has a queue of its own; a slow one delays
//! nobody.

use std::sync::{Mutex, PoisonError};

use containerd_api_cri::v1::ContainerEventResponse;
use tokio::sync::mpsc;

/// Events that wait for one reader before it is dropped: enough for some minutes of a busy node.
const QUEUE: usize = 65_536;

/// Where events come in.
#[derive(Default)]
pub(crate) struct Feed(Mutex<Vec<mpsc::Sender<ContainerEventResponse>>>);

impl Feed {
    /// Gives an event to every reader. One whose queue is full is cut off: its stream ends, and it lists anew.
    pub(crate) fn publish(&self, event: &ContainerEventResponse) {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|reader| match reader.try_send(event.clone()) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                tracing::warn!(waiting = QUEUE, "a reader of container events does not keep up and is cut off");
                false
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        });
    }

    /// A new reader, which gets what happens from now on.
    pub(crate) fn subscribe(&self) -> mpsc::Receiver<ContainerEventResponse> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        receiver
    }

    /// Whether anybody listens; when not, events need not be made.
    pub(crate) fn is_heard(&self) -> bool {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|reader| !reader.is_closed());
        !readers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_reader_gets_all_and_a_hopeless_one_is_cut_off() {
        let feed = Feed::default();
        assert!(!feed.is_heard());
        let mut slow = feed.subscribe();
        let event = |number: usize| ContainerEventResponse { created_at: number as i64, ..Default::default() };
        for number in 0..QUEUE {
            feed.publish(&event(number));
        }
        assert!(feed.is_heard());
        feed.publish(&event(QUEUE));
        assert!(!feed.is_heard(), "its queue was full");
        for number in 0..QUEUE {
            assert_eq!(slow.recv().await.unwrap().created_at, number as i64);
        }
        assert!(slow.recv().await.is_none());
    }
}
