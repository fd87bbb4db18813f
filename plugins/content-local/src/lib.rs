//! The local content store as a plugin.
//!
//! The store itself is `core_content::LocalStore`. It has no namespaces and no labels; clients reach it through
//! the metadata database, which has both.

#![forbid(unsafe_code)]

/// The registration.
mod plugin;

pub use plugin::registration;
