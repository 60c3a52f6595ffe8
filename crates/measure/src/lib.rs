//! What measurements of rcuwalk are written in, and two of them: of the running kernel, and of a program's log.
//!
//! [`frame`] compares sides call by call, [`series`] times them in turns on threads of their own, [`engines`] says what a
//! side is. [`hostcalls`] times the running kernel alone, and [`doctor`] judges it by that. [`replay`] asks the kernel and
//! the engine what a program asked.
//!
//! A figure counts only with a checked answer: each timed batch sums up what the calls returned, and the sums must
//! agree across engines.
#![deny(unsafe_code)]

pub mod attr;
pub mod doctor;
pub mod engines;
mod error;
pub mod frame;
pub mod hostcalls;
pub mod identity;
pub mod machine;
pub mod memory;
pub mod progress;
pub mod replay;
pub mod scratch;
pub mod series;
pub mod sys;
pub mod table;

pub use error::Error;
