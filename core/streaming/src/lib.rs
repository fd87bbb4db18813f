//! Named streams between clients and the daemon.
//!
//! A client opens a stream under a name of its choice (streaming service), then sends that name in another
//! request (transfer service), which looks the stream up and talks to the client over it: asks for
//! credentials, reports progress, moves the bytes of an archive.
//!
//! For the author of the streaming service: make a [`pair`], give one end to [`Streams::register`], pump the
//! other end to and from the RPC, and keep the returned [`Registration`] until the RPC ends; dropping it forgets
//! the name. The user of a stream calls [`Streams::get`], which waits a bounded time for a client that
//! registers late, and gets each stream once.

#![forbid(unsafe_code)]

/// Bytes over a stream of messages, with the window protocol of `containerd.types.transfer`.
mod bytes_stream;
/// Both ends of a stream inside one process.
mod pair;
/// Streams by namespace and name.
mod registry;
/// What a stream is.
mod stream;

pub use bytes_stream::{ByteSink, ByteSource, FromReader, FromStream, IntoStream, IntoWriter};
pub use pair::{End, pair};
pub use registry::{Registration, Streams};
pub use stream::Stream;
