//! Registries: references, hosts.toml, auth, fetch and push.
//!
//! A [`Resolver`] turns a reference into a descriptor and a [`Fetcher`]; a [`Pusher`] does the way back. What goes
//! wrong is one error that lists every host tried and what it said, of the kind that fits best. Credentials go to
//! the host that asked for them, or to the token server it names, and nowhere else: not along redirects, not to
//! URLs out of image data, not into errors or logs.

#![forbid(unsafe_code)]

/// Answers challenges, keeps tokens.
mod auth;
/// `WWW-Authenticate`.
mod challenge;
/// HTTP clients by TLS settings.
mod clients;
/// What proves a client to a registry.
mod credentials;
/// One request to one host.
mod exchange;
/// Why hosts refused, and one error of it all.
mod failure;
/// Downloads that mend themselves.
mod fetch;
mod hosts;
/// Uploads.
mod push;
/// Names of images.
mod reference;
/// From reference to descriptor.
mod resolver;
/// How long to wait before the next attempt.
mod retry;

pub use credentials::{Credential, Credentials, Secret};
pub use fetch::{Download, Fetcher};
pub use hosts::{Capabilities, HostConfig, hosts_for, is_loopback};
pub use push::{PushProgress, Pushed, Pusher};
pub use reference::{Reference, normalize};
pub use resolver::{Resolver, ResolverOptions};
