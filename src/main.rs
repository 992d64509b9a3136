//! fullbore: one binary.

fn main() {}
