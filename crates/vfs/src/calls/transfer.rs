//! Transfers with flags of their own, and from file to file: preadv2, pwritev2, sendfile.
//!
//! Kernel: fs/read_write.c, include/linux/fs.h `kiocb_set_rw_flags()`, fs/splice.c.

use crate::base::errno::{Errno, Result};
use crate::base::flags::ReadWriteFlags;
use crate::base::uapi::*;
use crate::calls::io::{MAX_RW_COUNT, Way};
use crate::dcache::inode::Inode;
use crate::file::File;
use crate::perm;
use crate::task::Task;
use crate::tmpfs::pages::PAGE_SIZE;
use rcuwalk_sync::lock::PoisonError;
use std::io::{IoSlice, IoSliceMut};

/// The flags of one write, parsed: what it does otherwise than its descriptor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rwf {
    /// Whether it goes to the end; `None`: as the descriptor says.
    pub(crate) append: Option<bool>,
    /// It waits until it is stored.
    pub(crate) sync: bool,
}

/// Flags that any file system may know.
const SUPPORTED: i32 = RWF_HIPRI
    | RWF_DSYNC
    | RWF_SYNC
    | RWF_NOWAIT
    | RWF_APPEND
    | RWF_NOAPPEND
    | RWF_ATOMIC
    | RWF_DONTCACHE
    | RWF_NOSIGNAL;

/// Those of them that tmpfs does not have.
const NOT_OF_TMPFS: i32 = RWF_NOWAIT | RWF_ATOMIC | RWF_DONTCACHE;

/// The most buffers of one call. Kernel: `UIO_MAXIOV`.
pub(crate) const UIO_MAXIOV: usize = 1024;

/// The bytes that sendfile and copy_file_range move at a time: what a pipe between two files holds.
const PIPE: usize = 1 << 16;

/// An offset, or the position for -1.
pub(crate) fn offset_or_position(offset: i64) -> Result<Option<i64>> {
    match offset {
        -1 => Ok(None),
        0.. => Ok(Some(offset)),
        _ => Err(Errno::EINVAL),
    }
}

/// The bytes of all buffers, if they are not too many, and end before the last offset there can be.
fn area(start: u64, lens: impl ExactSizeIterator<Item = usize>) -> Result<usize> {
    if lens.len() > UIO_MAXIOV {
        return Err(Errno::EINVAL);
    }
    let len = lens.fold(0_usize, usize::saturating_add).min(MAX_RW_COUNT);
    if len > 0 && start.saturating_add(len as u64) > i64::MAX as u64 { Err(Errno::EINVAL) } else { Ok(len) }
}

impl Task {
    /// The flags of a transfer on `fd`, which come behind what the descriptor forbids and before anything moves.
    ///
    /// # Errors
    ///
    /// `EBADF`, `EOPNOTSUPP`, `EINVAL` (`RWF_APPEND` and `RWF_NOAPPEND`), `EPERM`.
    ///
    /// Kernel: include/linux/fs.h `kiocb_set_rw_flags()`; fs/read_write.c `do_loop_readv_writev()` for directories and `/proc`.
    pub(crate) fn rwf(&self, fd: i32, flags: i32) -> Result<Rwf> {
        if flags == 0 {
            return Ok(Rwf::default());
        }
        let file = self.file_any(fd)?;
        let attr = self.kernel.store.read_inode(file.inode, Inode::attr);
        if (s_isdir(attr.mode) || file.proc.is_some()) && flags & !RWF_HIPRI != 0 || flags & !SUPPORTED != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if flags & (RWF_APPEND | RWF_NOAPPEND) == RWF_APPEND | RWF_NOAPPEND {
            return Err(Errno::EINVAL);
        }
        if flags & NOT_OF_TMPFS != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let appends = file.flags.get() as i32 & O_APPEND != 0;
        if flags & RWF_NOAPPEND != 0 && appends && attr.iflags & perm::IFLAG_APPEND != 0 {
            return Err(Errno::EPERM);
        }
        let append = match flags & (RWF_APPEND | RWF_NOAPPEND) {
            RWF_APPEND => Some(true),
            RWF_NOAPPEND => Some(false),
            _ => None,
        };
        Ok(Rwf { append, sync: flags & (RWF_DSYNC | RWF_SYNC) != 0 })
    }

    /// Reads into the buffers, one behind the other, at byte `offset`, or with -1 at the position of `fd`, which advances; gives
    /// the number of bytes, at most 2147479552. `flags`: `RWF_HIPRI`, `RWF_DSYNC`, `RWF_SYNC`, `RWF_APPEND` and
    /// `RWF_NOSIGNAL`, none of which means anything to a read.
    ///
    /// # Errors
    ///
    /// In this order: `EINVAL` (another negative offset); `EBADF`; `ESPIPE` (an offset, and a fifo); `EINVAL` (more than
    /// 1024 buffers; beyond the last offset there can be); `EOPNOTSUPP` (a flag that tmpfs does not have, such as `RWF_NOWAIT`, or any but `RWF_HIPRI` on a
    /// directory), `EINVAL` (`RWF_APPEND` with `RWF_NOAPPEND`); then as [`read`](Self::read). Without room for a byte only the
    /// descriptor is looked at.
    ///
    /// Kernel: fs/read_write.c `do_preadv()`, `vfs_readv()`.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Errno, Vfs, uapi::*};
    /// use std::io::IoSliceMut;
    /// # let vfs = Vfs::new()?;
    /// let root = vfs.task(Cred::root());
    /// let fd = root.open(b"/f", O_CREAT | O_RDWR, 0o600)?;
    /// root.write(fd, b"hello")?;
    /// let (mut one, mut two) = ([0; 2], [0; 9]);
    /// let mut buffers = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
    /// assert_eq!(root.preadv2(fd, &mut buffers, 0, 0), Ok(5));
    /// assert_eq!(root.preadv2(fd, &mut buffers, 0, RWF_NOWAIT), Err(Errno::EOPNOTSUPP));
    /// assert_eq!((&one, &two[..3]), (b"he", b"llo".as_slice()));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn preadv2(
        &self,
        fd: i32,
        buffers: &mut [IoSliceMut<'_>],
        offset: i64,
        flags: impl Into<ReadWriteFlags>,
    ) -> Result<usize> {
        let offset = offset_or_position(offset)?;
        let start = self.may_transfer(fd, Way::Read, offset)?;
        let len = area(start, buffers.iter().map(|buffer| buffer.len()))?;
        if len == 0 {
            return Ok(0);
        }
        self.rwf(fd, flags.into().bits())?;
        let mut done = 0;
        for buffer in buffers {
            let n = buffer.len().min(len - done);
            let read = match offset {
                Some(offset) => self.pread(fd, &mut buffer[..n], offset + done as i64),
                None => self.read(fd, &mut buffer[..n]),
            };
            match read {
                Ok(read) => done += read,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
            if read != Ok(n) {
                break;
            }
        }
        Ok(done)
    }

    /// Writes what the buffers hold, one behind the other, at byte `offset`, or with -1 at the position of `fd`, which advances;
    /// gives the number of bytes, at most 2147479552. `flags`: `RWF_APPEND` (to the end, whatever the offset) and `RWF_NOAPPEND` (not there, though `O_APPEND` is
    /// set), `RWF_DSYNC` and `RWF_SYNC` (wait until it is stored), `RWF_HIPRI` and `RWF_NOSIGNAL` (no effect).
    ///
    /// # Errors
    ///
    /// As [`preadv2`](Self::preadv2) and [`write`](Self::write); `EPERM` (`RWF_NOAPPEND` with `O_APPEND` on an append-only file).
    ///
    /// Kernel: fs/read_write.c `do_pwritev()`, `vfs_writev()`.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Errno, Vfs, uapi::*};
    /// use std::io::IoSlice;
    /// # let vfs = Vfs::new()?;
    /// let root = vfs.task(Cred::root());
    /// let fd = root.open(b"/log", O_CREAT | O_WRONLY, 0o600)?;
    /// root.pwritev2(fd, &[IoSlice::new(b"one "), IoSlice::new(b"two ")], 0, 0)?;
    /// root.pwritev2(fd, &[IoSlice::new(b"three")], 0, RWF_APPEND)?;
    /// assert_eq!(root.fstat(fd)?.size, 13);
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn pwritev2(
        &self,
        fd: i32,
        buffers: &[IoSlice<'_>],
        offset: i64,
        flags: impl Into<ReadWriteFlags>,
    ) -> Result<usize> {
        let offset = offset_or_position(offset)?;
        let start = self.may_transfer(fd, Way::Write, offset)?;
        let len = area(start, buffers.iter().map(|buffer| buffer.len()))?;
        if len == 0 {
            return Ok(0);
        }
        let rwf = self.rwf(fd, flags.into().bits())?;
        let mut done = 0;
        for buffer in buffers {
            let data = &buffer[..buffer.len().min(len - done)];
            let written = self.write_with(fd, data, offset.map(|offset| offset + done as i64), rwf);
            match written {
                Ok(written) => done += written,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
            if written != Ok(data.len()) {
                break;
            }
        }
        Ok(done)
    }

    /// Copies `count` bytes of the file `in_fd` to the position of `out_fd`, which advances; gives how many: fewer at the end of
    /// the first, and at most 2147479552. They are read at `offset`, which advances, or at the position of `in_fd`.
    ///
    /// # Errors
    ///
    /// In this order: `EBADF` (`in_fd` not open for reading); `ESPIPE` (an offset, and a fifo); `EINVAL` (a negative offset, a
    /// count beyond the last one); `EBADF` (`out_fd` not open for writing); `EINVAL` (its position too far; `O_APPEND`; `in_fd` is
    /// a fifo or a directory); then as [`read`](Self::read) and [`write`](Self::write).
    ///
    /// Kernel: fs/read_write.c `do_sendfile()`, fs/splice.c `splice_direct_to_actor()`.  Differs: a fifo carries nothing, so
    /// sending to one is `EAGAIN`.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Errno, Vfs, uapi::*};
    /// # let vfs = Vfs::new()?;
    /// let root = vfs.task(Cred::root());
    /// let [from, to] = [b"/a", b"/b"].map(|path| root.open(path, O_CREAT | O_RDWR, 0o600).unwrap());
    /// root.write(from, b"hello world")?;
    /// let mut offset = 6;
    /// assert_eq!(root.sendfile(to, from, Some(&mut offset), 100), Ok(5));
    /// assert_eq!((offset, root.fstat(to)?.size), (11, 5));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn sendfile(&self, out_fd: i32, in_fd: i32, offset: Option<&mut i64>, count: usize) -> Result<usize> {
        let from = self.file_any(in_fd)?;
        if !from.mode.read || from.mode.path && from.proc.is_none() {
            return Err(Errno::EBADF);
        }
        if offset.is_some() && from.proc.is_none() {
            self.positioned(&from)?;
        }
        let source = offset.as_deref().copied().unwrap_or(from.pos.get() as i64);
        verify_area(source, count)?;
        let count = count.min(MAX_RW_COUNT);
        let to = self.file_any(out_fd)?;
        if !to.mode.write || to.mode.path && to.proc.is_none() {
            return Err(Errno::EBADF);
        }
        let target = to.pos.get() as i64;
        let done = if self.nothing_of_a_fifo(&to, true, 0) {
            if count == 0 { Ok(0) } else { Err(Errno::EAGAIN) }
        } else {
            verify_area(target, count)?;
            self.splice_direct(&from, &to, source as u64, target as u64, count)
        }?;
        if done > 0 {
            to.set_pos(target + done as i64);
            match offset {
                Some(offset) => *offset = source + done as i64,
                None => from.set_pos(source + done as i64),
            }
        }
        Ok(done)
    }

    /// Kernel: fs/splice.c `do_splice_direct()`.
    fn splice_direct(&self, from: &File, to: &File, source: u64, target: u64, count: usize) -> Result<usize> {
        let mode = self.kernel.store.read_inode(from.inode, Inode::attr).mode;
        if to.flags.get() as i32 & O_APPEND != 0 || s_isfifo(mode) {
            return Err(Errno::EINVAL);
        }
        let result = match count {
            0 => Ok(0),
            _ if s_isdir(mode) || from.proc.is_some() || to.proc.is_some() => Err(Errno::EINVAL),
            _ => self.copy_contents(from, to, source, target, count),
        };
        // Whatever came of it, the first one was read from.
        if from.flags.get() as i32 & O_NOATIME == 0 {
            self.kernel.touch_atime(from.path.mnt, from.inode);
        }
        result
    }

    /// Copies between regular files, as much as a pipe holds at a time, so that no count takes more memory than that, and holes
    /// as a whole.
    pub(crate) fn copy_contents(
        &self,
        from: &File,
        to: &File,
        source: u64,
        target: u64,
        count: usize,
    ) -> Result<usize> {
        let mut chunk = Vec::new();
        let mut done = 0;
        while done < count {
            let (left, step) = (count - done, done as u64);
            match self.copy_step(from, to, [source + step, target + step], left, &mut chunk) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
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
        chunk.resize(len.min(PIPE), 0);
        let n = self.kernel.read_at(from, chunk, source)?;
        self.write_at(to, &chunk[..n], target, Rwf::default()).map(|(n, _)| n)
    }
}

impl File {
    /// Moves the position.
    pub(crate) fn set_pos(&self, to: i64) {
        let _position = self.seek.lock().unwrap_or_else(PoisonError::into_inner);
        self.pos.set(to as u64);
    }
}

/// Kernel: fs/read_write.c `rw_verify_area()`.
fn verify_area(offset: i64, count: usize) -> Result<()> {
    let fits = i64::try_from(count).is_ok_and(|count| offset >= 0 && offset.checked_add(count).is_some());
    if fits { Ok(()) } else { Err(Errno::EINVAL) }
}
