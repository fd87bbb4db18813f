//! ttrpc: client and server on tokio, for prost messages.
//!
//! The protocol (containerd/ttrpc `PROTOCOL.md`): a ten byte header — length u32, stream id u32, type u8,
//! flags u8, big endian — and a body of at most 4 MiB; type 1 is a request, 2 a response. Unary calls only.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use prost::Message;

/// What travels beside a request: deadline and metadata (`containerd-namespace-ttrpc` …).
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// How long the caller waits; none is for ever.
    pub timeout: Option<Duration>,
    /// Metadata; a key can have several values.
    pub metadata: BTreeMap<String, Vec<String>>,
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

/// One connection to a server; clones share it.
#[derive(Clone, Debug)]
pub struct Client(Arc<()>);

impl Client {
    /// Calls a unary method.
    ///
    /// # Errors
    /// The server's status, Unavailable when the connection is gone, DeadlineExceeded.
    pub async fn call<Q: Message, A: Message + Default>(
        &self,
        _service: &str,
        _method: &str,
        _context: &Context,
        _request: &Q,
    ) -> Result<A, Status> {
        Err(Status::unimplemented("not written"))
    }
}

/// The methods that a server offers.
#[derive(Default)]
pub struct Router {}

impl Router {
    /// Adds a unary method.
    pub fn unary<Q, A, F, R>(&mut self, _service: &'static str, _method: &'static str, _handler: F)
    where
        Q: Message + Default + 'static,
        A: Message + 'static,
        F: Fn(Context, Q) -> R + Send + Sync + 'static,
        R: Future<Output = Result<A, Status>> + Send + 'static,
    {
    }
}
