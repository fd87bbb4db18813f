//! Image records, manifest walking, media types.

mod record;

pub use record::{Image, Store};
