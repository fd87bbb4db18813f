use std::{borrow::Cow, time::SystemTime};

use core_types::{
    Digest, Error, Labels, Result,
    filter::{Fields, label_field},
};

/// Holds resources until it is deleted or expires (label `containerd.io/gc.expire`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its id.
    pub id: String,
    /// When it was made.
    pub created_at: SystemTime,
    /// Labels.
    pub labels: Labels,
}

impl Fields for Lease {
    fn field(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        match path {
            ["id"] => Some(Cow::Borrowed(&self.id)),
            ["labels", rest @ ..] => label_field(&self.labels, rest),
            _ => None,
        }
    }
}

/// Something that a lease holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// A digest, a snapshot's key, an ingest's reference, an image's name.
    pub id: String,
    /// `content`, `ingests`, `snapshots/<snapshotter>`, `images`.
    pub kind: String,
}

/// The kinds of resource, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResourceKind<'a> {
    /// A blob, by digest.
    Content,
    /// An ingest, by reference.
    Ingest,
    /// A snapshot of this snapshotter, by key.
    Snapshot(&'a str),
    /// An image, by name.
    Image,
}

impl Resource {
    /// A blob.
    pub fn content(digest: &Digest) -> Self {
        Self { id: digest.as_str().to_owned(), kind: "content".to_owned() }
    }

    /// An ingest.
    pub fn ingest(reference: &str) -> Self {
        Self { id: reference.to_owned(), kind: "ingests".to_owned() }
    }

    /// A snapshot.
    pub fn snapshot(snapshotter: &str, key: &str) -> Self {
        Self { id: key.to_owned(), kind: format!("snapshots/{snapshotter}") }
    }

    /// An image.
    pub fn image(name: &str) -> Self {
        Self { id: name.to_owned(), kind: "images".to_owned() }
    }

    /// Checks and takes the kind apart.
    ///
    /// # Errors
    /// InvalidArgument for an empty id, a digest that is none or a snapshot without snapshotter; Unimplemented for
    /// any other kind.
    pub fn parse(&self) -> Result<ResourceKind<'_>> {
        if self.id.is_empty() {
            return Err(Error::invalid_argument(format!("resource of type {} without an id", self.kind)));
        }
        match self.kind.split_once('/') {
            None if self.kind == "content" => {
                Digest::parse(&self.id)?;
                Ok(ResourceKind::Content)
            }
            None if self.kind == "ingests" => Ok(ResourceKind::Ingest),
            None if self.kind == "images" => Ok(ResourceKind::Image),
            Some(("snapshots", name)) if !name.is_empty() && !name.contains('/') => Ok(ResourceKind::Snapshot(name)),
            _ if self.kind.starts_with("snapshots") => Err(Error::invalid_argument(format!(
                "invalid snapshot resource type {:?}, it must be snapshots/<snapshotter>",
                self.kind
            ))),
            _ => Err(Error::unimplemented(format!("resource type {:?} is not supported", self.kind))),
        }
    }
}

#[cfg(test)]
mod tests {
    use core_types::ErrorKind;

    use super::*;

    #[test]
    fn kinds_parse() {
        assert_eq!(Resource::snapshot("overlayfs", "a").parse().unwrap(), ResourceKind::Snapshot("overlayfs"));
        assert_eq!(Resource::content(&Digest::of(b"x")).parse().unwrap(), ResourceKind::Content);
        assert_eq!(Resource::ingest("r").parse().unwrap(), ResourceKind::Ingest);
        assert_eq!(Resource::image("i").parse().unwrap(), ResourceKind::Image);
    }

    #[test]
    fn what_is_no_resource_is_refused() {
        let kind = |kind: &str, id: &str| Resource { id: id.into(), kind: kind.into() }.parse().unwrap_err().kind();
        assert_eq!(kind("content", "x"), ErrorKind::InvalidArgument);
        assert_eq!(kind("snapshots", "x"), ErrorKind::InvalidArgument);
        assert_eq!(kind("snapshots/", "x"), ErrorKind::InvalidArgument);
        assert_eq!(kind("volumes", "x"), ErrorKind::Unimplemented);
        assert_eq!(kind("images", ""), ErrorKind::InvalidArgument);
    }
}
