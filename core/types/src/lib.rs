//! Errors, identifiers, labels, filters, digests, descriptors and platforms: the words all other crates use.

#![forbid(unsafe_code)]

/// OCI descriptors and the media types of the field.
mod descriptor;
/// Content digests, `sha256:<hex>`.
mod digest;
/// Durations as Go writes them.
pub mod duration;
/// The one error type that crosses a trait, with the API's kinds.
mod error;
/// The filter language of list requests.
pub mod filter;
/// Names of containers, tasks, namespaces and the like.
pub mod identifiers;
/// Labels and their limits.
pub mod labels;
/// Platforms and which of several fits best.
pub mod platforms;
/// Where a request belongs: namespace and lease.
mod scope;

pub use descriptor::{Descriptor, media_types};
pub use digest::{Algorithm, Digest, Digester};
pub use error::{Error, ErrorKind, Result, ResultExt};
pub use filter::Filter;
pub use labels::Labels;
pub use platforms::Platform;
pub use scope::{Namespace, Scope};
