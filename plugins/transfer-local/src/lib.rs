//! Transfers inside the daemon.
