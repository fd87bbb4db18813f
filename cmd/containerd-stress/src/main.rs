//! Creates and removes containers for as long as asked.

fn main() {}
