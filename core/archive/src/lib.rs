//! OCI layer archives: apply, diff, compression.
//!
//! A layer is hostile until proven otherwise: nothing is allocated by what a header claims, names are resolved
//! one component at a time on directory descriptors below the target, and links in the archive or on disk
//! cannot lead out of it.

#![forbid(unsafe_code)]

/// Extracting a layer onto a directory.
mod apply;
/// Copying a tree with all that belongs to it.
mod copy;
/// Recognising and undoing compression.
mod decompress;
/// Writing the difference of two trees as a layer.
mod diff;
/// What an archive says of one file.
mod entry;
/// The crate's failures.
mod error;
/// The 512-byte header block.
mod header;
/// PAX extended header records.
mod pax;
/// Decompression, hashing and extraction side by side.
mod pipeline;
/// Reading entries and their data.
mod reader;
/// Maps of files with holes.
mod sparse;
/// The names by which layers delete.
mod whiteout;
/// Writing entries.
mod writer;

/// What the tests of several modules use.
#[cfg(test)]
mod testing;

pub use apply::{Applied, ApplyOptions, Whiteouts, apply};
pub use copy::copy_tree;
pub use decompress::{Compression, Decoder};
pub use diff::{DiffOptions, write_diff};
pub use entry::{Entry, Kind, Timestamp, Xattrs};
pub use error::{Error, Result};
pub use reader::Archive;
pub use sparse::Segment;
pub use writer::Writer;
