//! stat, statx, access, readlink: the questions about one inode.
//!
//! Kernel: fs/stat.c, fs/open.c `do_faccessat()`.

use crate::base::errno::{Errno, Result};
use crate::base::flags::{Access, AtFlags, StatxFlags};
use crate::base::uapi::*;
use crate::cred::Cred;
use crate::dcache::inode::{Inode, Kstat, Touch, flags};
use crate::kernel::Kernel;
use crate::mount;
use crate::namei::{At, Candidate, Known, Lookup, Position, Question, Walker};
use crate::perm::MAY_ACCESS;
use crate::perm::fact::Rule;
use crate::task::Task;
use rcuwalk_sync::Handle;
use std::sync::Arc;

/// The `AT_*` flags that stat and statx know.
const STAT_FLAGS: i32 = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | AT_STATX_SYNC_TYPE;

/// The mask bits on which it depends what statx fills in. Kernel: fs/stat.c `fill_mg_cmtime()` for the first two.
const STATX_SELECTS: u32 = STATX_CTIME | STATX_MTIME | STATX_BTIME | STATX_MNT_ID_UNIQUE;

/// Those of them that are mostly asked for.
const STATX_USUAL: u32 = STATX_CTIME | STATX_MTIME;

/// A mask bit that statx reserves for itself.
const STATX_RESERVED: u32 = 0x8000_0000;

/// The attributes that this file system can have, as on tmpfs.
const ATTRIBUTES_MASK: u64 = STATX_ATTR_IMMUTABLE
    | STATX_ATTR_APPEND
    | STATX_ATTR_NODUMP
    | STATX_ATTR_AUTOMOUNT
    | STATX_ATTR_MOUNT_ROOT
    | STATX_ATTR_DAX;

/// Bytes that `st_blksize` recommends.
const BLKSIZE: u32 = 4096;

/// What an inode tells through a mount, and the device number of the mount.
struct Told {
    k: Kstat,
    dev: u64,
}

impl Kernel {
    /// What the inode tells through this mount, and whether that is all: it is as most are, and does not change at this
    /// moment. Else [`getattr`](Self::getattr) has it.
    #[inline(always)]
    fn getattr_fast(&self, mnt: Handle, inode: &Inode, want_btime: bool) -> (Told, bool) {
        let (k, whole) = inode.fill_kstat_fast(want_btime);
        let dev = self.mount(mnt).dev.get();
        (Told { k, dev }, whole && !self.mount_has(mnt, mount::flags::IDMAPPED))
    }

    /// Kernel: fs/stat.c `vfs_getattr_nosec()`.
    fn getattr(&self, mnt: Handle, inode: Handle, want_btime: bool) -> Told {
        let k = self.store.fill_kstat(inode, want_btime);
        let view = self.id_view(mnt);
        let view = view.get();
        let k = Kstat { uid: view.make_vfsuid(k.uid), gid: view.make_vfsgid(k.gid), ..k };
        Told { k, dev: self.mount(mnt).dev.get() }
    }

    /// Kernel: fs/stat.c `cp_statx()`.
    #[inline(always)]
    fn cp_statx(&self, path: mount::Path, Told { k, dev }: &Told, mask: u32, cred: &Cred) -> Statx {
        let ns = cred.user_ns();
        // A file system with multigrain times reports a change only to a caller that asks for it.
        let times = mask & (STATX_CTIME | STATX_MTIME) != 0;
        let filled = STATX_BASIC_STATS & if times { !0 } else { !(STATX_CTIME | STATX_MTIME) };
        let mnt_id = if mask & STATX_MNT_ID_UNIQUE != 0 { STATX_MNT_ID_UNIQUE } else { STATX_MNT_ID };
        let (ctime, mtime) = if times { (k.times.ctime, k.times.mtime) } else { Default::default() };
        Statx {
            mask: filled | mask & STATX_BTIME | mnt_id,
            blksize: BLKSIZE,
            attributes: self.attributes(path, k),
            nlink: k.nlink,
            uid: ns.from_kuid_munged(k.uid),
            gid: ns.from_kgid_munged(k.gid),
            mode: k.mode as u16,
            ino: k.ino,
            size: k.size,
            blocks: k.blocks,
            attributes_mask: ATTRIBUTES_MASK,
            atime: k.times.atime.into(),
            btime: k.times.btime.into(),
            ctime: ctime.into(),
            mtime: mtime.into(),
            rdev_major: major(u64::from(k.rdev)),
            rdev_minor: minor(u64::from(k.rdev)),
            dev_major: major(*dev),
            dev_minor: minor(*dev),
            mnt_id: if mask & STATX_MNT_ID_UNIQUE != 0 {
                self.mount(path.mnt).id.get()
            } else {
                u64::from(path.mnt)
            },
            ..Statx::default()
        }
    }

    fn attributes(&self, path: mount::Path, k: &Kstat) -> u64 {
        let root = self.mount(path.mnt).root.get() == path.dentry;
        [
            (k.iflags & flags::IMMUTABLE != 0, STATX_ATTR_IMMUTABLE),
            (k.iflags & flags::APPEND != 0, STATX_ATTR_APPEND),
            (k.iflags & flags::NODUMP != 0, STATX_ATTR_NODUMP),
            (root, STATX_ATTR_MOUNT_ROOT),
        ]
        .into_iter()
        .filter(|(on, _)| *on)
        .fold(0, |all, (_, bit)| all | bit)
    }
}

/// Kernel: fs/stat.c `cp_new_stat()`.
#[inline(always)]
fn cp_new_stat(Told { k, dev }: &Told, cred: &Cred) -> Stat {
    let ns = cred.user_ns();
    Stat {
        dev: *dev,
        ino: k.ino,
        nlink: u64::from(k.nlink),
        mode: k.mode,
        uid: ns.from_kuid_munged(k.uid),
        gid: ns.from_kgid_munged(k.gid),
        rdev: u64::from(k.rdev),
        size: k.size as i64,
        blksize: i64::from(BLKSIZE),
        blocks: k.blocks as i64,
        atime: k.times.atime,
        mtime: k.times.mtime,
        ctime: k.times.ctime,
    }
}

/// What statx(2) asks of its arguments first.
#[inline(always)]
fn may_statx(flags: i32, mask: u32) -> Result<()> {
    if mask & STATX_RESERVED != 0 || flags & AT_STATX_SYNC_TYPE == AT_STATX_SYNC_TYPE {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// How `newfstatat` and its like look a path up.
fn stat_lookup(flags: i32) -> Lookup {
    Lookup { follow: flags & AT_SYMLINK_NOFOLLOW == 0, empty: flags & AT_EMPTY_PATH != 0, ..Lookup::FOLLOW }
}

impl Task {
    /// What `path` is, following links. `uid` and `gid` are as the task's user namespace shows them.
    ///
    /// # Errors
    ///
    /// Those of the walk: `EACCES` (a directory on the way may not be searched), `ENOENT`, `ENOTDIR`, `ELOOP`,
    /// `ENAMETOOLONG`.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Vfs};
    /// # let vfs = Vfs::new()?;
    /// let root = vfs.task(Cred::root());
    /// assert_eq!(root.stat(b"/")?.mode, 0o040755);
    /// # Ok::<(), rcuwalk::Errno>(())
    /// ```
    pub fn stat(&self, path: &[u8]) -> Result<Stat> {
        self.stat_path(At::Cwd, path, Lookup::FOLLOW)
    }

    /// What `path` is; of a link, the link itself.
    ///
    /// # Errors
    ///
    /// As [`stat`](Self::stat).
    pub fn lstat(&self, path: &[u8]) -> Result<Stat> {
        self.stat_path(At::Cwd, path, Lookup::NOFOLLOW)
    }

    /// What the open file is.
    ///
    /// # Errors
    ///
    /// `EBADF`.
    pub fn fstat(&self, fd: i32) -> Result<Stat> {
        self.vfs_fstat(fd)
    }

    /// As most files are, from the inode's words straight into the result.
    ///
    /// Kernel: fs/stat.c `vfs_fstat()`.
    #[inline(always)]
    pub(crate) fn vfs_fstat(&self, fd: i32) -> Result<Stat> {
        match self.getattr_fd(fd)? {
            Some((_, told)) => Ok(cp_new_stat(&told, &self.cred)),
            None => self.fstat_slow(fd),
        }
    }

    #[cold]
    #[inline(never)]
    fn fstat_slow(&self, fd: i32) -> Result<Stat> {
        let file = self.file_any(fd)?;
        Ok(cp_new_stat(&self.kernel.getattr(file.path.mnt, file.inode, false), &self.cred))
    }

    /// What an open file is, if [`Kernel::getattr_fast`] has all of it; takes no reference.
    #[inline(always)]
    fn getattr_fd(&self, fd: i32) -> Result<Option<(mount::Path, Told)>> {
        self.files.table.look(fd, |file| {
            let inode = self.kernel.store.inode(file.inode);
            let (told, whole) = self.kernel.getattr_fast(file.path.mnt, inode, false);
            whole.then_some((file.path, told))
        })
    }

    /// What `path`, relative to `dirfd`, is. `flags`: `AT_SYMLINK_NOFOLLOW`, `AT_EMPTY_PATH`, `AT_NO_AUTOMOUNT`.
    ///
    /// # Errors
    ///
    /// As [`stat`](Self::stat); `EINVAL` for other flags, `EBADF` for a `dirfd` that is not open and needed.
    #[inline]
    pub fn newfstatat(&self, dirfd: i32, path: &[u8], flags: impl Into<AtFlags>) -> Result<Stat> {
        self.vfs_fstatat(dirfd, path, flags.into().bits())
    }

    /// Kernel: fs/stat.c `vfs_fstatat()`.
    fn vfs_fstatat(&self, dirfd: i32, path: &[u8], flags: i32) -> Result<Stat> {
        if path.is_empty() && flags & AT_EMPTY_PATH != 0 && dirfd >= 0 {
            return self.fstat(dirfd);
        }
        if flags & !STAT_FLAGS != 0 {
            return Err(Errno::EINVAL);
        }
        self.with_at(dirfd, |at| self.stat_path(at, path, stat_lookup(flags)))
    }

    /// What a lockless lookup led to, and whether that is all; it is yet to be [confirmed](Walker::confirm), so that nothing is
    /// copied before it counts.
    #[inline(always)]
    fn getattr_found(&self, found: Candidate<'_>, want_btime: bool) -> (Told, bool) {
        self.kernel.getattr_fast(found.position.mnt, found.inode, want_btime)
    }

    /// What a path leads to where something is out of the ordinary: what was `found`, or else the walk.
    #[cold]
    #[inline(never)]
    fn getattr_odd(
        &self,
        at: At<'_>,
        path: &[u8],
        lookup: Lookup,
        want_btime: bool,
        found: Option<Candidate<'_>>,
    ) -> Result<(Position, Told)> {
        let (kernel, walker) = (&*self.kernel, self.walker());
        let tell = |position: Position| {
            let inode = kernel.store.d_inode(position.seen.dentry);
            (position, kernel.getattr(position.mnt, inode, want_btime))
        };
        if let Some(found) = found.map(|found| walker.itself(found)) {
            let told = tell(found.position);
            if walker.confirm(found) {
                return Ok(told);
            }
        }
        walker.lookup_ref(at, path, lookup, &mut |position| Ok(tell(position)))
    }

    #[inline(always)]
    fn stat_path(&self, at: At<'_>, path: &[u8], lookup: Lookup) -> Result<Stat> {
        let walker = self.walker();
        match walker.ask(at, path, lookup) {
            Known::To(found) => match self.getattr_found(found, false) {
                (told, true) if walker.confirm(found) => Ok(cp_new_stat(&told, &self.cred)),
                (_, whole) => self.stat_odd(at, path, lookup, (!whole).then_some(found)),
            },
            Known::Missing => Err(Errno::ENOENT),
            Known::Unknown(question) => self.stat_walk(at, path, lookup, question),
        }
    }

    #[inline(never)]
    fn stat_walk(&self, at: At<'_>, path: &[u8], lookup: Lookup, question: Option<Question>) -> Result<Stat> {
        let walker = self.walker();
        let Some(found) = walker.lookup_walk(at, path, lookup, question)? else {
            return self.stat_odd(at, path, lookup, None);
        };
        match self.getattr_found(found, false) {
            (told, true) if walker.confirm(found) => Ok(cp_new_stat(&told, &self.cred)),
            (_, whole) => self.stat_odd(at, path, lookup, (!whole).then_some(found)),
        }
    }

    #[cold]
    #[inline(never)]
    fn stat_odd(
        &self,
        at: At<'_>,
        path: &[u8],
        lookup: Lookup,
        found: Option<Candidate<'_>>,
    ) -> Result<Stat> {
        let (_, told) = self.getattr_odd(at, path, lookup, false, found)?;
        Ok(cp_new_stat(&told, &self.cred))
    }

    /// What `path`, relative to `dirfd`, is, in the layout of statx(2). `mask` (`STATX_*`) decides whether change,
    /// modification and birth times are filled in; everything else always is.
    ///
    /// # Errors
    ///
    /// As [`newfstatat`](Self::newfstatat); `EINVAL` also for the reserved mask bit and for both synchronisation flags.
    #[inline]
    pub fn statx(
        &self,
        dirfd: i32,
        path: &[u8],
        flags: impl Into<AtFlags>,
        mask: impl Into<StatxFlags>,
    ) -> Result<Statx> {
        self.do_statx(dirfd, path, flags.into().bits(), mask.into().bits())
    }

    /// Kernel: fs/stat.c `do_statx()`.
    fn do_statx(&self, dirfd: i32, path: &[u8], flags: i32, mask: u32) -> Result<Statx> {
        if path.is_empty() && flags & AT_EMPTY_PATH != 0 && dirfd >= 0 {
            return self.do_statx_fd(dirfd, flags, mask, |statx| Ok(*statx));
        }
        may_statx(flags, mask)?;
        if flags & !STAT_FLAGS != 0 {
            return Err(Errno::EINVAL);
        }
        let kernel = &*self.kernel;
        let (lookup, want_btime) = (stat_lookup(flags), mask & STATX_BTIME != 0);
        self.with_at(dirfd, |at| {
            // As in `stat_path`.
            let walker = self.walker();
            match walker.ask(at, path, lookup) {
                Known::To(found) => match self.getattr_found(found, want_btime) {
                    (told, true) if walker.confirm(found) => {
                        Ok(kernel.cp_statx(found.position.path(), &told, mask, &self.cred))
                    }
                    (_, whole) => self.statx_odd(at, path, lookup, mask, (!whole).then_some(found)),
                },
                Known::Missing => Err(Errno::ENOENT),
                Known::Unknown(question) => self.statx_walk(at, path, lookup, mask, question),
            }
        })
    }

    /// statx(2) of an open file; the answer is put where it lies, since a `Result` of 256 bytes is copied as it is passed on.
    ///
    /// Kernel: fs/stat.c `do_statx_fd()`.
    #[inline(always)]
    pub(crate) fn do_statx_fd<R>(
        &self,
        fd: i32,
        flags: i32,
        mask: u32,
        put: impl FnOnce(&Statx) -> Result<R>,
    ) -> Result<R> {
        let usual = flags & AT_STATX_SYNC_TYPE == 0 && mask & (STATX_RESERVED | STATX_SELECTS) == STATX_USUAL;
        let told = if usual { self.getattr_fd(fd)? } else { None };
        // One call of `put`, so that what it is made of stays in registers.
        put(&match told {
            Some((path, told)) => self.kernel.cp_statx(path, &told, STATX_USUAL, &self.cred),
            None => self.statx_fd_slow(fd, flags, mask)?,
        })
    }

    #[cold]
    #[inline(never)]
    fn statx_fd_slow(&self, fd: i32, flags: i32, mask: u32) -> Result<Statx> {
        may_statx(flags, mask)?;
        let file = self.file_any(fd)?;
        let told = self.kernel.getattr(file.path.mnt, file.inode, mask & STATX_BTIME != 0);
        Ok(self.kernel.cp_statx(file.path, &told, mask, &self.cred))
    }

    #[inline(never)]
    fn statx_walk(
        &self,
        at: At<'_>,
        path: &[u8],
        lookup: Lookup,
        mask: u32,
        question: Option<Question>,
    ) -> Result<Statx> {
        let walker = self.walker();
        let Some(found) = walker.lookup_walk(at, path, lookup, question)? else {
            return self.statx_odd(at, path, lookup, mask, None);
        };
        match self.getattr_found(found, mask & STATX_BTIME != 0) {
            (told, true) if walker.confirm(found) => {
                Ok(self.kernel.cp_statx(found.position.path(), &told, mask, &self.cred))
            }
            (_, whole) => self.statx_odd(at, path, lookup, mask, (!whole).then_some(found)),
        }
    }

    #[cold]
    #[inline(never)]
    fn statx_odd(
        &self,
        at: At<'_>,
        path: &[u8],
        lookup: Lookup,
        mask: u32,
        found: Option<Candidate<'_>>,
    ) -> Result<Statx> {
        let (position, told) = self.getattr_odd(at, path, lookup, mask & STATX_BTIME != 0, found)?;
        Ok(self.kernel.cp_statx(position.path(), &told, mask, &self.cred))
    }

    /// Whether the *real* user may access `path`; `mode` is `F_OK` or an or of `R_OK`, `W_OK`, `X_OK`.
    ///
    /// # Errors
    ///
    /// As [`faccessat2`](Self::faccessat2).
    #[inline]
    pub fn access(&self, path: &[u8], mode: impl Into<Access>) -> Result<()> {
        self.access_cwd(path, mode.into().bits())
    }

    /// A function of its own, in which what other flags would lead to is left out.
    fn access_cwd(&self, path: &[u8], mode: i32) -> Result<()> {
        self.do_faccessat(AT_FDCWD, path, mode, 0)
    }

    /// [`access`](Self::access) relative to `dirfd`.
    ///
    /// # Errors
    ///
    /// As [`faccessat2`](Self::faccessat2).
    #[inline]
    pub fn faccessat(&self, dirfd: i32, path: &[u8], mode: impl Into<Access>) -> Result<()> {
        self.faccessat2(dirfd, path, mode, 0)
    }

    /// Whether the task may access `path`, relative to `dirfd`, judged by its real ids, or with `AT_EACCESS` by its
    /// effective ones. Further flags: `AT_SYMLINK_NOFOLLOW`, `AT_EMPTY_PATH`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (mode, flags), those of the walk, `EACCES` (noexec mount; permission), `EROFS`, `EPERM` (immutable, for
    /// writing).
    #[inline]
    pub fn faccessat2(
        &self,
        dirfd: i32,
        path: &[u8],
        mode: impl Into<Access>,
        flags: impl Into<AtFlags>,
    ) -> Result<()> {
        self.faccessat_at(dirfd, path, mode.into().bits(), flags.into().bits())
    }

    fn faccessat_at(&self, dirfd: i32, path: &[u8], mode: i32, flags: i32) -> Result<()> {
        self.do_faccessat(dirfd, path, mode, flags)
    }

    /// Kernel: fs/open.c `do_faccessat()`.
    #[inline(always)]
    fn do_faccessat(&self, dirfd: i32, path: &[u8], mode: i32, flags: i32) -> Result<()> {
        if mode & !(R_OK | W_OK | X_OK) != 0
            || flags & !(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0
        {
            return Err(Errno::EINVAL);
        }
        let lookup = stat_lookup(flags);
        // S1: the override would be the credential itself, almost always.
        let copy = self.kernel.variants.cred_copy();
        if flags & AT_EACCESS != 0 || self.cred.override_is_self() && !copy {
            // Not by a closure, which would be called: 286 instructions become 339.
            if dirfd == AT_FDCWD {
                return self.access_as(&self.cred, At::Cwd, path, mode, lookup);
            }
            return self.with_at(dirfd, |at| self.access_as(&self.cred, at, path, mode, lookup));
        }
        self.access_overridden(dirfd, path, mode, lookup, copy)
    }

    /// Asks with the real ids, which are seldom others.
    #[cold]
    #[inline(never)]
    fn access_overridden(
        &self,
        dirfd: i32,
        path: &[u8],
        mode: i32,
        lookup: Lookup,
        copy: bool,
    ) -> Result<()> {
        if copy {
            let real = Arc::new(self.cred.access_override());
            return self.with_at(dirfd, |at| self.access_as(&real, at, path, mode, lookup));
        }
        let real = self.cred.access_override();
        self.with_at(dirfd, |at| self.access_as(&real, at, path, mode, lookup))
    }

    #[inline(always)]
    fn access_as(&self, cred: &Cred, at: At<'_>, path: &[u8], mode: i32, lookup: Lookup) -> Result<()> {
        let walker = Walker { cred, ..self.walker() };
        let question = match walker.ask(at, path, lookup) {
            Known::To(found) => {
                let (found, answer) = walker.may_access_found(found, mode);
                if walker.confirm(found) {
                    return answer;
                }
                None
            }
            Known::Missing => return Err(Errno::ENOENT),
            Known::Unknown(question) => question,
        };
        self.access_walk(cred, at, path, mode, lookup, question)
    }

    #[inline(never)]
    fn access_walk(
        &self,
        cred: &Cred,
        at: At<'_>,
        path: &[u8],
        mode: i32,
        lookup: Lookup,
        question: Option<Question>,
    ) -> Result<()> {
        let walker = Walker { cred, ..self.walker() };
        walker.filename_walk(at, path, lookup, question, &mut |position| walker.may_access(position, mode))
    }

    /// The body of the link `path`. Reading it may change its access time.
    ///
    /// # Errors
    ///
    /// Those of the walk; `EINVAL` if it is no link.
    pub fn readlink(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.readlinkat(AT_FDCWD, path)
    }

    /// [`readlink`](Self::readlink) relative to `dirfd`; an empty path means a link opened with `O_PATH | O_NOFOLLOW`.
    ///
    /// # Errors
    ///
    /// As [`readlink`](Self::readlink); `ENOENT` for an empty path and something that is no link.
    pub fn readlinkat(&self, dirfd: i32, path: &[u8]) -> Result<Vec<u8>> {
        let kernel = &*self.kernel;
        let lookup = Lookup { empty: true, ..Lookup::NOFOLLOW };
        let mut body = Vec::new();
        let (mnt, inode) = self.with_at(dirfd, |at| {
            self.walker().filename_lookup(at, path, lookup, |position| {
                if position.seen.meta.file_type() != S_IFLNK {
                    return Err(if path.is_empty() { Errno::ENOENT } else { Errno::EINVAL });
                }
                let inode = kernel.store.d_inode(position.seen.dentry);
                body.clear();
                kernel.store.link_body(inode, &mut body)?;
                Ok((position.mnt, inode))
            })
        })?;
        kernel.touch_atime_of_link(mnt, inode);
        Ok(body)
    }

    /// [`readlinkat`](Self::readlinkat) into room of the caller; what has no room is cut off. Gives the number of bytes; no
    /// NUL follows.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no room, before anything else; then as [`readlinkat`](Self::readlinkat).
    pub fn readlinkat_into(&self, dirfd: i32, path: &[u8], buf: &mut [u8]) -> Result<usize> {
        if buf.is_empty() {
            return Err(Errno::EINVAL);
        }
        let body = self.readlinkat(dirfd, path)?;
        let n = body.len().min(buf.len());
        buf[..n].copy_from_slice(&body[..n]);
        Ok(n)
    }
}

impl<'a> Walker<'a> {
    /// Whether what a lockless lookup led to may be accessed, as of what it was asked of.
    #[inline(always)]
    fn may_access_found(&self, found: Candidate<'a>, mode: i32) -> (Candidate<'a>, Result<()>) {
        // What every user may do, unless the mount decides as well.
        if mode & !R_OK == 0 && self.kernel.everyone_may(found.position.mnt, found.inode, mode as u32) {
            return (found, Ok(()));
        }
        let found = self.itself(found);
        (found, self.may_access(found.position, mode))
    }

    /// Whether an object that a walk has come to may be accessed.
    #[inline(always)]
    fn may_access(&self, position: Position, mode: i32) -> Result<()> {
        let inode = self.kernel.store.d_inode(position.seen.dentry);
        self.kernel.may_access(position.mnt, inode, position.seen.meta.file_type(), self.cred, mode)
    }
}

impl Kernel {
    /// Whether `cred` may access an inode of this type, seen through this mount, as `mode` (`*_OK`) says.
    ///
    /// Kernel: the second half of fs/open.c `do_faccessat()`.
    #[inline(always)]
    pub(crate) fn may_access(
        &self,
        mnt: Handle,
        inode: Handle,
        file_type: u32,
        cred: &Cred,
        mode: i32,
    ) -> Result<()> {
        if mode == F_OK {
            return Ok(());
        }
        if mode & X_OK != 0 && file_type == S_IFREG && self.mount_has(mnt, mount::flags::NOEXEC) {
            return self.refuse_inode(mnt, inode, Rule::NoExec, Errno::EACCES);
        }
        if !self.everyone_may(mnt, self.store.inode(inode), mode as u32) {
            self.inode_permission(mnt, inode, cred, mode as u32 | MAY_ACCESS)?;
        }
        let stored = matches!(file_type, S_IFREG | S_IFDIR | S_IFLNK);
        if mode & W_OK != 0 && stored && self.mount_has(mnt, mount::flags::RDONLY) {
            return self.refuse_inode(mnt, inode, Rule::ReadOnlyMount, Errno::EROFS);
        }
        Ok(())
    }

    /// Stamps the access time of a link that was read without being held: only if it is still a link.
    fn touch_atime_of_link(&self, mnt: Handle, inode: Handle) {
        if !self.atime_needs_update(mnt, inode) {
            return;
        }
        let now = self.now();
        let mut ns = self.store.lock();
        if self.store.inode(inode).attr().mode & S_IFMT == S_IFLNK {
            let _change = self.store.open_inode(&mut ns, inode);
            self.store.touch(&mut ns, inode, Touch::A, now);
        }
    }
}
