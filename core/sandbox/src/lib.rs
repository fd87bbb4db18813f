//! Sandboxes: groups of containers that share namespaces. Their record, and the trait of what runs them.

#![forbid(unsafe_code)]

/// What runs sandboxes.
mod controller;
/// Finding one by its name.
mod controllers;
/// What is stored of one.
mod record;

pub use controller::{Controller, CreateOptions, Instance, NOT_READY, READY, SandboxExit, SandboxStatus};
pub use controllers::Controllers;
pub use record::{Runtime, Sandbox};
