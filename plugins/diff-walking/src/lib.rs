//! The walking differ as a plugin.
