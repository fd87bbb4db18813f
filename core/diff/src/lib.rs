//! Applying layers to mounts and comparing mounts.

mod traits;

pub use traits::{Applier, Applied, ApplyOptions, CompareOptions, Comparer};
