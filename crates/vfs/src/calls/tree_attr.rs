//! open_tree_attr.
//!
//! Kernel: fs/namespace.c.

use crate::base::errno::Result;
use crate::base::flags::OpenTreeFlags;
use crate::base::uapi::{AT_EMPTY_PATH, AT_RECURSIVE};
use crate::calls::namespace::MountAttr;
use crate::task::Task;

impl Task {
    /// [`open_tree`](Self::open_tree), then [`mount_setattr`](Self::mount_setattr) of what it opened, with `AT_RECURSIVE` of the whole
    /// tree. Without `OPEN_TREE_CLONE` the mount itself changes.
    ///
    /// # Errors
    ///
    /// As both; if the second fails, there is no descriptor.
    ///
    /// Kernel: fs/namespace.c `open_tree_attr()`.  Differs: the idmap that a copy has from its mount is not replaced (`EPERM`).
    ///
    /// ```
    /// use rcuwalk::{Cred, Errno, MountAttr, Vfs, uapi::*};
    /// let vfs = Vfs::new()?;
    /// let root = vfs.task(Cred::root());
    /// root.mkdir(b"/d", 0o755)?;
    /// let attr = MountAttr::default().with_set(MOUNT_ATTR_RDONLY);
    /// let tree = root.open_tree_attr(AT_FDCWD, b"/d", OPEN_TREE_CLONE, &attr)?;
    /// assert_eq!(root.mkdirat(tree, b"x", 0o755), Err(Errno::EROFS));
    /// root.mkdir(b"/d/x", 0o755)?;
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn open_tree_attr(
        &self,
        dirfd: i32,
        path: &[u8],
        flags: impl Into<OpenTreeFlags>,
        attr: &MountAttr,
    ) -> Result<i32> {
        let flags = flags.into().bits();
        let tree = self.open_tree(dirfd, path, flags)?;
        match self.mount_setattr(tree, b"", AT_EMPTY_PATH | flags & AT_RECURSIVE, attr) {
            Ok(()) => Ok(tree),
            Err(errno) => {
                self.close(tree)?;
                Err(errno)
            }
        }
    }
}
