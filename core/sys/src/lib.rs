//! The few system calls that need unsafe, each behind a safe function.
//!
//! What `rustix` or `nix` offer safely is called there, not wrapped here.

/// Descriptors that cross an exec: taking inherited ones, keeping ours from children.
mod fds;
/// Handing freed memory back to the kernel.
mod memory;
/// `mount_setattr(2)`.
mod mount;
/// A mount namespace of one's own.
mod namespace;
/// What a child does between fork and exec.
mod spawn;
/// User namespaces and the network namespaces they own.
mod user_namespace;

pub use fds::{close_on_exec_from, close_on_exec_of_file, take_inherited_fd};
pub use memory::{limit_arenas, release_program_pages, trim_memory};
pub use mount::{MountAttributes, Propagation, mount_setattr};
pub use namespace::{in_user_namespace, private_mount_namespace};
pub use spawn::{give_fd, new_session};
pub use user_namespace::{IdRange, UserMappings, with_owned_network_namespace};
