//! Decides when garbage is collected.
