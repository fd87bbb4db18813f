//! OCI layer archives: apply, diff, compression.
