//! The command line client.

fn main() {}
