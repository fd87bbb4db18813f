//! Decides when garbage is collected.
//!
//! Deletions ask for a collection; it comes as soon as collections have not taken more than a share of the time
//! (`pause_threshold`), at once when asked for or beyond `deletion_threshold`. While nothing changes, nothing runs and
//! no timer is set.

#![forbid(unsafe_code)]

/// The five settings.
mod config;
/// The registration.
mod plugin;
/// The task that waits and collects.
mod scheduler;
#[cfg(test)]
mod tests;

pub use config::Config;
pub use plugin::registration;
pub use scheduler::Scheduler;
