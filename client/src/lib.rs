//! Async client of containerd's API.
//!
//! A [`Client`] speaks gRPC over a Unix socket ([`Client::connect`]) or over any byte stream to a daemon in
//! the same process ([`Client::in_process`]). It is bound to a namespace and, if wanted, a lease, both sent
//! with every call. Objects ([`Image`], [`Container`], [`Task`], [`Process`], [`Snapshotter`], [`Content`]) keep a
//! client of their own; cloning one is cheap. Services without a wrapper are reached by
//! [`Client::service`].
//!
//! ```no_run
//! # async fn example() -> containerd_sdk::Result<()> {
//! use containerd_sdk::{Client, Pull};
//!
//! let client = Client::connect("/run/containerd/containerd.sock", "default").await?;
//! let image = client.pull("docker.io/library/busybox:latest", Pull::default()).await?;
//! println!("{}", image.target().digest);
//! # Ok(()) }
//! ```
//!
//! `examples/pull_and_run.rs` runs a container.

#![forbid(unsafe_code)]

/// The client: connection, namespace, lease.
mod client;
/// Transports: Unix socket, in-process.
mod connect;
/// Containers: records of what to run.
mod container;
/// Blobs and ingests.
mod content;
/// Between API messages and the types of the core crates.
mod convert;
/// Manifests and configurations read through the API.
mod documents;
/// Errors with their gRPC code.
mod error;
/// Subscribing to events.
mod events;
/// Images: names for content, and what is behind them.
mod image;
/// Standard streams of processes: FIFOs, log URIs, terminals.
mod io;
/// Leases, which hold what is being made.
mod leases;
/// Namespaces and what the daemon says of itself.
mod namespaces;
/// Processes of a task.
mod process;
/// Snapshots.
mod snapshots;
/// Byte and message streams beside the calls (streaming service).
mod streams;
/// Tasks: containers that run.
mod task;
/// The terminal this program runs in.
mod terminal;
/// Pull, push, import, export and tag by the daemon (transfer service).
mod transfer;
/// Unpacking an image into a snapshotter.
mod unpack;

pub use client::{Client, DEFAULT_ADDRESS, DEFAULT_NAMESPACE, DEFAULT_RUNTIME, DEFAULT_SNAPSHOTTER, Scoped, Service};
pub use container::{Container, Deletion, NewContainer, resolve_user};
pub use containerd_api as api;
pub use containerd_api_grpc as grpc;
pub use content::{Content, ContentWriter};
pub use convert::{descriptor_from_api, descriptor_to_api, mounts_from_api, platform_to_api, timestamp_to_system};
pub use core_oci as oci;
pub use error::{Error, Result};
pub use events::Events;
pub use image::{Image, ImageCheck};
pub use io::{DEFAULT_FIFO_DIR, FifoSet, Input, Output, Stdio, Streams};
pub use leases::Lease;
pub use process::{ExitStatus, Process, ProcessStatus, SignalFuture};
pub use snapshots::Snapshotter;
pub use streams::{ByteReceiver, MessageStream, send_bytes};
pub use task::{NewTask, Task};
pub use terminal::Terminal;
pub use transfer::{
    Archive, Credentials, Destination, ImageStore, Progress, ProgressSink, Pull, Registry, Source, StaticCredentials,
};
