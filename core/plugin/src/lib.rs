//! Plugin registrations and the dependency graph.
