//! Fields of records for filters, and labels for updates.

use std::{borrow::Cow, collections::BTreeMap};

use core_content::{Info, IngestStatus};
use core_events::Any;
use core_images::Image;
use core_snapshots::Kind;
use core_types::{
    Error, Labels, Result,
    filter::{Fields, label_field},
    labels,
};

/// A blob, an image, an ingest or a snapshot as a filter sees it.
pub(crate) struct Of<'a, T>(pub(crate) &'a T);

fn set(value: &str) -> Option<Cow<'_, str>> {
    (!value.is_empty()).then_some(Cow::Borrowed(value))
}

impl Fields for Of<'_, Info> {
    fn field(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        match path {
            ["digest"] => set(self.0.digest.as_str()),
            ["size"] => Some(Cow::Owned(self.0.size.to_string())),
            ["labels", rest @ ..] => label_field(&self.0.labels, rest),
            _ => None,
        }
    }
}

impl Fields for Of<'_, IngestStatus> {
    fn field(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        match path {
            ["ref"] => Some(Cow::Borrowed(&self.0.reference)),
            _ => None,
        }
    }
}

impl Fields for Of<'_, Image> {
    fn field(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        match path {
            ["name"] => set(&self.0.name),
            ["target", "digest"] => set(self.0.target.digest.as_str()),
            ["target", "mediatype"] => set(&self.0.target.media_type),
            ["labels", rest @ ..] => label_field(&self.0.labels, rest),
            ["annotations", rest @ ..] => label_field(&self.0.target.annotations, rest),
            _ => None,
        }
    }
}

impl Fields for Of<'_, core_snapshots::Info> {
    fn field(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        match path {
            ["kind"] => Some(Cow::Borrowed(match self.0.kind {
                Kind::View => "view",
                Kind::Active => "active",
                Kind::Committed => "committed",
            })),
            ["name"] => Some(Cow::Borrowed(&self.0.name)),
            ["parent"] => Some(Cow::Borrowed(&self.0.parent)),
            ["labels", rest @ ..] => label_field(&self.0.labels, rest),
            _ => None,
        }
    }
}

/// Checks the labels of an object and drops those without a value, which are how a label is removed.
pub(crate) fn checked(labels: &mut Labels) -> Result<()> {
    labels.retain(|_, value| !value.is_empty());
    labels::validate_all(labels)
}

/// Sets one label or annotation, or removes it.
pub(crate) fn set_one(labels: &mut Labels, key: &str, from: &Labels) {
    match from.get(key).filter(|value| !value.is_empty()) {
        Some(value) => labels.insert(key.to_owned(), value.clone()),
        None => labels.remove(key),
    };
}

/// Sets one extension, or removes it; unlike a label's, an empty value counts.
pub(crate) fn set_extension(extensions: &mut BTreeMap<String, Any>, key: &str, from: &BTreeMap<String, Any>) {
    match from.get(key) {
        Some(value) => extensions.insert(key.to_owned(), value.clone()),
        None => extensions.remove(key),
    };
}

/// Applies the paths of an object of which only labels can change.
pub(crate) fn update_labels(what: &str, labels: &mut Labels, from: &Labels, fieldpaths: &[String]) -> Result<()> {
    if fieldpaths.is_empty() {
        labels.clone_from(from);
    }
    for path in fieldpaths {
        match path.strip_prefix("labels.") {
            Some(key) => set_one(labels, key, from),
            None if path == "labels" => labels.clone_from(from),
            None => return Err(immutable(path, what)),
        }
    }
    checked(labels)
}

/// A path that names no field, or none that can change.
pub(crate) fn immutable(path: &str, what: &str) -> Error {
    Error::invalid_argument(format!("cannot update {path:?} field on {what}"))
}
