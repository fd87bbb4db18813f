//! Mounts: performing, undoing, inspecting.

/// A mount as snapshotters describe it and runtimes perform it.
mod spec;

pub use spec::Mount;
