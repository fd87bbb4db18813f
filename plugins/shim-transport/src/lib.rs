//! Speaks ttrpc with shims.
