use async_trait::async_trait;
use core_events::Any;
use core_types::Result;

/// A stream of messages in both directions. All methods may be called at the same time; one caller for each
/// direction is meant.
#[async_trait]
pub trait Stream: Send + Sync {
    /// Sends a message; waits while the peer is slow.
    ///
    /// # Errors
    /// Cancelled when the peer is gone.
    async fn send(&self, message: Any) -> Result<()>;

    /// The next message, `None` when the peer has closed its side.
    ///
    /// # Errors
    /// What ended the stream before its time.
    async fn receive(&self) -> Result<Option<Any>>;

    /// Says that no more will be sent. What was sent still arrives.
    async fn close(&self);
}
