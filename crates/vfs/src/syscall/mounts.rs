//! Calls on mounts and namespaces.

use super::{Answer, Call, done, fd};
use crate::base::errno::{Errno, Result};
use crate::base::uapi::{AT_EMPTY_PATH, AT_RECURSIVE, MOUNT_ATTR_IDMAP, PATH_MAX};
use crate::calls::namespace::MountAttr;

/// Bytes of the options of mount(2).
const PAGE: usize = 4096;

impl Call<'_> {
    /// A string of mount(2), or `None` for a null pointer. Kernel: fs/namespace.c `copy_mount_string()`.
    fn mount_string(&mut self, i: usize) -> Result<Option<Vec<u8>>> {
        if self.args[i] == 0 {
            return Ok(None);
        }
        let mut bytes = vec![0; PATH_MAX];
        let len = self.mem.strncpy_from_user(&mut bytes, self.args[i])?;
        if len == PATH_MAX {
            return Err(Errno::EINVAL);
        }
        bytes.truncate(len);
        Ok(Some(bytes))
    }

    /// The options of mount(2): as much of a page as there is. Kernel: fs/namespace.c `copy_mount_options()`.
    fn mount_options(&mut self) -> Result<Vec<u8>> {
        if self.args[4] == 0 {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; PAGE];
        let n = super::memory::copy_in(self.mem, &mut bytes, self.args[4]);
        if n == 0 {
            return Err(Errno::EFAULT);
        }
        let end = bytes[..n].iter().position(|&byte| byte == 0).unwrap_or(n).min(PAGE - 1);
        bytes.truncate(end);
        Ok(bytes)
    }

    pub(super) fn mount(&mut self) -> Answer {
        let fstype = self.mount_string(2)?;
        let source = self.mount_string(0)?;
        let data = self.mount_options()?;
        let target = self.name(1);
        let source = source.unwrap_or_default();
        done(self.task.mount_type(&source, &target, fstype.as_deref(), self.args[3], &data))
    }

    pub(super) fn pivot_root(&mut self) -> Answer {
        let (new_root, put_old) = (self.name(0), self.name(1));
        done(self.task.pivot_root(&new_root, &put_old))
    }

    pub(super) fn umount2(&mut self) -> Answer {
        let target = self.name(0);
        done(self.task.umount2(&target, self.int(1)))
    }

    /// Kernel: fs/namespace.c `mount_setattr()`, `wants_mount_setattr()`.
    pub(super) fn mount_setattr(&mut self) -> Answer {
        let (dirfd, flags) = (self.int(0), self.int(2));
        // What a change of nothing is told: flags count before the size, privilege behind it.
        let early = self.task.mount_setattr(dirfd, b"", flags, &MountAttr::default());
        if early == Err(Errno::EINVAL) {
            return Err(Errno::EINVAL);
        }
        let attr = self.mount_attr(early)?;
        let path = self.name(1);
        done(self.task.mount_setattr(dirfd, &path, flags, &attr))
    }

    /// The last two arguments, between whose size and contents comes what the task `may`.
    ///
    /// Kernel: fs/namespace.c `wants_mount_setattr()`.
    fn mount_attr(&mut self, may: Result<()>) -> Result<MountAttr> {
        const MOUNT_ATTR_SIZE_VER0: u64 = 32;
        let size = self.args[4];
        if size > PAGE as u64 {
            return Err(Errno::E2BIG);
        }
        if size < MOUNT_ATTR_SIZE_VER0 {
            return Err(Errno::EINVAL);
        }
        may?;
        let [set, clr, propagation, userns_fd] = self.extensible(self.args[3], size)?;
        let userns = if set & MOUNT_ATTR_IDMAP != 0 {
            i32::try_from(userns_fd).map_or(Err(Errno::EINVAL), |fd| self.task.user_ns_of(fd))
        } else {
            Err(Errno::EBADF)
        };
        Ok(MountAttr { set, clr, propagation, userns })
    }

    /// Kernel: fs/namespace.c `open_tree_attr()`.
    pub(super) fn open_tree_attr(&mut self) -> Answer {
        if self.args[3] == 0 && self.args[4] != 0 {
            return Err(Errno::EINVAL);
        }
        let path = self.name(1);
        let flags = self.int(2);
        let tree = self.task.open_tree(self.int(0), &path, flags)?;
        if self.args[3] == 0 {
            return Ok(tree.into());
        }
        let may = self.task.mount_setattr(tree, b"", AT_EMPTY_PATH, &MountAttr::default());
        let set = self
            .mount_attr(may)
            .and_then(|attr| self.task.mount_setattr(tree, b"", AT_EMPTY_PATH | flags & AT_RECURSIVE, &attr));
        match set {
            Ok(()) => Ok(tree.into()),
            Err(errno) => {
                self.task.close(tree)?;
                Err(errno)
            }
        }
    }

    pub(super) fn open_tree(&mut self) -> Answer {
        let path = self.name(1);
        fd(self.task.open_tree(self.int(0), &path, self.int(2)))
    }

    pub(super) fn move_mount(&mut self) -> Answer {
        let (from, to) = (self.name(1), self.name(3));
        done(self.task.move_mount(self.int(0), &from, self.int(2), &to, self.uint(4)))
    }

    pub(super) fn unshare(&mut self) -> Answer {
        done(self.task.unshare(self.args[0]))
    }

    pub(super) fn setns(&mut self) -> Answer {
        done(self.task.setns(self.int(0), self.int(1)))
    }
}
