//! The system calls, as methods of [`Task`](crate::Task).

pub(crate) mod attr;
pub(crate) mod dirops;
pub(crate) mod fileattr;
pub(crate) mod handle;
pub(crate) mod io;
pub(crate) mod locks;
pub(crate) mod namespace;
mod open;
pub(crate) mod procfs;
mod readdir;
mod space;
mod stat;
pub(crate) mod statfs;
pub(crate) mod statmount;
mod tmpfs_options;
pub(crate) mod transfer;
mod tree_attr;
mod xattr;
