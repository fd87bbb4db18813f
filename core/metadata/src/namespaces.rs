//! Namespaces and their labels.

use core_events::Event;
use core_types::{Error, Labels, Namespace, Result, ResultExt};

use crate::{
    database::Database,
    fields::{checked, update_labels},
    key::{self, Kind},
    record::NamespaceRecord,
    store::{Tx, View},
    writer::Durability,
};

/// The namespaces.
#[derive(Clone)]
pub struct Namespaces(Database);

fn missing(name: &str) -> Error {
    Error::not_found(format!("namespace {name:?}"))
}

impl Namespaces {
    pub(crate) fn new(database: Database) -> Self {
        Self(database)
    }

    /// A new namespace. The first object in one makes it, too.
    ///
    /// # Errors
    /// AlreadyExists; InvalidArgument for a name that is no identifier.
    pub async fn create(&self, name: &str, labels: Labels) -> Result<()> {
        let namespace = Namespace::new(name)?;
        let mut record = NamespaceRecord { name: name.to_owned(), labels };
        checked(&mut record.labels).doing("namespace.Labels")?;
        let labels = record.labels.clone();
        let key = key::namespace(name);
        let work = move |tx: &mut Tx<'_, '_>| {
            if tx.has(&key)? {
                return Err(Error::already_exists(format!("namespace {:?}", record.name)));
            }
            tx.put(&key, &record)
        };
        self.0.write(Durability::Full, work).await?;
        self.0.publish(&namespace, "/namespaces/create", Event::NamespaceCreate { name: name.to_owned(), labels });
        Ok(())
    }

    /// A namespace's labels.
    ///
    /// # Errors
    /// NotFound.
    pub async fn get(&self, name: &str) -> Result<Labels> {
        let record: Option<NamespaceRecord> = self.0.read(|view| view.get(&key::namespace(name)))?;
        record.map(|record| record.labels).ok_or_else(|| missing(name))
    }

    /// Changes the labels that `fieldpaths` name (`labels`, `labels.<key>`), all when it is empty.
    ///
    /// # Errors
    /// NotFound; InvalidArgument for another field.
    pub async fn update(&self, name: &str, labels: Labels, fieldpaths: &[String]) -> Result<Labels> {
        let namespace = Namespace::new(name)?;
        let (key, fieldpaths, name) = (key::namespace(name), fieldpaths.to_vec(), name.to_owned());
        let work = move |tx: &mut Tx<'_, '_>| {
            let mut record: NamespaceRecord = tx.get(&key)?.ok_or_else(|| missing(&name))?;
            update_labels("namespace", &mut record.labels, &labels, &fieldpaths)?;
            tx.put(&key, &record)?;
            Ok(record.labels)
        };
        let labels = self.0.write(Durability::Full, work).await?;
        let event = Event::NamespaceUpdate { name: namespace.as_str().to_owned(), labels: labels.clone() };
        self.0.publish(&namespace, "/namespaces/update", event);
        Ok(labels)
    }

    /// All namespaces with their labels, in order of name.
    ///
    /// # Errors
    /// What the database says.
    pub async fn list(&self) -> Result<Vec<(String, Labels)>> {
        self.0.read(|view| {
            let mut found = Vec::new();
            view.scan(&key::prefix(Kind::Namespace, &[]), |_, record: NamespaceRecord| {
                found.push((record.name, record.labels));
                Ok(())
            })?;
            Ok(found)
        })
    }

    /// Removes an empty namespace, with the leases, ingests and sandboxes that are left in it.
    ///
    /// # Errors
    /// NotFound; FailedPrecondition that says which kinds of object are left.
    pub async fn delete(&self, name: &str) -> Result<()> {
        let namespace = Namespace::new(name)?;
        let (key, namespace_name) = (key::namespace(name), name.to_owned());
        let work = move |tx: &mut Tx<'_, '_>| {
            let name = namespace_name.as_str();
            if !tx.has(&key)? {
                return Err(missing(name));
            }
            let left = left(&tx.view(), name)?;
            if !left.is_empty() {
                let left = left.join(", ");
                return Err(Error::failed_precondition(format!(
                    "namespace {name:?} must be empty, but it still has {left}"
                )));
            }
            for kind in [Kind::Lease, Kind::LeaseResource, Kind::Ingest, Kind::Sandbox] {
                tx.delete_below(&key::prefix(kind, &[name]))?;
            }
            tx.delete(&key).map(drop)
        };
        self.0.remove(Durability::Full, work).await?;
        self.0.inner.ingest_trash.sweep_all_again();
        self.0.publish(&namespace, "/namespaces/delete", Event::NamespaceDelete { name: name.to_owned() });
        Ok(())
    }
}

/// The kinds of object that keep a namespace from being removed.
fn left(view: &View<'_>, name: &str) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for (kind, text) in [(Kind::Image, "images"), (Kind::Blob, "blobs"), (Kind::Container, "containers")] {
        if view.any(&key::prefix(kind, &[name]))? {
            left.push(text.to_owned());
        }
    }
    let mut last = String::new();
    let mut failed = Ok(());
    view.keys(&key::prefix(Kind::Snapshot, &[name]), |found| match key::part(found, 1) {
        Ok(snapshotter) if snapshotter != last => {
            left.push(format!("snapshots on {snapshotter:?} snapshotter"));
            snapshotter.clone_into(&mut last);
        }
        Ok(_) => {}
        Err(error) => failed = Err(error),
    })?;
    failed.map(|()| left)
}
