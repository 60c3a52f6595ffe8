//! Mounts, and what they forbid.
//!
//! There is one mount today, of the one file system; paths already name theirs, so that more can come.

use rcuwalk_sync::{Handle, Racy32, type_stable};

type_stable! {
    /// One mount. Kernel: fs/mount.h `struct mount`.
    pub(crate) struct Mount {
        /// Bits of [`flags`].
        pub(crate) flags: Racy32,
        /// The dentry that a walk into this mount comes to.
        pub(crate) root: Racy32,
    }
}

/// What a mount forbids, and how it keeps access times. Kernel: include/linux/mount.h `MNT_*`.
pub(crate) mod flags {
    pub(crate) const RDONLY: u32 = 1 << 0;
    pub(crate) const NOSUID: u32 = 1 << 1;
    pub(crate) const NODEV: u32 = 1 << 2;
    pub(crate) const NOEXEC: u32 = 1 << 3;
    pub(crate) const NOSYMFOLLOW: u32 = 1 << 4;
    pub(crate) const NOATIME: u32 = 1 << 5;
    pub(crate) const NODIRATIME: u32 = 1 << 6;
    pub(crate) const RELATIME: u32 = 1 << 7;
}

/// A place in the tree: a dentry as seen through a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) mnt: Handle,
    pub(crate) dentry: Handle,
}
