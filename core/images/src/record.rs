use std::time::SystemTime;

use async_trait::async_trait;
use core_types::{Descriptor, Labels, Result};

/// A name for content: the top of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its name, a full reference (`docker.io/library/busybox:latest`).
    pub name: String,
    /// Labels.
    pub labels: Labels,
    /// Index or manifest that the name stands for.
    pub target: Descriptor,
    /// When the name was made.
    pub created_at: SystemTime,
    /// When it changed last.
    pub updated_at: SystemTime,
}

/// Images by name. A handle is bound to a namespace and lease.
#[async_trait]
pub trait Store: Send + Sync {
    /// One image. NotFound when there is none of that name.
    async fn get(&self, name: &str) -> Result<Image>;
    /// Images that any of the filters accepts, all when there is none, in order of name.
    async fn list(&self, filters: &[String]) -> Result<Vec<Image>>;
    /// A new image; times are set by the store. AlreadyExists for a name in use.
    async fn create(&self, image: Image) -> Result<Image>;
    /// Changes the fields that `fieldpaths` name (`target`, `labels`, `labels.<key>`, `annotations…`), all when
    /// it is empty.
    async fn update(&self, image: Image, fieldpaths: &[String]) -> Result<Image>;
    /// Removes a name; with `target`, only while it stands for that digest.
    async fn delete(&self, name: &str, target: Option<&Descriptor>) -> Result<()>;
}
