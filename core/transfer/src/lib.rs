//! Transfers between registry, store and archive.
