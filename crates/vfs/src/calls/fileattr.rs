//! Inode flags: immutable, append-only and their like.
//!
//! Kernel: fs/file_attr.c, mm/shmem.c `shmem_fileattr_set()`.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::{
    CAP_LINUX_IMMUTABLE, FS_APPEND_FL, FS_IMMUTABLE_FL, FS_NOATIME_FL, FS_NODUMP_FL, S_IFDIR, S_IFMT, S_IFREG,
};
use crate::dcache::inode::{Touch, flags};
use crate::file::File;
use crate::perm;
use crate::task::Task;

/// The flags that there are, with the bits of [`crate::dcache::inode::Inode::mode`] that keep them.
const FLAGS: [(u32, u32); 4] = [
    (FS_IMMUTABLE_FL, flags::IMMUTABLE),
    (FS_APPEND_FL, flags::APPEND),
    (FS_NODUMP_FL, flags::NODUMP),
    (FS_NOATIME_FL, flags::NOATIME),
];

/// The flags that only a privileged task may change.
const PRIVILEGED: u32 = FS_IMMUTABLE_FL | FS_APPEND_FL;

/// The flags kept in `mode`, as the calls show them.
fn shown(mode: u32) -> u32 {
    FLAGS.iter().filter(|(_, bit)| mode & bit != 0).fold(0, |all, (flag, _)| all | flag)
}

impl Task {
    /// `FS_IOC_GETFLAGS`: the flags of the open file or directory (`FS_*_FL`).
    ///
    /// # Errors
    ///
    /// `EBADF` (also for `O_PATH`), `ENOTTY` (neither file nor directory).
    pub fn getflags(&self, fd: i32) -> Result<u32> {
        let file = self.file(fd)?;
        self.has_fileattr(&file)?;
        Ok(shown(self.kernel.store.inode(file.inode).mode.get()))
    }

    /// `FS_IOC_SETFLAGS`: replaces the flags of the open file or directory, which need not be open for writing. Descriptors
    /// that are open for writing already keep that.
    ///
    /// # Errors
    ///
    /// In this order: `EBADF` (also for `O_PATH`), `EROFS`, `ENOTTY` (neither file nor directory), `EPERM` (not the owner,
    /// and no `CAP_FOWNER`; `FS_IMMUTABLE_FL` or `FS_APPEND_FL` would change, and no `CAP_LINUX_IMMUTABLE` over the initial
    /// namespace), `EOPNOTSUPP` (a flag that tmpfs does not have).
    ///
    /// ```
    /// # use rcuwalk::{Cred, Errno, Vfs, uapi::*};
    /// # let vfs = Vfs::new()?;
    /// let root = vfs.task(Cred::root());
    /// let fd = root.creat(b"/f", 0o666)?;
    /// root.setflags(fd, FS_IMMUTABLE_FL)?;
    /// assert_eq!(root.unlink(b"/f"), Err(Errno::EPERM));
    /// assert_eq!(root.open(b"/f", O_WRONLY, 0), Err(Errno::EPERM));
    /// root.setflags(fd, root.getflags(fd)? & !FS_IMMUTABLE_FL)?;
    /// assert_eq!(root.unlink(b"/f"), Ok(()));
    /// # Ok::<(), Errno>(())
    /// ```
    ///
    /// Kernel: fs/file_attr.c `ioctl_setflags()`, `vfs_fileattr_set()`.
    pub fn setflags(&self, fd: i32, new: u32) -> Result<()> {
        let file = self.file(fd)?;
        self.want_write(file.path)?;
        self.has_fileattr(&file)?;
        let (kernel, store) = (&*self.kernel, &self.kernel.store);
        let _room = kernel.watch.admit();
        let (now, mut ns) = (kernel.now(), store.lock());
        let i = store.inode(file.inode);
        if !perm::owner_or_capable(&self.cred, &kernel.attr(file.path.mnt, i)) {
            return Err(Errno::EPERM);
        }
        let changed = shown(i.mode.get()) ^ new;
        if changed & PRIVILEGED != 0 && !self.cred.capable(CAP_LINUX_IMMUTABLE) {
            return Err(Errno::EPERM);
        }
        if FLAGS.iter().fold(new, |rest, (flag, _)| rest & !flag) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        store.change_inode(&mut ns, file.inode, |i, ns| {
            let kept = FLAGS.iter().fold(i.mode.get(), |mode, (_, bit)| mode & !bit);
            let set = FLAGS.iter().filter(|(flag, _)| new & flag != 0).fold(0, |all, (_, bit)| all | bit);
            i.mode.set(kept | set);
            store.touch(ns, file.inode, Touch::C, now);
        });
        Ok(())
    }

    /// Whether the object has flags at all.
    fn has_fileattr(&self, file: &File) -> Result<()> {
        match self.kernel.store.inode(file.inode).mode.get() & S_IFMT {
            S_IFREG | S_IFDIR => Ok(()),
            _ => Err(Errno::ENOTTY),
        }
    }
}
