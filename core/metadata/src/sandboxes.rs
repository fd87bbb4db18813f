//! Sandboxes of a namespace.

use std::time::SystemTime;

use core_sandbox::Sandbox;
use core_types::{Error, Filter, Result, ResultExt, identifiers};

use crate::{
    database::Bound,
    fields::{checked, immutable, set_extension, set_one},
    key::{self, Kind},
    store::Tx,
    writer::Durability,
};

/// The sandboxes of a namespace.
#[derive(Clone)]
pub struct Sandboxes(Bound);

fn missing(id: &str) -> Error {
    Error::not_found(format!("sandbox {id:?}"))
}

impl Sandboxes {
    pub(crate) fn new(bound: Bound) -> Self {
        Self(bound)
    }

    fn key(&self, id: &str) -> key::Key {
        key::named(Kind::Sandbox, self.0.namespace(), id)
    }

    /// One sandbox.
    ///
    /// # Errors
    /// NotFound.
    pub async fn get(&self, id: &str) -> Result<Sandbox> {
        self.0.db.read(|view| view.get(&self.key(id)))?.ok_or_else(|| missing(id))
    }

    /// Sandboxes that any of the filters accepts, all when there is none, in order of id.
    ///
    /// # Errors
    /// InvalidArgument for a filter that does not parse.
    pub async fn list(&self, filters: &[String]) -> Result<Vec<Sandbox>> {
        let filter = Filter::parse_all(filters)?;
        let mut found = Vec::new();
        self.0.db.read(|view| {
            view.scan(&key::prefix(Kind::Sandbox, &[self.0.namespace()]), |_, sandbox: Sandbox| {
                if filter.matches(&sandbox) {
                    found.push(sandbox);
                }
                Ok(())
            })
        })?;
        Ok(found)
    }

    /// A new sandbox; its times are set here.
    ///
    /// # Errors
    /// AlreadyExists; InvalidArgument for an id that is no identifier.
    pub async fn create(&self, mut sandbox: Sandbox) -> Result<Sandbox> {
        validate(&mut sandbox)?;
        sandbox.created_at = SystemTime::now();
        sandbox.updated_at = sandbox.created_at;
        let (key, namespace) = (self.key(&sandbox.id), self.0.namespace().to_owned());
        let work = move |tx: &mut Tx<'_, '_>| {
            if tx.has(&key)? {
                return Err(Error::already_exists(format!("sandbox {:?}", sandbox.id)));
            }
            tx.ensure_namespace(&namespace)?;
            tx.put(&key, &sandbox)?;
            Ok(sandbox.clone())
        };
        self.0.db.write(Durability::Full, work).await
    }

    /// Changes the fields that `fieldpaths` name (`labels`, `labels.<key>`, `extensions`, `extensions.<key>`, `spec`,
    /// `runtime`), all of these when it is empty.
    ///
    /// # Errors
    /// NotFound; InvalidArgument for a field that cannot change.
    pub async fn update(&self, sandbox: Sandbox, fieldpaths: &[String]) -> Result<Sandbox> {
        let (key, fieldpaths) = (self.key(&sandbox.id), fieldpaths.to_vec());
        let work = move |tx: &mut Tx<'_, '_>| {
            let mut updated: Sandbox = tx.get(&key)?.ok_or_else(|| missing(&sandbox.id))?;
            apply(&mut updated, &sandbox, &fieldpaths)?;
            validate(&mut updated)?;
            updated.updated_at = SystemTime::now();
            tx.put(&key, &updated)?;
            Ok(updated)
        };
        self.0.db.write(Durability::Full, work).await
    }

    /// Removes a sandbox's record.
    ///
    /// # Errors
    /// NotFound.
    pub async fn delete(&self, id: &str) -> Result<()> {
        let (key, id) = (self.key(id), id.to_owned());
        let work = move |tx: &mut Tx<'_, '_>| match tx.delete(&key)? {
            true => Ok(()),
            false => Err(missing(&id)),
        };
        self.0.db.remove(Durability::Full, work).await
    }
}

fn apply(updated: &mut Sandbox, from: &Sandbox, fieldpaths: &[String]) -> Result<()> {
    if fieldpaths.is_empty() {
        if updated.runtime.name != from.runtime.name {
            return Err(Error::invalid_argument("sandbox.Runtime.Name field is immutable"));
        }
        return apply(updated, from, &["labels", "extensions", "spec", "runtime"].map(str::to_owned));
    }
    for path in fieldpaths {
        if let Some(key) = path.strip_prefix("labels.") {
            set_one(&mut updated.labels, key, &from.labels);
        } else if let Some(key) = path.strip_prefix("extensions.") {
            set_extension(&mut updated.extensions, key, &from.extensions);
        } else {
            match path.as_str() {
                "labels" => updated.labels.clone_from(&from.labels),
                "extensions" => updated.extensions.clone_from(&from.extensions),
                "runtime" => updated.runtime.clone_from(&from.runtime),
                "spec" => updated.spec.clone_from(&from.spec),
                _ => return Err(immutable(path, &format!("sandbox {:?}", updated.id))),
            }
        }
    }
    Ok(())
}

fn validate(sandbox: &mut Sandbox) -> Result<()> {
    identifiers::validate(&sandbox.id).doing("invalid sandbox ID")?;
    checked(&mut sandbox.labels).doing("sandbox.Labels")
}
