//! Registries: references, hosts.toml, auth, fetch and push.
