//! The image service of the CRI.

#![forbid(unsafe_code)]
