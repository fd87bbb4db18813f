//! Bundles, shim management, tasks.
//!
//! A task is driven through its shim, a process of its own that outlives the daemon. The transport to the
//! shim is a trait, [`ShimClient`], made by a [`Connector`]; the ttrpc one is in `plugins/shim-transport`.

/// What a shim does for its daemon, in plain types.
mod client;

pub use client::{
    Any, Connector, CreateRequest, ExecRequest, ExitStatus, Io, KillRequest, Process, ShimClient, ShimInfo, State,
    Status,
};
