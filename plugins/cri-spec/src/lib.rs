//! From CRI requests to OCI specifications.

#![forbid(unsafe_code)]
