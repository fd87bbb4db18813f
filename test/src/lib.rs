//! What system tests share: a private daemon, a registry, images.
