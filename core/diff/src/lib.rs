//! Applying layers to mounts and comparing mounts.

#![forbid(unsafe_code)]

/// From mounts to a directory, and a layer onto it.
mod apply;
/// From two lists of mounts to a layer in the content store.
mod compare;
/// The contracts.
mod traits;
/// The differ that works on any file system, by walking trees.
mod walking;

pub use traits::{Applied, Applier, ApplyOptions, CompareOptions, Comparer, Differ};
pub use walking::WalkingDiffer;
