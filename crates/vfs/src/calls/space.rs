//! Space of files: fallocate, copy_file_range, fsync and its like.
//!
//! Kernel: fs/open.c `vfs_fallocate()`, fs/read_write.c `vfs_copy_file_range()`, fs/sync.c, mm/shmem.c
//! `shmem_fallocate()`.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::*;
use crate::calls::io::MAX_RW_COUNT;
use crate::dcache::inode::Inode;
use crate::file::File;
use crate::perm;
use crate::task::Task;
use crate::tmpfs::pages::PAGE_SIZE;
use rcuwalk_sync::lock::PoisonError;

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
    pub fn fallocate(&self, fd: i32, mode: i32, offset: i64, len: i64) -> Result<()> {
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
        let mut chunk = Vec::new();
        let mut done = 0;
        while done < count {
            let (left, step) = (count - done, done as u64);
            match self.copy_step(&from, &to, [source as u64 + step, target as u64 + step], left, &mut chunk) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        for (file, offset, start) in [(&from, from_offset, source), (&to, to_offset, target)] {
            match offset {
                Some(offset) => *offset = start + done as i64,
                None => {
                    let _position = file.seek.lock().unwrap_or_else(PoisonError::into_inner);
                    file.pos.set((start + done as i64) as u64);
                }
            }
        }
        Ok(done)
    }

    /// Copies a part of `len` bytes; none at the end of the first file. Where that has no pages the other gets pages of zeros, as on
    /// tmpfs, which take no memory.
    fn copy_step(
        &self,
        from: &File,
        to: &File,
        [source, target]: [u64; 2],
        len: usize,
        chunk: &mut Vec<u8>,
    ) -> Result<usize> {
        let left = self.kernel.store.inode(from.inode).size.get().saturating_sub(source);
        let zeros = self.kernel.zeros_at(from, source)?.min(left).min(len as u64) as usize;
        if zeros >= PAGE_SIZE {
            self.kernel.read_at(from, &mut [], source)?;
            return self.write_zeros_at(to, zeros, target);
        }
        chunk.resize(len.min(1 << 16), 0);
        let n = self.kernel.read_at(from, chunk, source)?;
        self.write_at(to, &chunk[..n], target).map(|(n, _)| n)
    }

    /// How much of `len` can be copied. Kernel: fs/read_write.c `generic_copy_file_checks()`.
    fn may_copy(&self, from: &File, to: &File, source: i64, target: i64, len: usize) -> Result<usize> {
        let store = &self.kernel.store;
        let [a, b] = [from, to].map(|file| store.read_inode(file.inode, Inode::attr));
        if s_isdir(a.mode) || s_isdir(b.mode) {
            return Err(Errno::EISDIR);
        }
        if !s_isreg(a.mode) || !s_isreg(b.mode) {
            return Err(Errno::EINVAL);
        }
        if !from.mode.read || !to.mode.write || to.flags.get() as i32 & O_APPEND != 0 {
            return Err(Errno::EBADF);
        }
        if self.kernel.mount(from.path.mnt).sb.get() != self.kernel.mount(to.path.mnt).sb.get() {
            return Err(Errno::EXDEV);
        }
        if b.iflags & perm::IFLAG_IMMUTABLE != 0 {
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
