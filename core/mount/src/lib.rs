//! Mounts: performing, undoing, inspecting.
//!
//! All calls block; run them on a blocking thread.

#![forbid(unsafe_code)]

/// `/proc/self/mountinfo`.
mod mountinfo;
/// From option words to flags and data.
mod options;
/// Overlay mounts, also those with more layers than fit into one option string.
mod overlay;
/// Performing mounts.
mod perform;
/// A mount as snapshotters describe it and runtimes perform it.
mod spec;
/// Mounts for the length of a call.
mod temp;
/// Undoing mounts.
mod unmount;

pub use mountinfo::{MountInfo, parse_mounts, read_mounts};
pub use overlay::{OverlayDirs, overlay_dirs};
pub use perform::{mount_all, mount_one, path_in_root};
pub use spec::Mount;
pub use temp::{cleanup_temp_mounts, readonly, set_temp_mount_location, with_readonly_temp_mount, with_temp_mount};
pub use unmount::{remove_mount_point, unmount_all, unmount_mounts, unmount_rootfs};
