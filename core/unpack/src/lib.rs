//! The fetch and unpack pipeline.
