//! The native snapshotter: plain copies.
