//! Calls on descriptors: contents, directory entries, the table itself.

use super::memory::{copy_in, copy_out};
use super::{Answer, Call, done, fd};
use crate::base::errno::{Errno, Result};
use crate::base::uapi::{
    F_GET_RW_HINT, F_GETLK, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_SET_RW_HINT, F_SETFD, F_SETLK,
    F_SETLKW, FD_CLOEXEC, LOCK_NB, SEEK_CUR, SEEK_SET,
};
use crate::calls::fileattr::FileAttr;
use crate::calls::io::{MAX_RW_COUNT, Way};
use crate::calls::locks::Flock;
use crate::calls::transfer::{Rwf, UIO_MAXIOV, offset_or_position};
use crate::task::Task;

/// Bytes moved at a time. What is written by one call is written in pieces of this size, others' writes between them.
const PIECE: u64 = 1 << 20;

/// `FS_IOC_GETFLAGS`, 64-bit.
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
/// `FS_IOC_SETFLAGS`, 64-bit.
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
/// Bytes of `struct fsxattr`.
const FSXATTR_SIZE: usize = 28;
const FICLONE: u32 = 0x4004_9409;
const FICLONERANGE: u32 = 0x4020_940d;
const FIONREAD: u32 = 0x541b;
const FIOQSIZE: u32 = 0x5460;
const FIONCLEX: u32 = 0x5450;
const FIOCLEX: u32 = 0x5451;

/// A buffer in memory: address and bytes.
type Iovec = (u64, u64);

/// Contents.
impl Call<'_> {
    pub(super) fn read(&mut self) -> Answer {
        let buffer = self.buffer(Way::Read, None)?;
        self.do_read(self.int(0), &[buffer], None)
    }

    pub(super) fn pread64(&mut self) -> Answer {
        let offset = self.offset()?;
        let buffer = self.buffer(Way::Read, offset)?;
        self.do_read(self.int(0), &[buffer], offset)
    }

    pub(super) fn readv(&mut self) -> Answer {
        match self.iovecs(Way::Read, None)? {
            Some(buffers) => self.do_read(self.int(0), &buffers, None),
            None => Ok(0),
        }
    }

    pub(super) fn preadv(&mut self) -> Answer {
        let offset = self.offset()?;
        match self.iovecs(Way::Read, offset)? {
            Some(buffers) => self.do_read(self.int(0), &buffers, offset),
            None => Ok(0),
        }
    }

    /// On 64 bits the upper half of the offset does not count.
    pub(super) fn preadv2(&mut self) -> Answer {
        let offset = offset_or_position(self.long(3))?;
        let Some(buffers) = self.iovecs(Way::Read, offset)? else { return Ok(0) };
        self.task.rwf(self.int(0), self.int(5))?;
        self.do_read(self.int(0), &buffers, offset)
    }

    pub(super) fn write(&mut self) -> Answer {
        let buffer = self.buffer(Way::Write, None)?;
        self.do_write(self.int(0), &[buffer], None, Rwf::default())
    }

    pub(super) fn pwrite64(&mut self) -> Answer {
        let offset = self.offset()?;
        let buffer = self.buffer(Way::Write, offset)?;
        self.do_write(self.int(0), &[buffer], offset, Rwf::default())
    }

    pub(super) fn writev(&mut self) -> Answer {
        match self.iovecs(Way::Write, None)? {
            Some(buffers) => self.do_write(self.int(0), &buffers, None, Rwf::default()),
            None => Ok(0),
        }
    }

    pub(super) fn pwritev(&mut self) -> Answer {
        let offset = self.offset()?;
        match self.iovecs(Way::Write, offset)? {
            Some(buffers) => self.do_write(self.int(0), &buffers, offset, Rwf::default()),
            None => Ok(0),
        }
    }

    pub(super) fn pwritev2(&mut self) -> Answer {
        let offset = offset_or_position(self.long(3))?;
        let Some(buffers) = self.iovecs(Way::Write, offset)? else { return Ok(0) };
        let rwf = self.task.rwf(self.int(0), self.int(5))?;
        self.do_write(self.int(0), &buffers, offset, rwf)
    }

    /// The one buffer of a call that has no vector of them. The size counts as it was given: what one call cannot move is
    /// cut off only afterwards.
    ///
    /// # Errors
    ///
    /// `EFAULT`, if the descriptor allows the call.
    ///
    /// Kernel: fs/read_write.c `vfs_read()`, `vfs_write()`.
    fn buffer(&self, way: Way, offset: Option<i64>) -> Result<Iovec> {
        let (address, len) = (self.args[1], self.args[2]);
        if self.mem.access_ok(address, len) {
            self.verify_area(way, offset, len)?;
            return Ok((address, len.min(MAX_RW_COUNT as u64)));
        }
        self.task.may_transfer(self.int(0), way, offset)?;
        Err(Errno::EFAULT)
    }

    /// The whole of a transfer has to lie before the last offset; one that the descriptor does not allow answers later.
    ///
    /// Kernel: fs/read_write.c `rw_verify_area()`.
    fn verify_area(&self, way: Way, offset: Option<i64>, len: u64) -> Result<()> {
        match self.task.may_transfer(self.int(0), way, offset) {
            Ok(at) if at.saturating_add(len) > i64::MAX as u64 => Err(Errno::EINVAL),
            _ => Ok(()),
        }
    }

    /// The offset, which is judged before the descriptor. Where a call takes it in two halves, the second does not count on
    /// 64 bits.
    fn offset(&self) -> Result<Option<i64>> {
        let offset = self.long(3);
        if offset < 0 { Err(Errno::EINVAL) } else { Ok(Some(offset)) }
    }

    /// A descriptor that is not open is found out before the buffers are read.
    fn check_fd(&self) -> Result<()> {
        self.task.file(self.int(0)).map(drop)
    }

    /// The buffers of a vectored call; `None` if there is nothing in them, which any file that is open for it gives or takes.
    ///
    /// Kernel: fs/read_write.c `vfs_readv()`, lib/iov_iter.c `import_iovec()`.
    fn iovecs(&mut self, way: Way, offset: Option<i64>) -> Result<Option<Vec<Iovec>>> {
        self.task.may_transfer(self.int(0), way, offset)?;
        let count = self.args[2];
        if count > UIO_MAXIOV as u64 {
            return Err(Errno::EINVAL);
        }
        let mut bytes = vec![0; count as usize * 16];
        self.mem.copy_from_user(&mut bytes, self.args[1])?;
        let (words, _) = bytes.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        let mut buffers: Vec<Iovec> = pairs.iter().map(|pair| pair.map(u64::from_ne_bytes).into()).collect();
        if buffers.iter().any(|&(_, len)| len > i64::MAX as u64) {
            return Err(Errno::EINVAL);
        }
        let alone = buffers.len() == 1;
        let mut left = MAX_RW_COUNT as u64;
        for (address, len) in &mut buffers {
            // Of a single one, what is too much is cut off before the rest is looked at; of several, afterwards.
            if alone {
                *len = (*len).min(left);
            }
            if !self.mem.access_ok(*address, *len) {
                return Err(Errno::EFAULT);
            }
            *len = (*len).min(left);
            left -= *len;
        }
        if left == MAX_RW_COUNT as u64 {
            return Ok(None);
        }
        self.verify_area(way, offset, MAX_RW_COUNT as u64 - left)?;
        Ok(Some(buffers))
    }

    /// Reads into the buffers, at the file's position or at `offset`, until one cannot be written or there is no more.
    fn do_read(&mut self, fd: i32, buffers: &[Iovec], offset: Option<i64>) -> Answer {
        let at = |total: i64| offset.map(|offset| offset.saturating_add(total));
        let read = |task: &Task, to: &mut [u8], total: i64| match at(total) {
            Some(offset) => task.pread(fd, to, offset),
            None => task.read(fd, to),
        };
        if buffers.iter().all(|&(_, len)| len == 0) {
            return read(self.task, &mut [], 0).map(|_| 0);
        }
        let mut piece = Vec::new();
        let mut total = 0;
        for &(address, len) in buffers {
            let mut done = 0;
            while done < len {
                piece.resize((len - done).min(PIECE) as usize, 0);
                let n = match read(self.task, &mut piece, total) {
                    Ok(n) => n,
                    Err(_) if total > 0 => return Ok(total),
                    Err(errno) => return Err(errno),
                };
                let stored = copy_out(self.mem, address.wrapping_add(done), &piece[..n]);
                (total, done) = (total + stored as i64, done + stored as u64);
                if stored < n {
                    if offset.is_none() {
                        self.task.lseek(fd, stored as i64 - n as i64, SEEK_CUR)?;
                    }
                    return if total == 0 { Err(Errno::EFAULT) } else { Ok(total) };
                }
                if n < piece.len() {
                    return Ok(total);
                }
            }
        }
        Ok(total)
    }

    /// Writes what the buffers hold, at the file's position or at `offset`, until one cannot be read or there is no room.
    fn do_write(&mut self, fd: i32, buffers: &[Iovec], offset: Option<i64>, rwf: Rwf) -> Answer {
        let at = |total: i64| offset.map(|offset| offset.saturating_add(total));
        let write = |task: &Task, data: &[u8], total: i64| task.write_with(fd, data, at(total), rwf);
        // Whether it can be written to at all comes before what is written; but where nothing is a mistake of its own.
        if let Err(errno) = write(self.task, &[], 0)
            && (buffers.iter().all(|&(_, len)| len == 0) || !self.task.is_node(fd))
        {
            return Err(errno);
        }
        let mut piece = Vec::new();
        let mut total = 0;
        for &(address, len) in buffers {
            let mut done = 0;
            while done < len {
                piece.resize((len - done).min(PIECE) as usize, 0);
                let readable = copy_in(self.mem, &mut piece, address.wrapping_add(done));
                if readable == 0 {
                    return self.write_fault(fd, at(total), total, rwf);
                }
                let n = match write(self.task, &piece[..readable], total) {
                    Ok(n) => n,
                    Err(_) if total > 0 => return Ok(total),
                    Err(errno) => return Err(errno),
                };
                (total, done) = (total + n as i64, done + n as u64);
                if n < readable {
                    return Ok(total);
                }
            }
        }
        Ok(total)
    }

    /// The end of a write whose buffers cannot be read beyond `total` bytes. Where it would have gone on shows, on tmpfs.
    fn write_fault(&mut self, fd: i32, offset: Option<i64>, total: i64, rwf: Rwf) -> Answer {
        let left = if self.task.is_node(fd) { Ok(()) } else { self.task.write_fault(fd, offset, rwf) };
        if total > 0 { Ok(total) } else { left.and(Err(Errno::EFAULT)) }
    }

    pub(super) fn lseek(&mut self) -> Answer {
        self.task.lseek(self.int(0), self.long(1), self.int(2))
    }

    pub(super) fn ftruncate(&mut self) -> Answer {
        done(self.task.ftruncate(self.int(0), self.long(1)))
    }

    pub(super) fn fallocate(&mut self) -> Answer {
        done(self.task.fallocate(self.int(0), self.int(1), self.long(2), self.long(3)))
    }

    /// Kernel: fs/read_write.c `copy_file_range()`.
    pub(super) fn copy_file_range(&mut self) -> Answer {
        self.check_fd()?;
        self.task.file(self.int(2)).map(drop)?;
        let mut offsets = [None; 2];
        for (offset, i) in offsets.iter_mut().zip([1, 3]) {
            if self.args[i] != 0 {
                let [word] = self.words(self.args[i])?;
                *offset = Some(word as i64);
            }
        }
        let len = usize::try_from(self.args[4]).unwrap_or(usize::MAX);
        let [from, to] = &mut offsets;
        let n = self.task.copy_file_range(
            self.int(0),
            from.as_mut(),
            self.int(2),
            to.as_mut(),
            len,
            self.uint(5),
        )?;
        for (offset, i) in offsets.into_iter().zip([1, 3]) {
            if let Some(offset) = offset {
                self.put(i, &offset.to_ne_bytes())?;
            }
        }
        Ok(n as i64)
    }

    /// Kernel: fs/read_write.c `sendfile64()`.
    pub(super) fn sendfile(&mut self) -> Answer {
        let (out_fd, in_fd) = (self.int(0), self.int(1));
        // A count that is no size is too large for any area.
        let count = usize::try_from(self.args[3]).unwrap_or(usize::MAX);
        if self.args[2] == 0 {
            return self.task.sendfile(out_fd, in_fd, None, count).map(|n| n as i64);
        }
        let [offset] = self.words(self.args[2])?;
        let mut offset = offset as i64;
        let sent = self.task.sendfile(out_fd, in_fd, Some(&mut offset), count);
        self.put(2, &offset.to_ne_bytes())?;
        sent.map(|n| n as i64)
    }

    pub(super) fn fsync(&mut self) -> Answer {
        done(self.task.fsync(self.int(0)))
    }

    pub(super) fn fdatasync(&mut self) -> Answer {
        done(self.task.fdatasync(self.int(0)))
    }

    pub(super) fn syncfs(&mut self) -> Answer {
        done(self.task.syncfs(self.int(0)))
    }

    pub(super) fn sync(&mut self) -> Answer {
        self.task.sync();
        Ok(0)
    }
}

/// Directory entries.
impl Call<'_> {
    pub(super) fn getdents64(&mut self) -> Answer {
        self.do_getdents(|_| ())
    }

    /// The older structure, `struct linux_dirent`, has the type in its last byte instead of before the name, and is as long.
    pub(super) fn getdents(&mut self) -> Answer {
        const TYPE: usize = 18;
        self.do_getdents(|record| {
            let kind = record[TYPE];
            record.copy_within(TYPE + 1.., TYPE);
            record[record.len() - 1] = kind;
        })
    }

    /// Gives as many records as fit, and leaves the position behind the last of them.
    ///
    /// Kernel: fs/readdir.c `getdents64()`.
    fn do_getdents(&mut self, rewrite: impl Fn(&mut [u8])) -> Answer {
        let fd = self.int(0);
        // More than an `int` holds is less than nothing.
        let room = i32::try_from(self.uint(2)).unwrap_or(0) as u64;
        let (mut done, mut records) = (0, Vec::new());
        loop {
            let start = self.task.lseek(fd, 0, SEEK_CUR);
            records.resize((room - done).min(PIECE) as usize, 0);
            let n = match self.task.getdents64(fd, &mut records) {
                Ok(n) => n,
                Err(errno) if done == 0 => return Err(errno),
                // The next one does not fit, or the directory is no more.
                Err(_) => break,
            };
            let ends = walk_records(&mut records[..n], &rewrite);
            let stored = copy_out(self.mem, self.args[1].wrapping_add(done), &records[..n]);
            if stored < n {
                // Behind the last one that is there.
                let last = ends.into_iter().take_while(|(end, _)| *end <= stored).last();
                let (end, position) = match last {
                    Some(last) => last,
                    None => (0, start?),
                };
                self.task.lseek(fd, position, SEEK_SET)?;
                if done == 0 && end == 0 {
                    // The position moves with the first, which reading it without room finds out.
                    let _ = self.task.getdents64(fd, &mut []);
                    return Err(Errno::EFAULT);
                }
                return Ok((done + end as u64) as i64);
            }
            done += n as u64;
            if n == 0 || room <= PIECE {
                break;
            }
        }
        Ok(done as i64)
    }
}

/// Rewrites each record, and tells where it ends and what the position of the next one is.
fn walk_records(records: &mut [u8], rewrite: impl Fn(&mut [u8])) -> Vec<(usize, i64)> {
    let mut ends = Vec::new();
    let mut at = 0;
    while at < records.len() {
        let len = usize::from(u16::from_ne_bytes([records[at + 16], records[at + 17]]));
        let mut next = [0; 8];
        next.copy_from_slice(&records[at + 8..at + 16]);
        rewrite(&mut records[at..at + len]);
        at += len;
        ends.push((at, i64::from_ne_bytes(next)));
    }
    ends
}

/// The table.
impl Call<'_> {
    pub(super) fn close(&mut self) -> Answer {
        done(self.task.close(self.int(0)))
    }

    /// Kernel: fs/file.c `close_range()`.
    pub(super) fn close_range(&mut self) -> Answer {
        const CLOSE_RANGE_UNSHARE: u32 = 2;
        const CLOSE_RANGE_CLOEXEC: u32 = 4;
        let (first, last, flags) = (self.uint(0), self.uint(1), self.uint(2));
        if flags & !(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC) != 0 || first > last {
            return Err(Errno::EINVAL);
        }
        if flags & CLOSE_RANGE_UNSHARE != 0 {
            self.task.unshare_files()?;
        }
        for fd in self.task.files.table.open_in(first, last) {
            // Another thread may have been faster.
            let _ = if flags & CLOSE_RANGE_CLOEXEC != 0 {
                self.task.files.table.set_fd_flags(fd, FD_CLOEXEC)
            } else {
                self.task.close(fd)
            };
        }
        Ok(0)
    }

    pub(super) fn dup(&mut self) -> Answer {
        fd(self.task.dup(self.int(0)))
    }

    pub(super) fn dup2(&mut self) -> Answer {
        fd(self.task.dup2(self.int(0), self.int(1)))
    }

    pub(super) fn dup3(&mut self) -> Answer {
        fd(self.task.dup3(self.int(0), self.int(1), self.int(2)))
    }

    pub(super) fn fcntl(&mut self) -> Answer {
        match self.int(1) {
            F_GETLK | F_OFD_GETLK => self.lock_range(self.int(1)),
            F_SETLK | F_SETLKW => self.lock_range(F_SETLK),
            F_OFD_SETLK | F_OFD_SETLKW => self.lock_range(F_OFD_SETLK),
            F_GET_RW_HINT => {
                let hint = self.task.get_rw_hint(self.int(0))?;
                self.put(2, &hint.to_ne_bytes())
            }
            F_SET_RW_HINT => {
                self.task.may_set_rw_hint(self.int(0))?;
                let [hint] = self.words(self.args[2])?;
                done(self.task.set_rw_hint(self.int(0), hint))
            }
            command => fd(self.task.fcntl(self.int(0), command, self.int(2))),
        }
    }

    /// Kernel: fs/fcntl.c `do_fcntl()`, for the commands that take a `struct flock`.
    fn lock_range(&mut self, command: i32) -> Answer {
        self.check_fd()?;
        let [kinds, start, len, pid] = self.words(self.args[2])?;
        let mut lock = Flock {
            kind: kinds as i16,
            whence: (kinds >> 16) as i16,
            start: start as i64,
            len: len as i64,
            pid: pid as i32,
        };
        self.task.fcntl_lock(self.int(0), command, &mut lock)?;
        if !matches!(command, F_GETLK | F_OFD_GETLK) {
            return Ok(0);
        }
        let kinds = u64::from(lock.kind as u16) | u64::from(lock.whence as u16) << 16;
        let words = [kinds, lock.start as u64, lock.len as u64, u64::from(lock.pid as u32)];
        self.put(2, words.map(u64::to_ne_bytes).as_flattened())
    }

    pub(super) fn flock(&mut self) -> Answer {
        done(self.task.flock(self.int(0), self.int(1) | LOCK_NB))
    }

    pub(super) fn fstatfs(&mut self) -> Answer {
        let found = self.task.fstatfs(self.int(0))?;
        self.put(1, &found.to_bytes())
    }

    pub(super) fn fchmod(&mut self) -> Answer {
        done(self.task.fchmod(self.int(0), self.uint(1)))
    }

    pub(super) fn fchown(&mut self) -> Answer {
        done(self.task.fchown(self.int(0), self.uint(1), self.uint(2)))
    }

    /// Kernel: fs/ioctl.c `do_vfs_ioctl()`.
    pub(super) fn ioctl(&mut self) -> Answer {
        let (fd, command) = (self.int(0), self.uint(1));
        self.check_fd()?;
        match command {
            FIOCLEX => self.task.fcntl(fd, F_SETFD, FD_CLOEXEC).map(|_| 0),
            FIONCLEX => self.task.fcntl(fd, F_SETFD, 0).map(|_| 0),
            FS_IOC_GETFLAGS => {
                let flags = self.task.getflags(fd)?;
                self.put(2, &flags.to_ne_bytes())
            }
            FS_IOC_SETFLAGS => {
                let flags = u32::from_ne_bytes(self.get(self.args[2])?);
                done(self.task.setflags(fd, flags))
            }
            FS_IOC_FSGETXATTR => {
                let attr = self.task.fsgetxattr(fd)?;
                self.put(2, &fsxattr(&attr))
            }
            FS_IOC_FSSETXATTR => {
                let words: [u8; FSXATTR_SIZE] = self.get(self.args[2])?;
                let (halves, _) = words.as_chunks::<4>();
                let half = |i: usize| u32::from_ne_bytes(halves[i]);
                let attr = FileAttr::default().with_xflags(u64::from(half(0))).with_extsize(half(1));
                done(self.task.fssetxattr(fd, attr.with_projid(half(3)).with_cowextsize(half(4))))
            }
            FIONREAD => {
                let left = self.task.fionread(fd)?;
                self.put(2, &left.to_ne_bytes())
            }
            FIOQSIZE => {
                let size = self.task.fioqsize(fd)?;
                self.put(2, &size.to_ne_bytes())
            }
            FICLONE => done(self.task.ficlone(fd, self.int(2))),
            FICLONERANGE => {
                let [from, ..] = self.words::<4>(self.args[2])?;
                done(self.task.ficlone(fd, from as i32))
            }
            _ => Err(Errno::ENOTTY),
        }
    }
}

/// `struct fsxattr`.
fn fsxattr(attr: &FileAttr) -> [u8; FSXATTR_SIZE] {
    let mut bytes = [0; FSXATTR_SIZE];
    let words = [attr.xflags as u32, attr.extsize, attr.nextents, attr.projid, attr.cowextsize];
    bytes[..20].copy_from_slice(words.map(u32::to_ne_bytes).as_flattened());
    bytes
}
