//! The laboratory: measurements that need what the product does not have.
//!
//! [`ablations`] times the engine with each remedy beside the engine with the old way, which only the unstable feature
//! `__variants` of `rcuwalk` builds. [`fills`] counts what the engine clears. [`peers`] and [`mounts`] time other file
//! systems. The program `rcuwalk-lab` (`cargo lab`) runs them; `rcuwalk bench` is the measurement for users.
#![deny(unsafe_code)]

pub mod ablations;
pub mod fills;
pub mod mounts;
pub mod peers;
mod sys;
pub mod tenants;
