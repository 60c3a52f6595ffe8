//! Workloads, checks and tables for rcuwalk, measured beside the running kernel.
//!
//! [`run()`] is the main job: it imports a directory, holds every answer against the kernel's, and times the engine, the
//! kernel and a naive implementation in turn on the same paths. The [`Report`] goes out as a table ([`table`]), JSON or
//! CSV.
//!
//! A figure counts only with a checked answer: each timed batch sums up what the calls returned, and the sums must
//! agree across engines.
#![deny(unsafe_code)]

pub mod attr;
pub mod check;
pub mod doctor;
pub mod engines;
mod error;
pub mod frame;
pub mod hostcalls;
pub mod identity;
pub mod load;
pub mod machine;
pub mod measure;
pub mod memory;
pub mod progress;
pub mod replay;
pub mod report;
pub mod run;
pub mod scratch;
pub mod sys;
pub mod table;
pub mod targets;
pub mod tree;
pub mod workloads;

pub use error::{Error, describe};
pub use report::Report;
pub use run::{Observer, Options, run};
