//! ttrpc: client and server on tokio, for prost messages.
//!
//! The protocol (containerd/ttrpc `PROTOCOL.md`): a ten byte header — length u32, stream id u32, type u8,
//! flags u8, big endian — and a body of at most 4 MiB; type 1 is a request, 2 a response. Unary calls only.
//! Everything works on a current-thread runtime; nothing a peer sends can make it panic or lose step.

mod client;
mod frame;
mod server;
mod wire;

pub use client::Client;
pub use frame::MAX_BODY;
pub use server::{MAX_CONCURRENT, Router, Server};

use std::{collections::BTreeMap, time::Duration};

/// What travels beside a request: deadline and metadata (`containerd-namespace-ttrpc` …).
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// How long the caller waits; none is for ever.
    pub timeout: Option<Duration>,
    /// Metadata; a key can have several values.
    pub metadata: BTreeMap<String, Vec<String>>,
}

impl Context {
    /// A context whose call ends after `timeout`.
    pub fn with_timeout(timeout: Duration) -> Self {
        Self { timeout: Some(timeout), metadata: BTreeMap::new() }
    }

    /// The first value of a metadata key.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.metadata.get(key)?.first().map(String::as_str)
    }
}

/// A gRPC status: code, message.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{message}")]
pub struct Status {
    /// A gRPC code (5 is NotFound).
    pub code: i32,
    /// What went wrong.
    pub message: String,
}

/// The gRPC code InvalidArgument.
pub(crate) const INVALID_ARGUMENT: i32 = 3;
/// The gRPC code DeadlineExceeded.
pub(crate) const DEADLINE_EXCEEDED: i32 = 4;
/// The gRPC code ResourceExhausted.
pub(crate) const RESOURCE_EXHAUSTED: i32 = 8;
/// The gRPC code Internal.
pub(crate) const INTERNAL: i32 = 13;
/// The gRPC code Unavailable.
pub(crate) const UNAVAILABLE: i32 = 14;

impl Status {
    /// A status of `code`.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
    /// Code 12.
    pub fn unimplemented(message: impl Into<String>) -> Self {
        Self::new(12, message)
    }
}
