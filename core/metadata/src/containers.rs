//! Containers of a namespace.

use std::time::SystemTime;

use core_types::{Error, Filter, Result, ResultExt, identifiers};

use crate::{
    container::Container,
    database::Bound,
    fields::{checked, immutable, set_extension, set_one},
    key::{self, Kind},
    writer::Durability,
};

/// The containers of a namespace.
#[derive(Clone)]
pub struct Containers(Bound);

impl Containers {
    pub(crate) fn new(bound: Bound) -> Self {
        Self(bound)
    }

    fn key(&self, id: &str) -> key::Key {
        key::named(Kind::Container, self.0.namespace(), id)
    }

    fn missing(&self, id: &str) -> Error {
        Error::not_found(format!("container {id:?} in namespace {:?}", self.0.namespace()))
    }

    /// One container.
    ///
    /// # Errors
    /// NotFound.
    pub async fn get(&self, id: &str) -> Result<Container> {
        self.0.db.read(|view| view.get(&self.key(id)))?.ok_or_else(|| self.missing(id))
    }

    /// Containers that any of the filters accepts, all when there is none, in order of id.
    ///
    /// # Errors
    /// InvalidArgument for a filter that does not parse.
    pub async fn list(&self, filters: &[String]) -> Result<Vec<Container>> {
        let filter = Filter::parse_all(filters)?;
        let mut found = Vec::new();
        self.0.db.read(|view| {
            view.scan(&key::prefix(Kind::Container, &[self.0.namespace()]), |_, container: Container| {
                if filter.matches(&container) {
                    found.push(container);
                }
                Ok(())
            })
        })?;
        Ok(found)
    }

    /// A new container; its times are set here.
    ///
    /// # Errors
    /// AlreadyExists; InvalidArgument for what breaks a rule.
    pub async fn create(&self, mut container: Container) -> Result<Container> {
        validate(&mut container).doing("create container failed validation")?;
        container.created_at = SystemTime::now();
        container.updated_at = container.created_at;
        let (key, namespace) = (self.key(&container.id), self.0.namespace().to_owned());
        let work = move |tx: &mut crate::store::Tx<'_, '_>| {
            if tx.has(&key)? {
                return Err(Error::already_exists(format!("container {:?}", container.id)));
            }
            tx.ensure_namespace(&namespace)?;
            tx.put(&key, &container)?;
            Ok(container.clone())
        };
        self.0.db.write(Durability::Full, work).await
    }

    /// Changes the fields that `fieldpaths` name (`labels`, `labels.<key>`, `spec`, `extensions`, `extensions.<key>`,
    /// `image`, `snapshotkey`), all of these when it is empty.
    ///
    /// # Errors
    /// NotFound; InvalidArgument for a field that cannot change.
    pub async fn update(&self, container: Container, fieldpaths: &[String]) -> Result<Container> {
        if container.id.is_empty() {
            return Err(Error::invalid_argument("must specify a container id"));
        }
        let (key, missing) = (self.key(&container.id), self.missing(&container.id).to_string());
        let fieldpaths = fieldpaths.to_vec();
        let work = move |tx: &mut crate::store::Tx<'_, '_>| {
            let mut updated: Container = tx.get(&key)?.ok_or_else(|| Error::not_found(missing.as_str()))?;
            apply(&mut updated, &container, &fieldpaths)?;
            validate(&mut updated).doing("update failed validation")?;
            updated.updated_at = SystemTime::now();
            tx.put(&key, &updated)?;
            Ok(updated)
        };
        self.0.db.write(Durability::Full, work).await
    }

    /// Removes a container's record.
    ///
    /// # Errors
    /// NotFound.
    pub async fn delete(&self, id: &str) -> Result<()> {
        let (key, missing) = (self.key(id), self.missing(id).to_string());
        let work = move |tx: &mut crate::store::Tx<'_, '_>| match tx.delete(&key)? {
            true => Ok(()),
            false => Err(Error::not_found(missing.as_str())),
        };
        self.0.db.remove(Durability::Full, work).await
    }
}

fn apply(updated: &mut Container, from: &Container, fieldpaths: &[String]) -> Result<()> {
    if fieldpaths.is_empty() {
        if updated.snapshotter != from.snapshotter {
            return Err(Error::invalid_argument("container.Snapshotter field is immutable"));
        }
        if updated.runtime.name != from.runtime.name {
            return Err(Error::invalid_argument("container.Runtime.Name field is immutable"));
        }
        let all = ["labels", "spec", "extensions", "image", "snapshotkey"].map(str::to_owned);
        return apply(updated, from, &all);
    }
    for path in fieldpaths {
        if let Some(key) = path.strip_prefix("labels.") {
            set_one(&mut updated.labels, key, &from.labels);
        } else if let Some(key) = path.strip_prefix("extensions.") {
            set_extension(&mut updated.extensions, key, &from.extensions);
        } else {
            match path.as_str() {
                "labels" => updated.labels.clone_from(&from.labels),
                "spec" => updated.spec.clone_from(&from.spec),
                "extensions" => updated.extensions.clone_from(&from.extensions),
                "image" => updated.image.clone_from(&from.image),
                "snapshotkey" => updated.snapshot_key.clone_from(&from.snapshot_key),
                _ => return Err(immutable(path, &format!("container {:?}", updated.id))),
            }
        }
    }
    Ok(())
}

fn validate(container: &mut Container) -> Result<()> {
    identifiers::validate(&container.id).doing("container.ID")?;
    if container.extensions.keys().any(String::is_empty) {
        return Err(Error::invalid_argument("container.Extension keys must not be zero-length"));
    }
    checked(&mut container.labels).doing("containers.Labels")?;
    if container.runtime.name.is_empty() {
        return Err(Error::invalid_argument("container.Runtime.Name must be set"));
    }
    if container.spec.is_none() {
        return Err(Error::invalid_argument("container.Spec must be set"));
    }
    if !container.snapshot_key.is_empty() && container.snapshotter.is_empty() {
        return Err(Error::invalid_argument("container.Snapshotter must be set when container.SnapshotKey is set"));
    }
    Ok(())
}
