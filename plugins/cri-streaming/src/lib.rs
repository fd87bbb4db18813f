//! The streaming server of the CRI: exec, attach and port forwarding over SPDY and WebSocket.

#![forbid(unsafe_code)]
