//! Leases of a namespace and what they hold.

use std::time::{Duration, SystemTime};

use core_leases::{Lease, Resource};
use core_types::{Error, Filter, Labels, Result, ResultExt};

use crate::{
    database::Bound,
    fields::checked,
    key::{self, Key, Kind},
    store::{Tx, View},
    writer::Durability,
};

/// How long a synchronous deletion waits for the collection.
const SYNC_BOUND: Duration = Duration::from_secs(60);

/// The leases of a namespace.
#[derive(Clone)]
pub struct Leases(Bound);

fn missing(id: &str) -> Error {
    Error::not_found(format!("lease {id:?}"))
}

/// The resources of a lease with their keys.
pub(crate) fn resources(view: &View<'_>, namespace: &str, lease: &str) -> Result<Vec<Resource>> {
    let mut found = Vec::new();
    view.scan(&key::prefix(Kind::LeaseResource, &[namespace, lease]), |_, resource| {
        found.push(resource);
        Ok(())
    })?;
    Ok(found)
}

impl Leases {
    pub(crate) fn new(bound: Bound) -> Self {
        Self(bound)
    }

    fn key(&self, id: &str) -> Key {
        key::named(Kind::Lease, self.0.namespace(), id)
    }

    /// A new lease; without an id it gets one.
    ///
    /// # Errors
    /// AlreadyExists; InvalidArgument for labels beyond their limit.
    pub async fn create(&self, id: Option<String>, mut labels: Labels) -> Result<Lease> {
        checked(&mut labels).doing("lease.Labels")?;
        let now = SystemTime::now();
        let id = id.filter(|id| !id.is_empty()).unwrap_or_else(|| {
            let nanos = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
            format!("{nanos}-{}", self.0.db.number())
        });
        key::check("lease id", &id)?;
        let (key, namespace) = (self.key(&id), self.0.namespace().to_owned());
        let lease = Lease { id, created_at: now, labels };
        let work = move |tx: &mut Tx<'_, '_>| {
            if tx.has(&key)? {
                return Err(Error::already_exists(format!("lease {:?}", lease.id)));
            }
            tx.ensure_namespace(&namespace)?;
            tx.put(&key, &lease)?;
            Ok(lease.clone())
        };
        self.0.db.write(Durability::Ordered, work).await
    }

    /// One lease.
    ///
    /// # Errors
    /// NotFound.
    pub async fn get(&self, id: &str) -> Result<Lease> {
        self.0.db.read(|view| view.get(&self.key(id)))?.ok_or_else(|| missing(id))
    }

    /// Leases that any of the filters accepts, all when there is none.
    ///
    /// # Errors
    /// InvalidArgument for a filter that does not parse.
    pub async fn list(&self, filters: &[String]) -> Result<Vec<Lease>> {
        let filter = Filter::parse_all(filters)?;
        let mut found = Vec::new();
        self.0.db.read(|view| {
            view.scan(&key::prefix(Kind::Lease, &[self.0.namespace()]), |_, lease: Lease| {
                if filter.matches(&lease) {
                    found.push(lease);
                }
                Ok(())
            })
        })?;
        Ok(found)
    }

    /// Ends a lease. What only it held is garbage then, except while a writer or a
    /// [hold](crate::Database::hold) that was opened under it is still there. With `sync`, the garbage is collected
    /// before the answer, or the wait has taken a minute.
    ///
    /// # Errors
    /// NotFound.
    pub async fn delete(&self, id: &str, sync: bool) -> Result<()> {
        let (key, bound, lease) = (self.key(id), self.0.clone(), id.to_owned());
        let work = move |tx: &mut Tx<'_, '_>| {
            if !tx.has(&key)? {
                return Err(missing(&lease));
            }
            let namespace = bound.namespace();
            let held = resources(&tx.view(), namespace, &lease)?;
            let held = held.iter().filter_map(|resource| key::of_resource(namespace, resource).ok());
            bound.db.inner.roots.orphan(&key, held);
            tx.delete_below(&key::prefix(Kind::LeaseResource, &[namespace, &lease]))?;
            tx.delete(&key).map(drop)
        };
        self.0.db.remove(Durability::Ordered, work).await?;
        if !sync {
            return Ok(());
        }
        match tokio::time::timeout(SYNC_BOUND, self.0.db.collect()).await {
            Ok(collected) => collected.map(drop),
            Err(_) => {
                tracing::warn!(lease = id, "the collection after a lease takes longer than a minute and goes on");
                Ok(())
            }
        }
    }

    async fn change(
        &self,
        id: &str,
        change: impl Fn(&mut Tx<'_, '_>, &str) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (key, namespace, lease) = (self.key(id), self.0.namespace().to_owned(), id.to_owned());
        let work = move |tx: &mut Tx<'_, '_>| {
            if !tx.has(&key)? {
                return Err(missing(&lease));
            }
            change(tx, &namespace)
        };
        self.0.db.remove(Durability::Ordered, work).await
    }

    /// Lets a lease hold a resource, which need not be there yet.
    ///
    /// # Errors
    /// NotFound for the lease; InvalidArgument or Unimplemented for what is no resource.
    pub async fn add_resource(&self, id: &str, resource: Resource) -> Result<()> {
        resource.parse()?;
        key::check("resource id", &resource.id)?;
        let lease = id.to_owned();
        self.change(id, move |tx, namespace| {
            let key = key::lease_resource(namespace, &lease, &resource);
            if tx.has(&key)? { Ok(()) } else { tx.put(&key, &resource) }
        })
        .await
    }

    /// Lets a lease hold a resource no longer. It is no error when it did not.
    ///
    /// # Errors
    /// NotFound for the lease; InvalidArgument or Unimplemented for what is no resource.
    pub async fn remove_resource(&self, id: &str, resource: Resource) -> Result<()> {
        resource.parse()?;
        let lease = id.to_owned();
        self.change(id, move |tx, namespace| tx.delete(&key::lease_resource(namespace, &lease, &resource)).map(drop))
            .await
    }

    /// What a lease holds.
    ///
    /// # Errors
    /// NotFound.
    pub async fn resources(&self, id: &str) -> Result<Vec<Resource>> {
        let namespace = self.0.namespace();
        self.0.db.read(|view| {
            if !view.has(&self.key(id))? {
                return Err(missing(id));
            }
            resources(view, namespace, id)
        })
    }
}

/// Removes the record of an expired lease with what it held.
pub(crate) fn expire(tx: &mut Tx<'_, '_>, namespace: &str, key: &Key) -> Result<()> {
    if let Some(lease) = tx.get::<Lease>(key)? {
        tx.delete_below(&key::prefix(Kind::LeaseResource, &[namespace, &lease.id]))?;
        tx.delete(key)?;
    }
    Ok(())
}

/// Whether `labels` say that an object has expired.
pub(crate) fn expiry(labels: &Labels) -> Option<SystemTime> {
    let text = labels.get(core_types::labels::GC_EXPIRE)?;
    let parsed = time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339);
    match parsed {
        Ok(time) => Some(time.into()),
        Err(_) => {
            tracing::info!(value = text.as_str(), "ignoring an expiration that is no RFC 3339 time");
            None
        }
    }
}
