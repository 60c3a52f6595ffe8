//! The implementations that `rcuwalk bench` times beside the running kernel.

pub mod naive;
pub mod rcuwalk;
