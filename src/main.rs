//! The `channeld` program.

fn main() {}
