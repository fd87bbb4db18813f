//! Images of a namespace.

use std::time::SystemTime;

use async_trait::async_trait;
use core_events::Event;
use core_images::{Image, Store};
use core_leases::Resource;
use core_types::{Descriptor, Error, Filter, Result, ResultExt, labels};

use crate::{
    database::Bound,
    fields::{Of, checked, immutable, set_one},
    key::{self, Kind},
    store::Tx,
    writer::Durability,
};

/// The images of a namespace.
pub(crate) struct Images(Bound);

impl Images {
    pub(crate) fn new(bound: Bound) -> Self {
        Self(bound)
    }

    fn key(&self, name: &str) -> key::Key {
        key::named(Kind::Image, self.0.namespace(), name)
    }
}

fn missing(name: &str) -> Error {
    Error::not_found(format!("image {name:?}"))
}

/// An image that expires is held by the lease under which it was made; others hold themselves.
fn lease(bound: &Bound, tx: &mut Tx<'_, '_>, image: &Image) -> Result<()> {
    if image.labels.contains_key(labels::GC_EXPIRE) {
        bound.add_to_lease(tx, &Resource::image(&image.name))?;
    }
    Ok(())
}

#[async_trait]
impl Store for Images {
    async fn get(&self, name: &str) -> Result<Image> {
        let key = self.key(name);
        self.0.see(&key).await?;
        self.0.db.read(|view| view.get(&key))?.ok_or_else(|| missing(name))
    }

    async fn list(&self, filters: &[String]) -> Result<Vec<Image>> {
        let filter = Filter::parse_all(filters)?;
        let mut found = Vec::new();
        self.0.db.read(|view| {
            view.scan(&key::prefix(Kind::Image, &[self.0.namespace()]), |_, image: Image| {
                if filter.matches(&Of(&image)) {
                    found.push(image);
                }
                Ok(())
            })
        })?;
        Ok(found)
    }

    async fn create(&self, mut image: Image) -> Result<Image> {
        validate(&mut image)?;
        image.created_at = SystemTime::now();
        image.updated_at = image.created_at;
        let (key, bound) = (self.key(&image.name), self.0.clone());
        let work = move |tx: &mut Tx<'_, '_>| {
            if tx.has(&key)? {
                return Err(Error::already_exists(format!("image {:?}", image.name)));
            }
            tx.ensure_namespace(bound.namespace())?;
            lease(&bound, tx, &image)?;
            tx.put(&key, &image)?;
            Ok(image.clone())
        };
        let image = self.0.db.write(Durability::Full, work).await?;
        let event = Event::ImageCreate { name: image.name.clone(), labels: image.labels.clone() };
        self.0.publish("/images/create", event);
        Ok(image)
    }

    async fn update(&self, image: Image, fieldpaths: &[String]) -> Result<Image> {
        if image.name.is_empty() {
            return Err(Error::invalid_argument("image name is required for update"));
        }
        let (key, bound, fieldpaths) = (self.key(&image.name), self.0.clone(), fieldpaths.to_vec());
        let work = move |tx: &mut Tx<'_, '_>| {
            let before: Image = tx.get(&key)?.ok_or_else(|| missing(&image.name))?;
            let mut updated = apply(before, &image, &fieldpaths)?;
            validate(&mut updated)?;
            lease(&bound, tx, &updated)?;
            updated.updated_at = SystemTime::now();
            tx.put(&key, &updated)?;
            Ok(updated)
        };
        // Another target, or a label less, may leave garbage.
        let image = self.0.db.remove(Durability::Full, work).await?;
        let event = Event::ImageUpdate { name: image.name.clone(), labels: image.labels.clone() };
        self.0.publish("/images/update", event);
        Ok(image)
    }

    async fn delete(&self, name: &str, target: Option<&Descriptor>) -> Result<()> {
        let (key, bound, wanted) = (self.key(name), self.0.clone(), target.map(|target| target.digest.clone()));
        let image = name.to_owned();
        let work = move |tx: &mut Tx<'_, '_>| {
            let found: Image = tx.get(&key)?.ok_or_else(|| missing(&image))?;
            if let Some(wanted) = wanted.as_ref().filter(|wanted| **wanted != found.target.digest) {
                let has = &found.target.digest;
                return Err(Error::not_found(format!("image {image:?} has target {has}, not {wanted}")));
            }
            bound.remove_from_lease(tx, &Resource::image(&image))?;
            tx.delete(&key).map(drop)
        };
        self.0.db.remove(Durability::Full, work).await?;
        self.0.publish("/images/delete", Event::ImageDelete { name: name.to_owned() });
        Ok(())
    }
}

fn apply(mut updated: Image, from: &Image, fieldpaths: &[String]) -> Result<Image> {
    if fieldpaths.is_empty() {
        return Ok(Image { created_at: updated.created_at, ..from.clone() });
    }
    for path in fieldpaths {
        if let Some(key) = path.strip_prefix("labels.") {
            set_one(&mut updated.labels, key, &from.labels);
        } else if let Some(key) = path.strip_prefix("annotations.") {
            set_one(&mut updated.target.annotations, key, &from.target.annotations);
        } else {
            match path.as_str() {
                "labels" => updated.labels.clone_from(&from.labels),
                "target" => updated.target.clone_from(&from.target),
                "annotations" => updated.target.annotations.clone_from(&from.target.annotations),
                _ => return Err(immutable(path, &format!("image {:?}", from.name))),
            }
        }
    }
    Ok(updated)
}

fn validate(image: &mut Image) -> Result<()> {
    key::check("image name", &image.name)?;
    checked(&mut image.labels).doing("image.Labels")?;
    if image.target.size == 0 {
        return Err(Error::invalid_argument("target.Size must be greater than zero"));
    }
    if image.target.media_type.is_empty() {
        return Err(Error::invalid_argument("target.MediaType must be set"));
    }
    Ok(())
}
