//! What a file system keeps beside names and attributes, as tmpfs does: contents and extended attributes, and the accounts
//! that they are counted in.

pub(crate) mod ispace;
pub(crate) mod options;
pub(crate) mod pages;
