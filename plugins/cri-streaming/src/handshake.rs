//! Which protocol is spoken after the upgrade.

use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, Response, StatusCode};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// The header in which SPDY clients name the protocols they speak.
const STREAM_PROTOCOL: &str = "x-stream-protocol-version";

const SPDY_REMOTE: &[&str] = &["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
const SPDY_FORWARD: &[&str] = &["portforward.k8s.io"];
const WEBSOCKET_REMOTE: &[&str] = &[
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "v1.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
];
const WEBSOCKET_FORWARD: &[&str] = &[TUNNEL, "v4.channel.k8s.io", "v4.base64.channel.k8s.io", "portforward.k8s.io"];

/// SPDY within the messages of a WebSocket.
pub(crate) const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Spdy(&'static str),
    WebSocket(&'static str),
}

pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// Protocols that would be taken.
    pub(crate) accepted: &'static [&'static str],
}

fn refuse(status: StatusCode, message: impl Into<String>) -> Refusal {
    Refusal { status, message: message.into(), accepted: &[] }
}

/// The items of a header that may be given several times and hold several, parted by commas.
fn items<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    let values = headers.get_all(name).into_iter().filter_map(|v| v.to_str().ok());
    values.flat_map(|v| v.split(',')).map(str::trim).filter(|v| !v.is_empty()).collect()
}

fn common(offered: &[&str], known: &'static [&'static str]) -> Option<&'static str> {
    offered.iter().find_map(|o| known.iter().find(|k| *k == o).copied())
}

/// Chooses by the headers of the request.
pub(crate) fn negotiate(headers: &HeaderMap, forward: bool) -> Result<Transport, Refusal> {
    let has = |name: &str, item: &str| items(headers, name).iter().any(|v| v.eq_ignore_ascii_case(item));
    if !has("connection", "upgrade") {
        return Err(refuse(StatusCode::BAD_REQUEST, "unable to upgrade: missing upgrade headers in request"));
    }
    if has("upgrade", "websocket") {
        let offered = items(headers, "sec-websocket-protocol");
        if !headers.contains_key(SEC_WEBSOCKET_KEY) || !has("sec-websocket-version", "13") {
            return Err(refuse(
                StatusCode::BAD_REQUEST,
                "unable to upgrade: WebSocket version 13 with a key is needed",
            ));
        }
        let known = if forward { WEBSOCKET_FORWARD } else { WEBSOCKET_REMOTE };
        if offered.is_empty() {
            return Ok(Transport::WebSocket(""));
        }
        return common(&offered, known).map(Transport::WebSocket).ok_or_else(|| none_common(&offered, known));
    }
    if has("upgrade", "spdy/3.1") {
        let offered = items(headers, STREAM_PROTOCOL);
        let known = if forward { SPDY_FORWARD } else { SPDY_REMOTE };
        if offered.is_empty() {
            return Err(refuse(StatusCode::BAD_REQUEST, "unable to upgrade: X-Stream-Protocol-Version is required"));
        }
        return common(&offered, known).map(Transport::Spdy).ok_or_else(|| none_common(&offered, known));
    }
    Err(refuse(StatusCode::BAD_REQUEST, "unable to upgrade: only SPDY/3.1 and websocket are spoken here"))
}

fn none_common(offered: &[&str], known: &'static [&'static str]) -> Refusal {
    let message = format!(
        "unable to upgrade: unable to negotiate protocol: client supports {offered:?}, server accepts {known:?}"
    );
    Refusal { status: StatusCode::FORBIDDEN, message, accepted: known }
}

/// The answer that switches protocols.
pub(crate) fn switch<B>(transport: Transport, request: &HeaderMap, body: B) -> Result<Response<B>, http::Error> {
    let answer = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS).header(CONNECTION, "Upgrade");
    match transport {
        Transport::Spdy(protocol) => answer.header(UPGRADE, "SPDY/3.1").header(STREAM_PROTOCOL, protocol),
        Transport::WebSocket(protocol) => {
            let key = request.get(SEC_WEBSOCKET_KEY).map(|k| derive_accept_key(k.as_bytes())).unwrap_or_default();
            let answer = answer.header(UPGRADE, "websocket").header(SEC_WEBSOCKET_ACCEPT, key);
            if protocol.is_empty() { answer } else { answer.header(SEC_WEBSOCKET_PROTOCOL, protocol) }
        }
    }
    .body(body)
}

/// The answer that refuses.
pub(crate) fn refusal<B: From<String>>(refusal: Refusal) -> Result<Response<B>, http::Error> {
    let mut answer = Response::builder().status(refusal.status);
    for protocol in refusal.accepted {
        answer = answer.header("X-Accepted-Stream-Protocol-Versions", *protocol);
    }
    answer.body(format!("{}\n", refusal.message).into())
}
