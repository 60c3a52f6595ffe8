//! Whole trees: loading one, asking about all of one, and following its changes.

pub mod changes;
pub(crate) mod loader;
pub(crate) mod survey;
