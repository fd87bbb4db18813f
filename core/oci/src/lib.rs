//! Runtime spec generation.
