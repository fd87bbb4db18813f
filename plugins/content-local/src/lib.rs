//! The local content store as a plugin.
