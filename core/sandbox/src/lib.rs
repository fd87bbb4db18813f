//! Sandbox records, Store and Controller traits.
