//! Project tasks: `cargo x <task>`.

fn main() {}
