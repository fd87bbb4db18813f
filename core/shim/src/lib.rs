//! The inside of a shim: processes, stdio, consoles, exit records, the OCI runtime command line.
