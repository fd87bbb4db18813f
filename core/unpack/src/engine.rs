use core_types::{Error, Result};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{Request, key_locks::KeyLocks};

/// How much at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Downloads at a time, over all pulls.
    pub downloads: usize,
    /// Layers extracted at a time, over all pulls; 1 extracts the layers of an image one after the other.
    pub unpacks: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { downloads: 3, unpacks: 4 }
    }
}

/// Pulls images. One engine serves all pulls of the daemon, so that its limits hold over all.
#[derive(Debug)]
pub struct Engine {
    pub(crate) downloads: Semaphore,
    pub(crate) unpacks: Semaphore,
    pub(crate) parallel: bool,
    pub(crate) locks: KeyLocks,
}

impl Engine {
    /// An engine with limits; 0 counts as 1.
    pub fn new(limits: Limits) -> Self {
        Self {
            downloads: Semaphore::new(limits.downloads.max(1)),
            unpacks: Semaphore::new(limits.unpacks.max(1)),
            parallel: limits.unpacks > 1,
            locks: KeyLocks::default(),
        }
    }

    /// Fetches what the request names, and unpacks it. Returns how many images were unpacked. When the future is
    /// dropped, the pull is cancelled and cleans up in the background.
    ///
    /// # Errors
    /// What the source says; FailedPrecondition for content that is not what its digest or diff id says;
    /// InvalidArgument for malformed manifests.
    pub async fn pull(self: &std::sync::Arc<Self>, request: Request) -> Result<usize> {
        let token = CancellationToken::new();
        let _guard = token.clone().drop_guard();
        let engine = std::sync::Arc::clone(self);
        let pull = tokio::spawn(async move { engine.run(request.into(), token).await });
        pull.await.map_err(|error| Error::internal(format!("pull: {error}")))?
    }
}

/// Ends with Cancelled as soon as the token says so.
pub(crate) async fn unless_cancelled<T>(token: &CancellationToken, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        biased;
        () = token.cancelled() => Err(Error::cancelled("the pull was cancelled")),
        done = work => done,
    }
}
