//! Behaviour rows that hold a VFS to the running Linux kernel.
//!
//! A row (`cases/*.toml`, format in `cases/README.md`) is a small world, an identity, a few raw calls and their exact
//! answers. [`case::load`] reads rows, a [`Backend`](backend::Backend) makes worlds for them, [`run::run`] runs one row
//! in one world. The host kernel is the judge: a row must pass there first.
//!
//! Other implementations of a VFS join in by implementing [`Backend`](backend::Backend) and
//! [`World`](backend::World), or, if they can be mounted, by `rcuwalk-oracle rows --backend dir:/their/mount`.
#![deny(unsafe_code)]

pub mod args;
pub mod backend;
#[cfg(feature = "engine")]
pub mod capi;
pub mod case;
pub mod coverage;
pub mod divergence;
#[cfg(feature = "engine")]
pub mod door;
#[cfg(feature = "engine")]
pub mod engine;
pub mod errno;
pub mod expect;
#[cfg(feature = "engine")]
pub mod fuzz;
pub mod host;
pub mod identity;
pub mod launch;
pub mod need;
pub mod op;
pub mod outcome;
mod packed;
mod raw;
pub mod read;
pub mod report;
pub mod run;
mod sys;
pub mod text;
pub mod tree;
pub mod words;

pub use sys::{Frame, SingleThreaded};
