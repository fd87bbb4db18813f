//! The shim: owns the processes of one pod.

fn main() {}
