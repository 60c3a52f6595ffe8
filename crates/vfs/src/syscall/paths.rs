//! Calls on names: open, stat, access, and those that change the tree.

use super::memory::UserMemory;
use super::{Answer, Call, done, fd};
use crate::base::errno::{Errno, Result};
use crate::base::uapi::{AT_FDCWD, AT_REMOVEDIR, OpenHow, PATH_MAX, Statx, Timespec};
use crate::task::Task;

/// Microseconds of a second.
const USEC_PER_SEC: i64 = 1_000_000;

/// The lengths of the fields of a `struct statx`, in bytes; the last is what is reserved at its end.
const STATX_FIELDS: &[usize] = &[
    4, 4, 8, 4, 4, 4, 2, 2, 8, 8, 8, 8, 8, 4, 4, 8, 4, 4, 8, 4, 4, 8, 4, 4, 4, 4, 4, 4, 8, 4, 4, 8, 4, 4, 4,
    4, 4, 68,
];

/// Looking.
impl Call<'_> {
    pub(super) fn stat(&mut self) -> Answer {
        let path = self.name(0);
        let stat = self.task.stat(&path)?;
        self.put(1, &stat.to_bytes())
    }

    pub(super) fn lstat(&mut self) -> Answer {
        let path = self.name(0);
        let stat = self.task.lstat(&path)?;
        self.put(1, &stat.to_bytes())
    }

    pub(super) fn fstat(&mut self) -> Answer {
        let stat = self.task.vfs_fstat(self.int(0))?;
        self.put(1, &stat.to_bytes())
    }

    pub(super) fn newfstatat(&mut self) -> Answer {
        let flags = self.int(3);
        let path = self.maybe_null_name(1, flags);
        let stat = self.task.newfstatat(self.int(0), &path, flags)?;
        self.put(2, &stat.to_bytes())
    }

    pub(super) fn statx(&mut self) -> Answer {
        let (fd, flags, mask) = (self.int(0), self.int(2), self.uint(3));
        if fd >= 0 && self.is_empty_name(1, flags) {
            let Call { task, mem, args } = self;
            return task.do_statx_fd(fd, flags, mask, |statx| put_statx(task, *mem, args[4], statx));
        }
        let path = self.maybe_null_name(1, flags);
        let statx = self.task.statx(fd, &path, flags, mask)?;
        put_statx(self.task, self.mem, self.args[4], &statx)
    }

    pub(super) fn access(&mut self) -> Answer {
        let path = self.name(0);
        done(self.task.access(&path, self.int(1)))
    }

    pub(super) fn faccessat(&mut self) -> Answer {
        let path = self.name(1);
        done(self.task.faccessat(self.int(0), &path, self.int(2)))
    }

    pub(super) fn faccessat2(&mut self) -> Answer {
        let path = self.name(1);
        done(self.task.faccessat2(self.int(0), &path, self.int(2), self.int(3)))
    }

    pub(super) fn statfs(&mut self) -> Answer {
        let path = self.name(0);
        let found = self.task.statfs(&path)?;
        self.put(1, &found.to_bytes())
    }

    pub(super) fn readlink(&mut self) -> Answer {
        self.do_readlinkat(AT_FDCWD, 0)
    }

    pub(super) fn readlinkat(&mut self) -> Answer {
        self.do_readlinkat(self.int(0), 1)
    }

    /// Kernel: fs/stat.c `do_readlinkat()`.
    fn do_readlinkat(&mut self, dirfd: i32, first: usize) -> Answer {
        let room = usize::try_from(self.int(first + 2)).unwrap_or(0);
        if room == 0 {
            return Err(Errno::EINVAL);
        }
        let path = self.name(first);
        let body = self.task.readlinkat(dirfd, &path)?;
        self.put_cut(first + 1, &body, room)
    }

    pub(super) fn getcwd(&mut self) -> Answer {
        let mut path = self.task.getcwd()?;
        path.push(0);
        if path.len() as u64 > self.args[1] {
            return Err(Errno::ERANGE);
        }
        self.put_cut(0, &path, PATH_MAX)
    }
}

/// Opening.
impl Call<'_> {
    pub(super) fn open(&mut self) -> Answer {
        let path = self.name(0);
        fd(self.task.open(&path, self.int(1), self.uint(2)))
    }

    pub(super) fn creat(&mut self) -> Answer {
        let path = self.name(0);
        fd(self.task.creat(&path, self.uint(1)))
    }

    pub(super) fn openat(&mut self) -> Answer {
        let path = self.name(1);
        fd(self.task.openat(self.int(0), &path, self.int(2), self.uint(3)))
    }

    pub(super) fn openat2(&mut self) -> Answer {
        const OPEN_HOW_SIZE_VER0: u64 = 24;
        let size = self.args[3];
        if size < OPEN_HOW_SIZE_VER0 {
            return Err(Errno::EINVAL);
        }
        let [flags, mode, resolve] = self.extensible(self.args[2], size)?;
        let path = self.name(1);
        fd(self.task.openat2(self.int(0), &path, &OpenHow { flags, mode, resolve }))
    }
}

/// Where the task is.
impl Call<'_> {
    pub(super) fn chdir(&mut self) -> Answer {
        let path = self.name(0);
        done(self.task.chdir(&path))
    }

    pub(super) fn fchdir(&mut self) -> Answer {
        done(self.task.fchdir(self.int(0)))
    }

    pub(super) fn chroot(&mut self) -> Answer {
        let path = self.name(0);
        done(self.task.chroot(&path))
    }

    pub(super) fn umask(&mut self) -> Answer {
        Ok(i64::from(self.task.umask(self.uint(0))))
    }
}

/// Names.
impl Call<'_> {
    pub(super) fn mkdir(&mut self) -> Answer {
        let path = self.name(0);
        done(self.task.mkdir(&path, self.uint(1)))
    }

    pub(super) fn mkdirat(&mut self) -> Answer {
        let path = self.name(1);
        done(self.task.mkdirat(self.int(0), &path, self.uint(2)))
    }

    pub(super) fn mknod(&mut self) -> Answer {
        let path = self.name(0);
        done(self.task.mknod(&path, self.uint(1), u64::from(self.uint(2))))
    }

    pub(super) fn mknodat(&mut self) -> Answer {
        let path = self.name(1);
        done(self.task.mknodat(self.int(0), &path, self.uint(2), u64::from(self.uint(3))))
    }

    pub(super) fn symlink(&mut self) -> Answer {
        let (target, path) = (self.name(0), self.name(1));
        done(self.task.symlink(&target, &path))
    }

    pub(super) fn symlinkat(&mut self) -> Answer {
        let (target, path) = (self.name(0), self.name(2));
        done(self.task.symlinkat(&target, self.int(1), &path))
    }

    pub(super) fn link(&mut self) -> Answer {
        let (old, new) = (self.name(0), self.name(1));
        done(self.task.link(&old, &new))
    }

    pub(super) fn linkat(&mut self) -> Answer {
        let (old, new) = (self.name(1), self.name(3));
        done(self.task.linkat(self.int(0), &old, self.int(2), &new, self.int(4)))
    }

    pub(super) fn unlink(&mut self) -> Answer {
        let path = self.name(0);
        done(self.task.unlink(&path))
    }

    pub(super) fn rmdir(&mut self) -> Answer {
        let path = self.name(0);
        done(self.task.unlinkat(AT_FDCWD, &path, AT_REMOVEDIR))
    }

    pub(super) fn unlinkat(&mut self) -> Answer {
        let path = self.name(1);
        done(self.task.unlinkat(self.int(0), &path, self.int(2)))
    }

    pub(super) fn rename(&mut self) -> Answer {
        let (old, new) = (self.name(0), self.name(1));
        done(self.task.rename(&old, &new))
    }

    pub(super) fn renameat(&mut self) -> Answer {
        let (old, new) = (self.name(1), self.name(3));
        done(self.task.renameat2(self.int(0), &old, self.int(2), &new, 0))
    }

    pub(super) fn renameat2(&mut self) -> Answer {
        let (old, new) = (self.name(1), self.name(3));
        done(self.task.renameat2(self.int(0), &old, self.int(2), &new, self.uint(4)))
    }
}

/// Attributes.
impl Call<'_> {
    pub(super) fn chmod(&mut self) -> Answer {
        let path = self.name(0);
        done(self.task.chmod(&path, self.uint(1)))
    }

    pub(super) fn fchmodat(&mut self) -> Answer {
        let path = self.name(1);
        done(self.task.fchmodat2(self.int(0), &path, self.uint(2), 0))
    }

    pub(super) fn fchmodat2(&mut self) -> Answer {
        let path = self.name(1);
        done(self.task.fchmodat2(self.int(0), &path, self.uint(2), self.int(3)))
    }

    pub(super) fn chown(&mut self) -> Answer {
        let path = self.name(0);
        done(self.task.chown(&path, self.uint(1), self.uint(2)))
    }

    pub(super) fn lchown(&mut self) -> Answer {
        let path = self.name(0);
        done(self.task.lchown(&path, self.uint(1), self.uint(2)))
    }

    pub(super) fn fchownat(&mut self) -> Answer {
        let path = self.name(1);
        done(self.task.fchownat(self.int(0), &path, self.uint(2), self.uint(3), self.int(4)))
    }

    pub(super) fn truncate(&mut self) -> Answer {
        let path = self.name(0);
        done(self.task.truncate(&path, self.long(1)))
    }

    pub(super) fn utime(&mut self) -> Answer {
        let times = match self.args[1] {
            0 => None,
            address => {
                let secs: [u64; 2] = self.words(address)?;
                Some(secs.map(|sec| Timespec { sec: sec as i64, nsec: 0 }))
            }
        };
        self.do_utimes(AT_FDCWD, 0, times, 0)
    }

    pub(super) fn utimes(&mut self) -> Answer {
        let times = self.timevals(1)?;
        self.do_utimes(AT_FDCWD, 0, times, 0)
    }

    pub(super) fn futimesat(&mut self) -> Answer {
        let times = self.timevals(2)?;
        self.do_utimes(self.int(0), 1, times, 0)
    }

    pub(super) fn utimensat(&mut self) -> Answer {
        let times = match self.args[2] {
            0 => None,
            address => {
                let [asec, ansec, msec, mnsec] = self.words(address)?;
                Some([timespec(asec, ansec), timespec(msec, mnsec)])
            }
        };
        self.do_utimes(self.int(0), 1, times, self.int(3))
    }

    /// Two `struct timeval`. Kernel: fs/utimes.c `do_futimesat()`.
    fn timevals(&mut self, i: usize) -> Result<Option<[Timespec; 2]>> {
        if self.args[i] == 0 {
            return Ok(None);
        }
        let words: [u64; 4] = self.words(self.args[i])?;
        let [asec, ausec, msec, musec] = words.map(|word| word as i64);
        if [ausec, musec].iter().any(|usec| !(0..USEC_PER_SEC).contains(usec)) {
            return Err(Errno::EINVAL);
        }
        let time = |sec, usec| Timespec { sec, nsec: usec as u32 * 1000 };
        Ok(Some([time(asec, ausec), time(msec, musec)]))
    }

    fn do_utimes(&mut self, dirfd: i32, i: usize, times: Option<[Timespec; 2]>, flags: i32) -> Answer {
        if self.args[i] == 0 {
            // Without a name, the open file itself: not what `AT_EMPTY_PATH` says.
            return done(self.task.utimensat(dirfd, None, times, flags));
        }
        let path = self.name(i);
        done(self.task.utimensat(dirfd, Some(&path), times, flags))
    }
}

/// Nanoseconds that do not fit are as invalid as any above 999,999,999 that has no meaning of its own.
fn timespec(sec: u64, nsec: u64) -> Timespec {
    Timespec { sec: sec as i64, nsec: u32::try_from(nsec).unwrap_or(u32::MAX) }
}

/// Stores a `struct statx` (S7): all of it in one copy.
#[inline(always)]
fn put_statx(task: &Task, mem: &mut dyn UserMemory, address: u64, statx: &Statx) -> Answer {
    if task.kernel.variants.field_by_field() {
        return put_fields(mem, address, statx.as_bytes());
    }
    mem.copy_to_user(address, statx.as_bytes())?;
    Ok(0)
}

/// The old way to store a `struct statx` (S7): each field checked and copied by itself.
#[cold]
fn put_fields(mem: &mut dyn UserMemory, address: u64, statx: &[u8; Statx::SIZE]) -> Answer {
    let mut at = 0;
    for &len in STATX_FIELDS {
        let address = address.checked_add(at as u64).ok_or(Errno::EFAULT)?;
        mem.copy_to_user(address, &statx[at..at + len])?;
        at += len;
    }
    Ok(0)
}
