//! The streaming server of the CRI: exec, attach and port forwarding over SPDY/3.1 and WebSocket.
//!
//! The CRI hands out a URL for each request ([`Server::exec_url`] and its kin); the client then speaks HTTP with this
//! server, upgrades the connection, and its streams are given to the [`Runtime`].
//!
//! - `api`: what a runtime implements and what is asked of it
//! - `tokens`: requests waiting for their client
//! - `server`: listening, TLS, routing, URLs
//! - `handshake`: which protocol is spoken after the upgrade
//! - `session`: running exec or attach with streams of either transport; the final status
//! - `spdy`: frames, headers and connections of SPDY/3.1, and the sessions over it
//! - `websocket`: the channel protocols over WebSocket, and SPDY tunnelled through one

#![forbid(unsafe_code)]

mod api;
mod handshake;
mod server;
mod session;
mod spdy;
#[cfg(test)]
mod tests;
mod tokens;
mod websocket;

pub use api::{AttachRequest, Duplex, ExecRequest, PortForwardRequest, Reader, Runtime, Streams, TerminalSize, Writer};
pub use server::{Config, Server, Tls};
