//! Calls on mounts and namespaces.

use super::{Answer, Call, done, fd};
use crate::base::errno::{Errno, Result};
use crate::base::flags::ListmountFlags;
use crate::base::uapi::{AT_EMPTY_PATH, AT_RECURSIVE, MOUNT_ATTR_IDMAP, PATH_MAX};
use crate::calls::namespace::MountAttr;
use crate::calls::statmount::{MntIdReq, STRINGS, Statmount};
use crate::task::Task;

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
        done(self.task.mount_type(source.as_deref(), &target, fstype.as_deref(), self.args[3], &data))
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

    /// A `struct mnt_id_req`, and the last of its words that says what is wanted.
    ///
    /// Kernel: fs/namespace.c `copy_mnt_id_req()`.
    fn mnt_id_req(&mut self) -> Result<(MntIdReq, u64)> {
        const MNT_ID_REQ_SIZE_VER0: u64 = 24;
        let size = u64::from(u32::from_ne_bytes(self.get(self.args[0])?));
        if size > PAGE as u64 {
            return Err(Errno::E2BIG);
        }
        if size < MNT_ID_REQ_SIZE_VER0 {
            return Err(Errno::EINVAL);
        }
        let [head, mnt_id, param, mnt_ns_id] = self.extensible(self.args[0], size)?;
        let fd = (head >> 32) as i32;
        let req = MntIdReq::from(mnt_id).with_mnt_ns_id(mnt_ns_id);
        Ok((req.with_mnt_ns_fd((fd != 0).then_some(fd)), param))
    }

    /// Kernel: fs/namespace.c `statmount()`.  Differs: where there is text to be told, but none there, and the buffer has no room for
    /// it, the kernel writes a NUL behind the buffer.
    pub(super) fn statmount(&mut self) -> Answer {
        if self.uint(3) != 0 {
            return Err(Errno::EINVAL);
        }
        let (req, mask) = self.mnt_id_req()?;
        let ns = self.task.statmount_ns(req)?;
        let (buf, room) = (self.args[1], self.args[2]);
        if !self.mem.access_ok(buf, room) {
            return Err(Errno::EFAULT);
        }
        let asks_text = mask & STRINGS != 0;
        if asks_text && room == Statmount::SIZE as u64 {
            return Err(Errno::EOVERFLOW);
        }
        let mut bytes = self.task.do_statmount(ns, req.mnt_id, mask)?.to_bytes();
        let has_text = bytes.len() > Statmount::SIZE + 1;
        if has_text && bytes.len() as u64 > room {
            return Err(Errno::EOVERFLOW);
        }
        // The empty text.
        bytes.resize(bytes.len().max(Statmount::SIZE + usize::from(asks_text)), 0);
        let told = bytes.len() - Statmount::SIZE + Statmount::SIZE.min(room as usize);
        bytes[..4].copy_from_slice(&(told as u32).to_ne_bytes());
        bytes.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        self.put(1, &bytes)
    }

    /// Kernel: fs/namespace.c `listmount()`.
    pub(super) fn listmount(&mut self) -> Answer {
        let flags = ListmountFlags::from(self.uint(3));
        let room = usize::try_from(self.args[2]).unwrap_or(usize::MAX);
        Task::check_listmount(flags, room)?;
        if !self.mem.access_ok(self.args[1], room as u64 * 8) {
            return Err(Errno::EFAULT);
        }
        let (req, last_mnt_id) = self.mnt_id_req()?;
        let ids = self.task.do_listmount(req, last_mnt_id, room, flags)?;
        if !ids.is_empty() {
            self.put(1, ids.iter().map(|id| id.to_ne_bytes()).collect::<Vec<_>>().as_flattened())?;
        }
        Ok(ids.len() as i64)
    }

    pub(super) fn unshare(&mut self) -> Answer {
        done(self.task.unshare(self.args[0]))
    }

    pub(super) fn setns(&mut self) -> Answer {
        done(self.task.setns(self.int(0), self.int(1)))
    }
}
