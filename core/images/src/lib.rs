//! Image records, manifest walking, media types.
//!
//! What a manifest, an index or a configuration says comes from outside: documents are bounded in size, number
//! of children and depth, and one that could be read as two kinds is refused.

#![forbid(unsafe_code)]

/// Whether all blobs of an image are there, and what they weigh.
mod check;
/// Image configurations: platform, diff ids, chain ids.
mod config;
/// Manifests and indexes.
mod document;
/// The labels that tie a document to its children for garbage collection.
mod gc_labels;
/// What media types say beyond `core_types::media_types`.
mod kinds;
/// Which platforms are wanted, best first.
mod platform_set;
/// Image records.
mod record;
/// From a top descriptor to the manifest for a platform, and through the whole tree.
mod walk;

pub use check::{Check, check, usage};
pub use config::{ImageConfig, chain_ids};
pub use document::{Document, MAX_CHILDREN, MAX_DOCUMENT, read_document};
pub use gc_labels::{REFERRER_SUBJECT, child_labels, label_children};
pub use kinds::{is_foreign_layer, is_known_config, is_layer, is_tree};
pub use platform_set::PlatformSet;
pub use record::{Image, Store};
pub use walk::{MAX_DEPTH, Selected, children, read_blob, read_config, select, walk};
