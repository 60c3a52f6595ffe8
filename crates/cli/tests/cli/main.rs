//! The command as a user meets it: run, and judged by what it prints and how it ends.

mod bench;
mod common;
mod docs;
mod look;
