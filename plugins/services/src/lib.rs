//! The gRPC services: thin conversions over core.
