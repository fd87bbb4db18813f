//! Opens the metadata database.
