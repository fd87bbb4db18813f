//! Telling the service manager how the daemon stands (`sd_notify(3)`).

use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr, UnixDatagram},
};

/// The daemon serves.
pub(crate) fn ready() {
    send("READY=1");
}

/// The daemon ends.
pub(crate) fn stopping() {
    send("STOPPING=1");
}

fn send(state: &str) {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let bytes = address.as_encoded_bytes();
    let sent = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&address),
    }
    .and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, state, "failed to notify the service manager");
    }
}
