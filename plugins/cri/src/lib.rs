//! The runtime service of the CRI.

#![forbid(unsafe_code)]
