//! Named streams between client and daemon.
