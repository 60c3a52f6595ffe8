//! What everything else is made of: errors, the kernel's numbers and structures, the old ways kept for measuring.

pub mod errno;
pub(crate) mod table;
pub mod uapi;
pub(crate) mod variants;
