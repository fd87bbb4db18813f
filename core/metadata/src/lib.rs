//! The namespaced database and its garbage collection.
//!
//! [`Database`] keeps what the daemon knows: containers, images, leases, sandboxes, namespaces, and which blobs and
//! snapshots of the backends each namespace has. Handles are bound to a [`Scope`](core_types::Scope), so nothing else
//! passes namespaces about; what a handle makes under a lease is held by the lease in the same transaction.
//!
//! - Readers never wait. Writers are queued to one thread that commits many requests with one sync.
//! - Data comes before metadata: a blob is synced before its record, a record is gone durably before its blob. A power
//!   cut leaves garbage, which the first collection finds, never a record without data.
//! - [`Database::collect`] removes what nothing refers to. It marks on a consistent view, beside everything else, and
//!   removes in small transactions that first follow what was written or held meanwhile.

#![deny(unsafe_code)]

/// Records as bytes.
mod codec;
/// The container record.
mod container;
/// Containers of a namespace.
mod containers;
/// Blobs and ingests of a namespace, over the shared store.
mod content;
/// Opening, closing, reading, writing.
mod database;
/// The LMDB environment.
mod env;
/// LMDB's errors as the API's.
mod error;
/// Fields for filters, labels for updates.
mod fields;
/// Garbage collection.
mod gc;
/// Images of a namespace.
mod images;
/// What makes a commit durable with one sync.
mod journal;
/// Keys of records.
mod key;
/// Leases of a namespace.
mod leases;
/// Namespaces and their labels.
mod namespaces;
/// What is stored.
mod record;
/// What holds objects besides records.
mod roots;
/// Sandboxes of a namespace.
mod sandboxes;
/// Snapshots of a namespace, over a shared snapshotter.
mod snapshots;
/// Transactions.
mod store;
/// What may have to be removed from a backend.
mod trash;
/// Group commit.
mod writer;

pub use container::Container;
pub use containers::Containers;
pub use core_sandbox::{Runtime, Sandbox};
pub use database::{Backends, Database, Hold, Options};
pub use gc::{CollectionStats, Dangling};
pub use leases::Leases;
pub use namespaces::Namespaces;
pub use sandboxes::Sandboxes;
