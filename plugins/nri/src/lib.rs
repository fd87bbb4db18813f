//! NRI: plugins that see and adjust pods and containers.
//!
//! [`Nri`] is the handle of the runtime: it starts the plugins of a directory, takes in those that connect to the
//! socket, and passes the hooks of pods and containers to all of them in the order of their index. What they want of
//! a container is merged into one adjustment, two that set the same being an error, and [`apply`] writes that into a
//! runtime specification. A plugin that gives no answer in time or hangs up is let go and the request goes on.
//!
//! The protocol is NRI's `nri.pkg.api.v1alpha1` over ttrpc, both directions over one socket ([`mux`]).

#![forbid(unsafe_code)]

/// Adjustments written into runtime specifications.
mod apply;
/// The configuration.
mod config;
/// Names of events and masks of them.
mod events;
/// Plugins of a directory.
mod launch;
/// What plugins want, merged.
mod merge;
pub mod mux;
/// The handle of the runtime.
mod nri;
/// Who set which field.
mod owners;
/// One plugin.
mod peer;
/// The built-in validator.
mod validator;

pub use apply::{Host, Resolver, apply, apply_with};
pub use config::{Config, ValidatorConfig};
pub use nri::{Adjusted, Factory, Nri, RuntimeCallbacks, SyncBlock, registration};
