//! Space of files: fallocate, copy_file_range, fsync and its like.
//!
//! Kernel: fs/open.c `vfs_fallocate()`, fs/read_write.c `vfs_copy_file_range()`, fs/sync.c, mm/shmem.c
//! `shmem_fallocate()`.

use crate::base::errno::{Errno, Result};
use crate::base::flags::FallocateFlags;
use crate::base::uapi::*;
use crate::calls::io::MAX_RW_COUNT;
use crate::dcache::inode::Inode;
use crate::file::File;
use crate::perm;
use crate::task::Task;

/// What fallocate does, parsed from its mode. Others there are, but not for tmpfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Falloc {
    /// Reserves pages; the size stays if `keep_size`.
    Allocate { keep_size: bool },
    /// Frees them.
    PunchHole,
}

impl Falloc {
    /// The mode, if it is one that any file system might know; `Ok(None)` if this one does not.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`.
    fn parse(mode: i32) -> Result<Option<Falloc>> {
        let keep_size = mode & FALLOC_FL_KEEP_SIZE != 0;
        match mode & !FALLOC_FL_KEEP_SIZE {
            0 => Ok(Some(Falloc::Allocate { keep_size })),
            FALLOC_FL_PUNCH_HOLE if keep_size => Ok(Some(Falloc::PunchHole)),
            FALLOC_FL_ZERO_RANGE | FALLOC_FL_UNSHARE_RANGE => Ok(None),
            FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE | FALLOC_FL_WRITE_ZEROES if !keep_size => {
                Ok(None)
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

impl Task {
    /// Reserves the pages of `len` bytes from `offset` on, and grows the file to there (`mode` 0; not with
    /// `FALLOC_FL_KEEP_SIZE`), or makes them a hole (`FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`).
    ///
    /// # Errors
    ///
    /// In this order: `EBADF`; `EINVAL` (a negative offset, nothing to do); `EOPNOTSUPP` (no such mode); `EBADF` (not open
    /// for writing); `EPERM` (append-only, for all but reserving; immutable); `ESPIPE` (a fifo), `ENODEV` (another special
    /// file); `EFBIG` (beyond the largest offset or `RLIMIT_FSIZE`); `EOPNOTSUPP` (modes that tmpfs does not have);
    /// `ENODATA` (a file that was imported without its contents); `ENOSPC`.
    ///
    /// Kernel: fs/open.c `vfs_fallocate()`.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Vfs, uapi::*};
    /// # let vfs = Vfs::new()?;
    /// let task = vfs.task(Cred::root());
    /// let fd = task.open(b"/f", O_CREAT | O_RDWR, 0o644)?;
    /// task.fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 8192)?;
    /// let stat = task.fstat(fd)?;
    /// assert_eq!((stat.size, stat.blocks), (0, 16));
    /// # Ok::<(), rcuwalk::Errno>(())
    /// ```
    pub fn fallocate(&self, fd: i32, mode: impl Into<FallocateFlags>, offset: i64, len: i64) -> Result<()> {
        self.vfs_fallocate(fd, mode.into().bits(), offset, len)
    }

    fn vfs_fallocate(&self, fd: i32, mode: i32, offset: i64, len: i64) -> Result<()> {
        let file = self.file(fd)?;
        let (Ok(start), Ok(bytes @ 1..)) = (u64::try_from(offset), u64::try_from(len)) else {
            return Err(Errno::EINVAL);
        };
        let how = Falloc::parse(mode)?;
        if !file.mode.write {
            return Err(Errno::EBADF);
        }
        let attr = self.kernel.store.read_inode(file.inode, Inode::attr);
        let only_allocates = mode & !FALLOC_FL_KEEP_SIZE == 0;
        if attr.iflags & perm::IFLAG_IMMUTABLE != 0
            || attr.iflags & perm::IFLAG_APPEND != 0 && !only_allocates
        {
            return Err(Errno::EPERM);
        }
        match attr.mode & S_IFMT {
            S_IFREG => {}
            S_IFIFO => return Err(Errno::ESPIPE),
            _ => return Err(Errno::ENODEV),
        }
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)? as u64;
        let how = how.ok_or(Errno::EOPNOTSUPP)?;
        let kernel = &*self.kernel;
        let grows = end > kernel.store.inode(file.inode).size.get();
        if matches!(how, Falloc::Allocate { .. }) && grows && end > self.fsize_limit() {
            return Err(Errno::EFBIG);
        }
        let _room = match only_allocates {
            true => kernel.watch.admit_contents(bytes)?,
            false => kernel.watch.admit(),
        };
        let contents = kernel.contents_of(&file, true)?.ok_or(Errno::EIO)?;
        kernel.edit_contents(file.path.mnt, file.inode, contents, &self.cred, |pages| match how {
            Falloc::Allocate { keep_size } => pages.fallocate(&contents.budget, start, bytes, keep_size),
            Falloc::PunchHole => pages.punch_hole(&contents.budget, start, bytes),
        })
    }

    /// Copies `len` bytes of one open file into another; gives how many: fewer at the end of the first, 0 there, and never more
    /// than 2147479552, which is what one call moves. Each offset is used and advanced if it is given, else the position of the descriptor is. `flags` is 0.
    ///
    /// # Errors
    ///
    /// In this order: `EBADF`; `EINVAL` (flags); `EISDIR`, `EINVAL` (not a regular file), `EBADF` (not open for reading, for
    /// writing, or `O_APPEND`); `EXDEV` (another file system); `EPERM` (immutable); `EOVERFLOW` (beyond the largest offset);
    /// `EFBIG`; `EINVAL` (from one part of a file to another that overlaps); `ENODATA`, `ENOSPC`.
    ///
    /// Kernel: fs/read_write.c `vfs_copy_file_range()`.
    pub fn copy_file_range(
        &self,
        from_fd: i32,
        from_offset: Option<&mut i64>,
        to_fd: i32,
        to_offset: Option<&mut i64>,
        len: usize,
        flags: u32,
    ) -> Result<usize> {
        let (from, to) = (self.file(from_fd)?, self.file(to_fd)?);
        let position = |file: &File| file.pos.get() as i64;
        let source = from_offset.as_deref().copied().unwrap_or_else(|| position(&from));
        let target = to_offset.as_deref().copied().unwrap_or_else(|| position(&to));
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        let count = self.may_copy(&from, &to, source, target, len)?;
        let done = self.copy_contents(&from, &to, source as u64, target as u64, count)?;
        for (file, offset, start) in [(&from, from_offset, source), (&to, to_offset, target)] {
            match offset {
                Some(offset) => *offset = start + done as i64,
                None => file.set_pos(start + done as i64),
            }
        }
        Ok(done)
    }

    /// Kernel: fs/read_write.c `generic_file_rw_checks()`.
    fn file_rw_checks(&self, from: &File, to: &File) -> Result<()> {
        let [a, b] = [from, to].map(|file| self.kernel.store.read_inode(file.inode, Inode::attr).mode);
        if s_isdir(a) || s_isdir(b) {
            return Err(Errno::EISDIR);
        }
        if !s_isreg(a) || !s_isreg(b) {
            return Err(Errno::EINVAL);
        }
        let forbidden = !from.mode.read || !to.mode.write || to.flags.get() as i32 & O_APPEND != 0;
        if forbidden { Err(Errno::EBADF) } else { Ok(()) }
    }

    fn same_super(&self, from: &File, to: &File) -> bool {
        let [a, b] = [from, to].map(|file| self.kernel.mount(file.path.mnt).sb.get());
        a == b
    }

    /// `FICLONE` and `FICLONERANGE`: shares the contents of one open file with another. tmpfs cannot, so this never succeeds;
    /// which error it is depends on the files.
    ///
    /// # Errors
    ///
    /// In this order: `EBADF`; `EXDEV` (another file system); `EISDIR`, `EINVAL` (not a regular file), `EBADF` (not open for
    /// reading, for writing, or `O_APPEND`); `EOPNOTSUPP`.
    ///
    /// Kernel: fs/ioctl.c `ioctl_file_clone()`, fs/remap_range.c `vfs_clone_file_range()`.
    pub fn ficlone(&self, fd: i32, from_fd: i32) -> Result<()> {
        let (to, from) = (self.file(fd)?, self.file(from_fd)?);
        if !self.same_super(&from, &to) {
            return Err(Errno::EXDEV);
        }
        self.file_rw_checks(&from, &to)?;
        Err(Errno::EOPNOTSUPP)
    }

    /// `FIONREAD`: how many bytes of the file lie behind its position, as the `int` that the kernel answers with; 0 for a fifo,
    /// which carries nothing here.
    ///
    /// # Errors
    ///
    /// `EBADF` (also for `O_PATH`), `ENOTTY` (neither file nor fifo).
    ///
    /// Kernel: fs/ioctl.c `file_ioctl()`, fs/pipe.c `pipe_ioctl()`.
    pub fn fionread(&self, fd: i32) -> Result<i32> {
        let file = self.file(fd)?;
        let i = self.kernel.store.inode(file.inode);
        match i.attr().mode & S_IFMT {
            S_IFREG => Ok(i.size.get().wrapping_sub(file.pos.get()) as i32),
            S_IFIFO => Ok(0),
            _ => Err(Errno::ENOTTY),
        }
    }

    /// `FIOQSIZE`: how many bytes the file or directory occupies.
    ///
    /// # Errors
    ///
    /// `EBADF` (also for `O_PATH`), `ENOTTY` (neither file nor directory).
    ///
    /// Kernel: fs/ioctl.c `do_vfs_ioctl()`.
    pub fn fioqsize(&self, fd: i32) -> Result<i64> {
        let file = self.file(fd)?;
        let stat = self.kernel.store.fill_kstat(file.inode, false);
        match stat.mode & S_IFMT {
            S_IFREG | S_IFDIR => Ok(stat.blocks as i64 * 512),
            _ => Err(Errno::ENOTTY),
        }
    }

    /// How much of `len` can be copied. Kernel: fs/read_write.c `generic_copy_file_checks()`.
    fn may_copy(&self, from: &File, to: &File, source: i64, target: i64, len: usize) -> Result<usize> {
        let store = &self.kernel.store;
        self.file_rw_checks(from, to)?;
        if !self.same_super(from, to) {
            return Err(Errno::EXDEV);
        }
        if store.read_inode(to.inode, Inode::attr).iflags & perm::IFLAG_IMMUTABLE != 0 {
            return Err(Errno::EPERM);
        }
        // As unsigned numbers: one below zero is far out.
        let wraps = |offset: i64| (offset as u64).checked_add(len as u64).is_none();
        if wraps(source) || wraps(target) {
            return Err(Errno::EOVERFLOW);
        }
        let size = store.inode(from.inode).size.get() as i64;
        let count = i64::try_from(len).unwrap_or(i64::MAX).min(size.saturating_sub(source).max(0));
        let limit = i64::try_from(self.fsize_limit()).unwrap_or(i64::MAX);
        let room = limit.saturating_sub(target);
        if room <= 0 {
            return Err(Errno::EFBIG);
        }
        let count = count.min(room);
        if from.inode == to.inode && target + count > source && target < source + count {
            return Err(Errno::EINVAL);
        }
        if source < 0 || target < 0 {
            return Err(Errno::EINVAL);
        }
        Ok((count as usize).min(MAX_RW_COUNT))
    }

    /// Waits until the file is on the disk, if there is one: if a [`Backing`](crate::trees::changes::Backing) keeps the tree.
    ///
    /// # Errors
    ///
    /// `EBADF` (also for `O_PATH`), `EINVAL` (a special file), `EIO`, `ENOSPC` (the backing's).
    pub fn fsync(&self, fd: i32) -> Result<()> {
        let file = self.file(fd)?;
        match self.kernel.store.read_inode(file.inode, Inode::attr).mode & S_IFMT {
            S_IFREG | S_IFDIR => self.kernel.watch.sync(),
            _ => Err(Errno::EINVAL),
        }
    }

    /// [`fsync`](Self::fsync) without times.
    ///
    /// # Errors
    ///
    /// As [`fsync`](Self::fsync).
    pub fn fdatasync(&self, fd: i32) -> Result<()> {
        self.fsync(fd)
    }

    /// Waits until everything is on the disk, if there is one; tells nothing of what went wrong, as sync(2).
    pub fn sync(&self) {
        let _ = self.kernel.watch.sync();
    }

    /// Waits until the file system of the open file is on the disk.
    ///
    /// # Errors
    ///
    /// `EBADF` (also for `O_PATH`), `EIO`, `ENOSPC` (the backing's).
    pub fn syncfs(&self, fd: i32) -> Result<()> {
        self.file(fd)?;
        self.kernel.watch.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cred, Vfs};

    #[test]
    fn one_call_copies_what_one_call_moves() {
        let vfs = Vfs::new().expect("an engine");
        let root = vfs.task(Cred::root());
        let [from, to] = [b"/a", b"/b"].map(|path| root.open(path, O_RDWR | O_CREAT, 0o600).expect("opens"));
        root.ftruncate(from, 5 << 30).expect("a hole");
        let [a, b] = [from, to].map(|fd| root.file(fd).expect("open"));
        let may = |source, len| root.may_copy(&a, &b, source, 0, len);
        // The kernel's is as long.
        assert_eq!(may(0, usize::MAX), Ok(2_147_479_552));
        assert_eq!(may(3 << 30, 3 << 30), Ok(2_147_479_552));
        assert_eq!(may(4 << 30, usize::MAX >> 1), Ok(1 << 30));
        assert_eq!(may(1, usize::MAX), Err(Errno::EOVERFLOW));
    }

    /// On tmpfs the copy of a hole has pages, which count. Here they take neither memory nor time.
    #[test]
    fn a_copied_hole_is_pages_of_zeros() {
        let vfs = Vfs::builder().size_limit(1 << 40).build().expect("an engine");
        let root = vfs.task(Cred::root());
        let [from, to] = [b"/a", b"/b"].map(|path| root.open(path, O_RDWR | O_CREAT, 0o600).expect("opens"));
        root.ftruncate(from, 1 << 50).expect("a hole");
        root.pwrite(from, b"x", 500_000).expect("a page");
        assert_eq!(root.copy_file_range(from, Some(&mut 0), to, Some(&mut 0), 1 << 20, 0), Ok(1 << 20));
        assert_eq!((root.fstat(to).map(|s| s.blocks), root.lseek(to, 0, SEEK_DATA)), (Ok(2048), Ok(0)));
        let mut byte = [0];
        assert_eq!((root.pread(to, &mut byte, 500_000), byte), (Ok(1), *b"x"));
        assert_eq!(
            root.copy_file_range(from, Some(&mut 100), to, Some(&mut 1_048_876), 10_000, 0),
            Ok(10_000)
        );
        assert_eq!(root.fstat(to).map(|s| (s.blocks, s.size)), Ok((2072, 1_058_876)));
        assert_eq!(
            root.copy_file_range(from, Some(&mut (1 << 30)), to, Some(&mut 0), 1 << 40, 0),
            Ok(2_147_479_552)
        );
        root.fallocate(to, 0, 0, 64 << 30).expect("has room");
        assert_eq!(root.fallocate(to, 0, 0, 64 << 40), Err(Errno::ENOSPC));
        assert_eq!(root.fstat(to).map(|s| s.blocks), Ok(64 << 21));
    }
}
