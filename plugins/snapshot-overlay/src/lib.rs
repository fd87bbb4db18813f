//! The overlayfs snapshotter.
