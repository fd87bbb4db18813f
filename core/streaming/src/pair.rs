use async_trait::async_trait;
use core_events::Any;
use core_types::{Error, Result};
use tokio::sync::{Mutex, mpsc};

use crate::Stream;

/// One end of a [`pair`].
#[derive(Debug)]
pub struct End {
    sender: Mutex<Option<mpsc::Sender<Result<Any>>>>,
    receiver: Mutex<mpsc::Receiver<Result<Any>>>,
}

/// Two connected ends; each direction holds up to `capacity` messages.
pub fn pair(capacity: usize) -> (End, End) {
    let (to_right, from_left) = mpsc::channel(capacity.max(1));
    let (to_left, from_right) = mpsc::channel(capacity.max(1));
    let end = |sender, receiver| End { sender: Mutex::new(Some(sender)), receiver: Mutex::new(receiver) };
    (end(to_right, from_right), end(to_left, from_left))
}

impl End {
    /// Ends this direction with an error, which the peer receives after what was sent before.
    pub async fn fail(&self, error: Error) {
        let sender = self.sender.lock().await.take();
        if let Some(sender) = sender {
            let _ = sender.send(Err(error)).await;
        }
    }
}

#[async_trait]
impl Stream for End {
    async fn send(&self, message: Any) -> Result<()> {
        let sender = self.sender.lock().await.clone();
        let gone = || Error::cancelled("the stream is closed");
        sender.ok_or_else(gone)?.send(Ok(message)).await.map_err(|_| gone())
    }

    async fn receive(&self) -> Result<Option<Any>> {
        self.receiver.lock().await.recv().await.transpose()
    }

    async fn close(&self) {
        self.sender.lock().await.take();
    }
}
