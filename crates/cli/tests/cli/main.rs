//! The command as a user meets it: run, and judged by what it prints and how it ends.

mod audit;
mod bench;
mod common;
mod docs;
mod explain;
mod image;
mod look;
mod mount;
mod replay;
mod sessions;
