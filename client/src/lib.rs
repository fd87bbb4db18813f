//! Async SDK for containerd: in-process or over gRPC.
