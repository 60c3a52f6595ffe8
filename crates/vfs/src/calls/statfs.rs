//! statfs: what kind of file system, how full, and what the mount forbids.
//!
//! Kernel: fs/statfs.c, mm/shmem.c `shmem_statfs()`.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::*;
use crate::mount::{self, Path};
use crate::namei::{At, Lookup};
use crate::task::Task;
use crate::tmpfs::pages::PAGE_SIZE;

/// What statfs(2) reports.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Statfs {
    /// `TMPFS_MAGIC`.
    pub kind: u64,
    /// Bytes of a block.
    pub bsize: u64,
    /// Blocks that files may have together; 0 without a limit.
    pub blocks: u64,
    /// Of these, free.
    pub bfree: u64,
    /// Of these, free to everybody.
    pub bavail: u64,
    /// Inodes that there may be; 0: no limit.
    pub files: u64,
    /// Of these, free.
    pub ffree: u64,
    /// A number of the file system: its device number.
    pub fsid: u64,
    /// Bytes of the longest name.
    pub namelen: u64,
    /// Bytes of a fragment.
    pub frsize: u64,
    /// `ST_*`: what the mount and the file system forbid.
    pub flags: u64,
}

impl Statfs {
    /// Bytes of `struct statfs`.
    pub const SIZE: usize = 120;

    /// The x86-64 `struct statfs`, as the system call stores it: every byte is set, reserved ones to zero.
    pub fn to_bytes(&self) -> [u8; Statfs::SIZE] {
        let mut to = [0; Statfs::SIZE];
        let words = [
            self.kind,
            self.bsize,
            self.blocks,
            self.bfree,
            self.bavail,
            self.files,
            self.ffree,
            self.fsid,
            self.namelen,
            self.frsize,
            self.flags,
        ];
        let (fields, _) = to.as_chunks_mut::<8>();
        for (field, word) in fields.iter_mut().zip(words) {
            *field = word.to_ne_bytes();
        }
        to
    }
}

impl Task {
    /// Describes the file system at `path`, following a link.
    ///
    /// # Errors
    ///
    /// Those of the walk.
    ///
    /// Kernel: fs/statfs.c `user_statfs()`.
    pub fn statfs(&self, path: &[u8]) -> Result<Statfs> {
        let place = self.lookup_held(At::Cwd, path, Lookup::FOLLOW, |_| Ok(()))?;
        let found = self.statfs_of(place);
        self.kernel.path_put(place);
        found
    }

    /// [`statfs`](Self::statfs) of the file system of an open file, which may be an `O_PATH` one.
    ///
    /// # Errors
    ///
    /// `EBADF`.
    pub fn fstatfs(&self, fd: i32) -> Result<Statfs> {
        let file = self.file_any(fd)?;
        self.statfs_of(file.path)
    }

    /// Kernel: fs/statfs.c `vfs_statfs()`.
    fn statfs_of(&self, place: Path) -> Result<Statfs> {
        let kernel = &*self.kernel;
        let ns = kernel.store.lock();
        let m = kernel.mount(place.mnt);
        let sb = ns.mnt.supers.get(m.sb.get()).ok_or(Errno::ESTALE)?;
        let (budget, (files, ffree)) = (&sb.budget, sb.space.inodes());
        let blocks = if budget.limit() == u64::MAX { 0 } else { budget.limit() };
        let free = blocks.saturating_sub(budget.used());
        let block = PAGE_SIZE as u64;
        Ok(Statfs {
            kind: TMPFS_MAGIC,
            bsize: block,
            blocks,
            bfree: free,
            bavail: free,
            files,
            ffree,
            fsid: m.dev.get(),
            namelen: NAME_MAX as u64,
            frsize: block,
            flags: st_flags(m.flags.get()),
        })
    }
}

/// The flags of a mount in statfs's words. Kernel: `calculate_f_flags()`.
fn st_flags(mnt: u32) -> u64 {
    [
        (mount::flags::RDONLY | mount::flags::SB_RDONLY, ST_RDONLY),
        (mount::flags::NOSUID, ST_NOSUID),
        (mount::flags::NODEV, ST_NODEV),
        (mount::flags::NOEXEC, ST_NOEXEC),
        (mount::flags::SB_SYNCHRONOUS, ST_SYNCHRONOUS),
        (mount::flags::SB_MANDLOCK, ST_MANDLOCK),
        (mount::flags::NOATIME, ST_NOATIME),
        (mount::flags::NODIRATIME, ST_NODIRATIME),
        (mount::flags::RELATIME, ST_RELATIME),
        (mount::flags::NOSYMFOLLOW, ST_NOSYMFOLLOW),
    ]
    .into_iter()
    .filter(|(flag, _)| mnt & flag != 0)
    .fold(ST_VALID, |all, (_, flag)| all | flag)
}
