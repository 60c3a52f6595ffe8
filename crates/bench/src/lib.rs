//! `rcuwalk bench`: the engine, the running kernel and a naive implementation, checked and timed on one directory.
//!
//! [`run()`] imports the directory, holds every answer against the kernel's, and times the three in turns on the same paths.
//! The [`Report`] goes out as a table ([`table`]), JSON or CSV.
#![forbid(unsafe_code)]

pub mod check;
pub mod engines;
pub mod load;
pub mod report;
pub mod run;
pub mod table;
pub mod targets;
pub mod tree;
pub mod workloads;

pub use report::Report;
pub use run::{Options, run};
