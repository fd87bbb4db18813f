//! The namespaced database and its garbage collection.
