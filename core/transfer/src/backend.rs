use std::{any::Any, sync::Arc};

use async_trait::async_trait;
use core_types::{Descriptor, Result, Scope};
use core_unpack::UnpackTarget;

use crate::UnpackConfiguration;

/// What transfers need of the daemon: its stores, by scope.
#[async_trait]
pub trait Backend: Send + Sync {
    /// The content store.
    fn content(&self, scope: &Scope) -> Arc<dyn core_content::Store>;

    /// The image store.
    fn images(&self, scope: &Scope) -> Arc<dyn core_images::Store>;

    /// What unpacks as the client wishes; none when this daemon does not do that.
    ///
    /// # Errors
    /// When the snapshotter is known and cannot be had.
    fn unpack_target(&self, scope: &Scope, wanted: &UnpackConfiguration) -> Result<Option<UnpackTarget>>;

    /// Keeps what the scope's lease holds from being collected until it is dropped, even when the lease is deleted.
    fn hold(&self, scope: &Scope) -> Arc<dyn Any + Send + Sync>;

    /// Makes a lease that expires by itself after a day, and returns its id.
    ///
    /// # Errors
    /// What the lease store says.
    async fn create_lease(&self, scope: &Scope) -> Result<String>;

    /// Deletes a lease of [`create_lease`](Self::create_lease).
    async fn delete_lease(&self, scope: &Scope, id: &str);
}

/// Decides whether an image may be pulled.
#[async_trait]
pub trait Verifier: Send + Sync {
    /// Looks at what a name was resolved to, before anything else is fetched.
    ///
    /// # Errors
    /// PermissionDenied with the reason when it may not be pulled; other kinds when there is no judgement, which
    /// blocks the pull too.
    async fn verify(&self, name: &str, target: &Descriptor) -> Result<()>;
}
