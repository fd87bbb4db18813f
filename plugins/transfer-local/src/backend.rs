use std::{
    any::Any,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use core_diff::Applier;
use core_images::PlatformSet;
use core_metadata::Database;
use core_transfer::{Backend, UnpackConfiguration};
use core_types::{Error, Labels, Platform, Result, Scope, labels};
use core_unpack::UnpackTarget;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// How long a transfer's lease lasts when nobody deletes it.
const LEASE_TIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The snapshotter that is taken when a client names none.
pub(crate) const DEFAULT_SNAPSHOTTER: &str = "overlayfs";

/// What this daemon unpacks for.
#[derive(Clone)]
pub struct Unpack {
    /// Images that a client may ask it for.
    pub platform: Platform,
    /// Whether only exactly that platform, and not all of its operating system.
    pub exact: bool,
    /// Name of the snapshotter.
    pub snapshotter: String,
    /// What extracts.
    pub applier: Arc<dyn Applier>,
    /// Whether layers are flushed to disk before they are committed.
    pub sync: bool,
}

impl fmt::Debug for Unpack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unpack")
            .field("platform", &self.platform)
            .field("snapshotter", &self.snapshotter)
            .finish_non_exhaustive()
    }
}

impl Unpack {
    fn accepts(&self, platform: &Platform) -> bool {
        if self.exact {
            PlatformSet::of(std::slice::from_ref(&self.platform)).matches(platform)
        } else {
            platform.os == self.platform.os
        }
    }
}

/// The daemon's stores.
pub struct DaemonBackend {
    database: Database,
    unpacks: Vec<Unpack>,
}

impl fmt::Debug for DaemonBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DaemonBackend").field("unpacks", &self.unpacks).finish_non_exhaustive()
    }
}

impl DaemonBackend {
    /// Stores of `database`, unpacking as `unpacks` say.
    pub fn new(database: Database, unpacks: Vec<Unpack>) -> Self {
        Self { database, unpacks }
    }
}

#[async_trait]
impl Backend for DaemonBackend {
    fn content(&self, scope: &Scope) -> Arc<dyn core_content::Store> {
        self.database.content(scope)
    }

    fn images(&self, scope: &Scope) -> Arc<dyn core_images::Store> {
        self.database.images(scope)
    }

    fn unpack_target(&self, scope: &Scope, wanted: &UnpackConfiguration) -> Result<Option<UnpackTarget>> {
        let platform =
            if wanted.platform == Platform::default() { Platform::host() } else { wanted.platform.normalize() };
        let mut fitting: Vec<&Unpack> = self
            .unpacks
            .iter()
            .filter(|unpack| unpack.accepts(&platform))
            .filter(|unpack| wanted.snapshotter.is_empty() || wanted.snapshotter == unpack.snapshotter)
            .collect();
        fitting.sort_by_key(|unpack| unpack.snapshotter != DEFAULT_SNAPSHOTTER);
        let Some(unpack) = fitting.first() else { return Ok(None) };
        Ok(Some(UnpackTarget {
            platforms: PlatformSet::of(&[platform]),
            name: unpack.snapshotter.clone(),
            snapshotter: self.database.snapshotter(scope, &unpack.snapshotter)?,
            applier: Arc::clone(&unpack.applier),
            sync: unpack.sync,
        }))
    }

    fn hold(&self, scope: &Scope) -> Arc<dyn Any + Send + Sync> {
        Arc::new(self.database.hold(scope))
    }

    async fn create_lease(&self, scope: &Scope) -> Result<String> {
        let expires = OffsetDateTime::from(SystemTime::now() + LEASE_TIME)
            .format(&Rfc3339)
            .map_err(|error| Error::internal(format!("time of a lease: {error}")))?;
        let labels = Labels::from([(labels::GC_EXPIRE.to_owned(), expires)]);
        Ok(self.database.leases(scope).create(None, labels).await?.id)
    }

    async fn delete_lease(&self, scope: &Scope, id: &str) {
        if let Err(error) = self.database.leases(scope).delete(id, false).await
            && !error.is_not_found()
        {
            tracing::warn!(id, %error, "cannot delete the lease of a transfer; it expires within a day");
        }
    }
}
