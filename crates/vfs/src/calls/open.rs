//! open, openat, openat2, creat.
//!
//! Kernel: fs/open.c, fs/namei.c `path_openat()`.

use crate::base::errno::{Errno, Result};
use crate::base::flags::OFlags;
use crate::base::uapi::*;
use crate::calls::dirops::{Change, NewNode};
use crate::dcache::Seen;
use crate::dcache::inode::flags;
use crate::file::{FileMode, Opening};
use crate::kernel::WalkMode;
use crate::mount::{self, Path};
use crate::namei::getname::check_name;
use crate::namei::{
    At, Candidate, Known, Last, LastType, Lookup, Nameidata, Position, Question, Step, Stop, Walk, Walker,
};
use crate::perm::fact::Rule;
use crate::perm::{self, InodeAttr, MAY_EXEC, MAY_OPEN, MAY_READ, MAY_WRITE};
use crate::task::Task;
use rcuwalk_sync::Handle;

/// Every flag that openat2 knows.
const VALID_FLAGS: i32 = O_ACCMODE
    | O_CREAT
    | O_EXCL
    | O_NOCTTY
    | O_TRUNC
    | O_APPEND
    | O_NONBLOCK
    | O_DSYNC
    | O_ASYNC
    | O_DIRECT
    | O_LARGEFILE
    | O_DIRECTORY
    | O_NOFOLLOW
    | O_NOATIME
    | O_CLOEXEC
    | __O_SYNC
    | O_PATH
    | __O_TMPFILE;

/// What `O_PATH` may be combined with.
const PATH_FLAGS: i32 = O_DIRECTORY | O_NOFOLLOW | O_PATH | O_CLOEXEC;

const VALID_RESOLVE: u64 = RESOLVE_NO_XDEV
    | RESOLVE_NO_MAGICLINKS
    | RESOLVE_NO_SYMLINKS
    | RESOLVE_BENEATH
    | RESOLVE_IN_ROOT
    | RESOLVE_CACHED;

/// A parsed and validated request to open. Kernel: fs/internal.h `struct open_flags`.
#[derive(Debug, Clone, Copy)]
struct OpenFlags {
    flags: i32,
    mode: u32,
    read: bool,
    write: bool,
    /// To be executed, which takes permission to do that and no other.
    exec: bool,
    lookup: Lookup,
}

impl OpenFlags {
    /// Kernel: fs/open.c `build_open_flags()`.
    #[inline(always)]
    fn new(how: &OpenHow) -> Result<OpenFlags> {
        let flags = i32::try_from(how.flags).map_err(|_| Errno::EINVAL)?;
        let has = |flag: i32| flags & flag != 0;
        let creates = has(O_CREAT | __O_TMPFILE);
        let scopes = RESOLVE_BENEATH | RESOLVE_IN_ROOT;
        let invalid = flags & !VALID_FLAGS != 0
            || how.resolve & !VALID_RESOLVE != 0
            || how.resolve & scopes == scopes
            || how.mode & !(if creates { u64::from(S_IALLUGO) } else { 0 }) != 0
            || has(O_DIRECTORY) && has(O_CREAT)
            || has(__O_TMPFILE) && (!has(O_DIRECTORY) || flags & O_ACCMODE == O_RDONLY)
            || has(O_PATH) && flags & !PATH_FLAGS != 0;
        if invalid {
            return Err(Errno::EINVAL);
        }
        if how.resolve & RESOLVE_CACHED != 0 && has(O_CREAT | O_TRUNC | __O_TMPFILE) {
            return Err(Errno::EAGAIN);
        }
        let access = flags & O_ACCMODE;
        let lookup = Lookup {
            follow: !(has(O_NOFOLLOW) || has(O_CREAT) && has(O_EXCL)),
            directory: has(O_DIRECTORY),
            empty: false,
            resolve: how.resolve,
        };
        Ok(OpenFlags {
            flags: if has(__O_SYNC) { flags | O_DSYNC } else { flags },
            mode: how.mode as u32,
            read: access != O_WRONLY,
            write: access != O_RDONLY,
            exec: false,
            lookup,
        })
    }

    fn has(&self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    /// Whether a file that is there is to be opened for nothing but reading.
    #[inline(always)]
    fn only_reads(&self) -> bool {
        !self.exec && !self.has(O_ACCMODE | O_CREAT | O_TRUNC | O_NOATIME | O_PATH | O_DIRECT | __O_TMPFILE)
    }

    /// What the open file may be used for.
    #[inline]
    fn file_mode(&self) -> FileMode {
        match self.flags & O_ACCMODE {
            _ if self.has(O_PATH) => FileMode { path: true, ..FileMode::default() },
            // Both permissions were asked for, and neither is given.
            O_ACCMODE => FileMode::default(),
            _ => FileMode { read: self.read, write: self.write, ..FileMode::default() },
        }
    }

    /// What the file has to permit.
    fn may(&self) -> u32 {
        if self.exec {
            return MAY_OPEN | MAY_EXEC;
        }
        let read = if self.read { MAY_READ } else { 0 };
        let write = if self.write || self.has(O_TRUNC) { MAY_WRITE } else { 0 };
        MAY_OPEN | read | write
    }
}

/// What a walk to open something came to: a place, with a reference.
#[derive(Debug, Clone, Copy)]
struct Opened {
    path: Path,
    /// Of its inode, as in `st_mode`.
    file_type: u32,
    created: bool,
}

impl Task {
    /// Opens `path`; gives a descriptor. `flags` are `O_*`, of which unknown bits are ignored; `mode` counts with `O_CREAT`
    /// and `O_TMPFILE`, less the umask.
    ///
    /// # Errors
    ///
    /// `EINVAL` (flags), `ENAMETOOLONG`, `ENOENT`, `EMFILE`, those of the walk, `EEXIST`, `EISDIR`, `ENOTDIR`, `EROFS`,
    /// `EACCES`, `EPERM`, `ELOOP` (a link, with `O_NOFOLLOW`), `ENXIO` (a socket; a device; a fifo without reader),
    /// `ETXTBSY`, `EAGAIN` (a fifo that would block), `EINVAL` (`O_DIRECT` on a directory or a fifo), `ENOSPC`.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Errno, Vfs, uapi::*};
    /// # let vfs = Vfs::new()?;
    /// let root = vfs.task(Cred::root());
    /// let fd = root.open(b"/f", O_RDWR | O_CREAT | O_EXCL, 0o600)?;
    /// root.write(fd, b"hello")?;
    /// assert_eq!(root.fstat(fd)?.size, 5);
    /// # Ok::<(), Errno>(())
    /// ```
    #[inline]
    pub fn open(&self, path: &[u8], flags: impl Into<OFlags>, mode: u32) -> Result<i32> {
        self.openat(AT_FDCWD, path, flags, mode)
    }

    /// [`open`](Self::open) with `O_CREAT | O_WRONLY | O_TRUNC`.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn creat(&self, path: &[u8], mode: u32) -> Result<i32> {
        self.open(path, O_CREAT | O_WRONLY | O_TRUNC, mode)
    }

    /// [`open`](Self::open) relative to `dirfd`.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and `EBADF`.
    #[inline]
    pub fn openat(&self, dirfd: i32, path: &[u8], flags: impl Into<OFlags>, mode: u32) -> Result<i32> {
        self.openat2(dirfd, path, &older_how(flags.into().bits(), mode))
    }

    /// Opens `path` relative to `dirfd`. Unknown bits in `how` are an error; `how.resolve` restricts the walk.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), `EBADF`; `EXDEV` (the walk would leave its scope), `ELOOP` (a link, with
    /// `RESOLVE_NO_SYMLINKS`), `EAGAIN` (a rename raced with a scoped walk; `RESOLVE_CACHED`).
    pub fn openat2(&self, dirfd: i32, path: &[u8], how: &OpenHow) -> Result<i32> {
        let op = OpenFlags::new(how)?;
        check_name(path, false)?;
        self.files.table.check_room(self.nofile_limit())?;
        if op.flags & (O_CREAT | O_TRUNC) != 0 {
            self.files.table.make_room()?;
        }
        self.kernel.may_open_file(&self.cred)?;
        self.with_at(dirfd, |at| self.open_at(at, path, &op))
    }

    /// All in one place: what a path led to is put into the table from where it was made.
    #[inline(never)]
    fn open_at(&self, at: At<'_>, path: &[u8], op: &OpenFlags) -> Result<i32> {
        self.install(self.path_openat(at, path, op)?, op.flags)
    }

    /// Opens once more what the descriptor `fd` stands for, which may be an `O_PATH` one, without walking. With `flags` as for
    /// [`open`](Self::open) it answers as opening `/proc/self/fd/N` does; a file server opens what its client looked up earlier.
    ///
    /// # Errors
    ///
    /// `EINVAL` (flags; `O_CREAT`, `O_TMPFILE`), `EBADF`, those of [`open`](Self::open) but the walk's.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Errno, Vfs, uapi::*};
    /// # let vfs = Vfs::new()?;
    /// let root = vfs.task(Cred::root());
    /// root.close(root.creat(b"/f", 0o600)?)?;
    /// let place = root.open(b"/f", O_PATH, 0)?;
    /// root.rename(b"/f", b"/g")?;
    /// let file = root.dentry_open(place, O_RDWR)?;
    /// assert_eq!(root.write(file, b"hello"), Ok(5));
    /// # Ok::<(), Errno>(())
    /// ```
    ///
    /// Kernel: fs/open.c `dentry_open()`, after fs/namei.c `may_open()`.
    pub fn dentry_open(&self, fd: i32, flags: impl Into<OFlags>) -> Result<i32> {
        self.do_dentry_open(fd, flags.into().bits())
    }

    fn do_dentry_open(&self, fd: i32, flags: i32) -> Result<i32> {
        if flags & (O_CREAT | __O_TMPFILE) != 0 {
            return Err(Errno::EINVAL);
        }
        let op = OpenFlags::new(&OpenHow { flags: flags as u64, mode: 0, resolve: 0 })?;
        let place = self.file_any(fd)?;
        self.kernel.path_get(place.path);
        self.open_held(place.path, &op)
    }

    /// Opens a place without walking, whose references pass along; `flags` as for [`open`](Self::open).
    ///
    /// Kernel: fs/open.c `file_open_root()` with an empty path.
    pub(crate) fn open_place(&self, path: Path, flags: i32) -> Result<i32> {
        let is_link = self.kernel.store.see(path.dentry).meta.file_type() == S_IFLNK;
        match OpenFlags::new(&older_how(flags, 0)) {
            // Nowhere to follow it from, whatever else is wrong.
            Ok(op) if is_link && !op.has(O_PATH) => {
                self.kernel.path_put(path);
                Err(Errno::ELOOP)
            }
            Ok(op) => self.open_held(path, &op),
            Err(errno) => {
                self.kernel.path_put(path);
                Err(errno)
            }
        }
    }

    /// Opens a place, whose references pass along.
    fn open_held(&self, path: Path, op: &OpenFlags) -> Result<i32> {
        let position = Position { mnt: path.mnt, seen: self.kernel.store.see(path.dentry) };
        let opened = || {
            self.files.table.check_room(self.nofile_limit())?;
            self.kernel.may_open_file(&self.cred)?;
            if op.has(O_DIRECTORY) && !position.seen.meta.is_dir() {
                return Err(Errno::ENOTDIR);
            }
            self.may_open(position, op)?;
            let opened = Opened { path, file_type: position.seen.meta.file_type(), created: false };
            self.finish_open(opened, op)
        };
        let opening = opened().inspect_err(|_| self.kernel.path_put(path))?;
        self.install(opening, op.flags)
    }

    /// Opens a program, a script or an interpreter, for reading; the one lookup that executing it takes (S5). Nothing is
    /// allocated before the file is found.
    ///
    /// # Errors
    ///
    /// Those of the walk, `EACCES` (not a regular file, `noexec`, no permission to execute), `ELOOP` (a link).
    ///
    /// Kernel: fs/exec.c `do_open_execat()`.
    pub(crate) fn open_exec(&self, at: At<'_>, path: &[u8], lookup: Lookup) -> Result<Opening> {
        self.kernel.may_open_file(&self.cred)?;
        let op = OpenFlags { flags: O_RDONLY, mode: 0, read: true, write: false, exec: true, lookup };
        self.path_openat(at, path, &op)
    }

    /// Looks up and opens. Kernel: fs/namei.c `path_openat()`.
    #[inline(always)]
    fn path_openat(&self, at: At<'_>, path: &[u8], op: &OpenFlags) -> Result<Opening> {
        let mut question = None;
        if op.only_reads() {
            let walker = self.walker();
            match walker.ask(at, path, op.lookup) {
                Known::To(found) => {
                    if let Some(opening) = self.open_known(walker, found, op) {
                        return Ok(opening);
                    }
                }
                Known::Missing => return Err(Errno::ENOENT),
                Known::Unknown(asked) => question = asked,
            }
        }
        self.path_openat_walk(at, path, op, question)
    }

    /// Opens what the whole-path table led to, if it is as most are: a file or directory that anybody may read.
    #[inline(always)]
    fn open_known(&self, walker: Walker<'_>, found: Candidate<'_>, op: &OpenFlags) -> Option<Opening> {
        let Position { mnt, seen } = found.position;
        let store = &walker.kernel.store;
        store.prefetch(seen.dentry);
        let inode = store.d_inode(seen.dentry);
        let opens = matches!(seen.meta.file_type(), S_IFREG | S_IFDIR)
            && walker.kernel.everyone_may(mnt, store.inode(inode), MAY_READ)
            && walker.legitimize(found);
        opens.then(|| opening(found.position.path(), inode, op.file_mode(), op))
    }

    #[inline(never)]
    fn path_openat_walk(
        &self,
        at: At<'_>,
        path: &[u8],
        op: &OpenFlags,
        question: Option<Question>,
    ) -> Result<Opening> {
        let opened = self.do_filp_open(at, path, op, question)?;
        self.finish_open(opened, op).inspect_err(|_| self.kernel.path_put(opened.path))
    }

    /// Kernel: fs/namei.c `do_filp_open()`.
    #[inline]
    fn do_filp_open(
        &self,
        at: At<'_>,
        path: &[u8],
        op: &OpenFlags,
        question: Option<Question>,
    ) -> Result<Opened> {
        let walker = self.walker();
        if walker.kernel.walk_mode() != WalkMode::RefOnly {
            let mut nd = Nameidata::new(&walker, at, op.lookup);
            let opened = if op.has(O_CREAT) {
                nd.path_walk::<true, _>(path, |nd, dir, last| self.open_last::<true>(nd, dir, last, op))
            } else {
                let found = match question {
                    Some(asked) => walker.walk_asked(at, path, op.lookup, asked),
                    None => walker.path_lookupat_rcu(at, path, op.lookup, nd.m_seq),
                };
                found.and_then(|position| self.do_open::<true>(&mut nd, position, op))
            };
            match opened {
                Ok(opened) => return Ok(opened),
                Err(Stop::Fail(errno)) => return Err(errno),
                Err(Stop::Retry(_)) if op.lookup.resolve & RESOLVE_CACHED != 0 => return Err(Errno::EAGAIN),
                Err(Stop::Retry(bail)) => walker.kernel.count_bail(bail),
            }
        }
        walker.walk_ref(at, path, op.lookup, |nd, dir, last| self.open_last::<false>(nd, dir, last, op))
    }

    /// Kernel: fs/namei.c `open_last_lookups()`.
    #[inline(always)]
    fn open_last<const RCU: bool>(
        &self,
        nd: &mut Nameidata<'_>,
        dir: Position,
        last: Last<'_>,
        op: &OpenFlags,
    ) -> Walk<Step<Opened>> {
        if op.has(O_CREAT) && last.kind == LastType::Norm {
            return self.open_or_create::<RCU>(nd, dir, last, op);
        }
        match nd.lookup_last::<RCU>(dir, last)? {
            Step::Link(link) => Ok(Step::Link(link)),
            Step::Done(position) => self.do_open::<RCU>(nd, position, op).map(Step::Done),
        }
    }

    /// The last component with `O_CREAT`.
    fn open_or_create<const RCU: bool>(
        &self,
        nd: &mut Nameidata<'_>,
        dir: Position,
        last: Last<'_>,
        op: &OpenFlags,
    ) -> Walk<Step<Opened>> {
        if last.slash {
            nd.validate::<RCU>(dir.seen)?;
            return Err(Stop::Fail(Errno::EISDIR));
        }
        loop {
            match nd.lookup_fast::<RCU>(dir, last.name) {
                Ok(child) if nd.lookup.follow && nd.is_open_link::<RCU>(dir.mnt, child)? => {
                    return Ok(Step::Link(child));
                }
                Ok(child) => return self.do_open_child::<RCU>(nd, dir, child, op).map(Step::Done),
                Err(Stop::Fail(Errno::ENOENT)) => {}
                Err(stop) => return Err(stop),
            }
            if RCU {
                nd.legitimize(dir)?;
            }
            let created = self.create_last(dir.path(), last, op);
            if RCU {
                nd.kernel.path_put(dir.path());
            }
            if let Some(opened) = created? {
                return Ok(Step::Done(opened));
            }
        }
    }

    /// Creates the last component. `None` if another task did meanwhile.
    ///
    /// Kernel: fs/namei.c `lookup_open()`.
    fn create_last(&self, dir: Path, last: Last<'_>, op: &OpenFlags) -> Result<Option<Opened>> {
        let mut change = Change::look(&self.kernel, &self.cred, dir.mnt);
        if change.lookup(dir.dentry, last.name)?.is_some() {
            return Ok(None);
        }
        change.want_write()?;
        change.may_create(dir.dentry)?;
        let node = NewNode { mode: S_IFREG | op.mode, umask: self.fs.fs.umask(), rdev: 0, body: b"" };
        let dentry = change.create(dir.dentry, last.name, &node)?;
        let path = Path { mnt: dir.mnt, dentry };
        self.kernel.path_get(path);
        Ok(Some(Opened { path, file_type: S_IFREG, created: true }))
    }

    /// [`do_open`](Self::do_open) of a child that a lookup gave.
    fn do_open_child<const RCU: bool>(
        &self,
        nd: &mut Nameidata<'_>,
        dir: Position,
        child: Seen,
        op: &OpenFlags,
    ) -> Walk<Opened> {
        // The directory's attributes count for sticky ones: it is let go with the step.
        let dir_attr = nd.kernel.read_attr(dir.mnt, nd.kernel.store.d_inode(dir.seen.dentry));
        let position = nd.handle_mounts::<RCU>(dir.mnt, child)?;
        nd.complete_walk::<RCU>(position)?;
        if let Err(errno) = self.may_create_in_sticky(nd, &dir_attr, position, op) {
            nd.validate::<RCU>(position.seen)?;
            return Err(Stop::Fail(errno));
        }
        self.do_open::<RCU>(nd, position, op)
    }

    /// What `O_CREAT` forbids of a file that exists.
    fn may_create_in_sticky(
        &self,
        nd: &Nameidata<'_>,
        dir: &InodeAttr,
        child: Position,
        op: &OpenFlags,
    ) -> Result<()> {
        if op.has(O_EXCL) {
            return Err(Errno::EEXIST);
        }
        if child.seen.meta.is_dir() {
            return Err(Errno::EISDIR);
        }
        let attr = nd.kernel.read_attr(child.mnt, nd.kernel.store.d_inode(child.seen.dentry));
        let may = perm::may_create_in_sticky(nd.kernel.protected(), dir, &attr, &self.cred);
        may.or_else(|errno| nd.kernel.refuse(child.path(), Rule::ProtectedCreate, errno))
    }

    /// Whether what the walk came to may be opened; takes the reference for the open file.
    ///
    /// Kernel: fs/namei.c `do_open()`, `may_open()`.
    #[inline(always)]
    fn do_open<const RCU: bool>(
        &self,
        nd: &mut Nameidata<'_>,
        position: Position,
        op: &OpenFlags,
    ) -> Walk<Opened> {
        let allowed = self.may_open(position, op);
        if RCU {
            if let Err(errno) = allowed {
                nd.revalidate(position.seen)?;
                return Err(Stop::Fail(errno));
            }
            nd.legitimize(position)?;
        } else {
            allowed?;
            nd.kernel.path_get(position.path());
        }
        Ok(Opened { path: position.path(), file_type: position.seen.meta.file_type(), created: false })
    }

    #[inline]
    fn may_open(&self, position: Position, op: &OpenFlags) -> Result<()> {
        let kernel = &*self.kernel;
        let meta = position.seen.meta;
        if op.has(O_CREAT) {
            // Only `.`, `..` and `/` come here unchecked.
            if op.has(O_EXCL) {
                return Err(Errno::EEXIST);
            }
            if meta.is_dir() {
                return Err(Errno::EISDIR);
            }
        }
        if op.has(O_PATH) {
            return Ok(());
        }
        let inode = kernel.store.d_inode(position.seen.dentry);
        if op.has(__O_TMPFILE) {
            return self.may_tmpfile(position, inode);
        }
        let truncates = op.has(O_TRUNC) && meta.file_type() == S_IFREG;
        if truncates {
            self.want_write(position.path())?;
        }
        match meta.file_type() {
            S_IFLNK => return Err(Errno::ELOOP),
            S_IFDIR if op.may() & MAY_WRITE != 0 => return Err(Errno::EISDIR),
            S_IFREG if op.exec && kernel.mount_has(position.mnt, mount::flags::NOEXEC) => {
                return kernel.refuse(position.path(), Rule::NoExec, Errno::EACCES);
            }
            S_IFREG => {}
            _ if op.exec => return kernel.refuse(position.path(), Rule::NotAProgram, Errno::EACCES),
            S_IFCHR | S_IFBLK
                if kernel.mount_has(position.mnt, mount::flags::NODEV | mount::flags::SB_NODEV) =>
            {
                return kernel.refuse(position.path(), Rule::NoDev, Errno::EACCES);
            }
            _ => {}
        }
        if !kernel.everyone_may(position.mnt, kernel.store.inode(inode), op.may()) {
            kernel.inode_permission(position.mnt, inode, &self.cred, op.may())?;
        }
        if op.flags & (O_ACCMODE | O_TRUNC | O_NOATIME) == 0 {
            return Ok(());
        }
        let attr = kernel.read_attr(position.mnt, inode);
        if attr.iflags & perm::IFLAG_APPEND != 0
            && (op.flags & O_ACCMODE != O_RDONLY && !op.has(O_APPEND) || op.has(O_TRUNC))
        {
            return kernel.refuse(position.path(), Rule::AppendOnly, Errno::EPERM);
        }
        if op.has(O_NOATIME) && !perm::owner_or_capable(&self.cred, &attr) {
            return kernel.refuse(position.path(), Rule::NotOwner, Errno::EPERM);
        }
        Ok(())
    }

    /// Whether a nameless file may be made in this directory. Kernel: fs/namei.c `vfs_tmpfile()`.
    fn may_tmpfile(&self, position: Position, inode: Handle) -> Result<()> {
        self.want_write(position.path())?;
        let kernel = &*self.kernel;
        if !kernel.id_view(position.mnt).get().can_store(self.cred.fsuid(), self.cred.fsgid()) {
            return kernel.refuse(position.path(), Rule::CannotStore, Errno::EOVERFLOW);
        }
        kernel.inode_permission(position.mnt, inode, &self.cred, MAY_WRITE | MAY_EXEC)
    }

    /// Makes the open file from what the walk found, whose reference passes to it.
    ///
    /// Kernel: fs/open.c `do_dentry_open()`.
    #[inline(always)]
    fn finish_open(&self, opened: Opened, op: &OpenFlags) -> Result<Opening> {
        if op.has(__O_TMPFILE) {
            return self.open_tmpfile(opened, op);
        }
        let store = &self.kernel.store;
        let inode = store.d_inode(opened.path.dentry);
        let file_type = opened.file_type;
        let mut mode = FileMode { created: opened.created, ..op.file_mode() };
        if file_type == S_IFIFO && !mode.path {
            self.open_fifo(inode, mode, op)?;
        } else if !mode.path && matches!(file_type, S_IFSOCK | S_IFCHR | S_IFBLK) {
            // There are no drivers here.
            return Err(Errno::ENXIO);
        } else if file_type == S_IFDIR && op.has(O_DIRECT) {
            return Err(Errno::EINVAL);
        }
        if !mode.path && file_type == S_IFREG {
            if mode.write {
                let ns = store.lock();
                store.get_write_access(&ns, inode)?;
                self.kernel.get_mount_writer(&ns, opened.path.mnt);
                mode.writer = true;
            }
            let rest = self.open_regular(opened, inode, mode, op);
            if let (Err(errno), true) = (rest, mode.writer) {
                let ns = store.lock();
                store.put_write_access(&ns, inode);
                self.kernel.put_mount_writer(&ns, opened.path.mnt);
                return Err(errno);
            }
            rest?;
        }
        Ok(opening(opened.path, inode, mode, op))
    }

    /// What opening a regular file does besides.
    fn open_regular(&self, opened: Opened, inode: Handle, mode: FileMode, op: &OpenFlags) -> Result<()> {
        if opened.created {
            return Ok(());
        }
        if mode.write {
            self.want_write(opened.path)?;
        }
        if op.has(O_TRUNC) {
            return self.handle_truncate(opened.path.mnt, inode);
        }
        Ok(())
    }

    /// Opens one end of a fifo, which carries nothing here but counts its readers and writers.
    ///
    /// Kernel: fs/pipe.c `fifo_open()`.  Differs: what would wait for the other end is `EAGAIN`.
    fn open_fifo(&self, inode: Handle, mode: FileMode, op: &OpenFlags) -> Result<()> {
        let store = &self.kernel.store;
        let ns = store.lock();
        let [readers, writers] = store.fifo_ends(&ns, inode);
        match (mode.read, mode.write) {
            // Opened with the access mode 3, for neither.
            (false, false) => return Err(Errno::EINVAL),
            (false, true) if readers == 0 && op.has(O_NONBLOCK) => return Err(Errno::ENXIO),
            (false, true) if readers == 0 => return Err(Errno::EAGAIN),
            (true, false) if writers == 0 && !op.has(O_NONBLOCK) => return Err(Errno::EAGAIN),
            _ if op.has(O_DIRECT) => return Err(Errno::EINVAL),
            _ => {}
        }
        store.count_fifo_ends(&ns, inode, [mode.read, mode.write], 1);
        Ok(())
    }

    /// A nameless file in the directory `opened`, whose reference is given back.
    fn open_tmpfile(&self, opened: Opened, op: &OpenFlags) -> Result<Opening> {
        let store = &self.kernel.store;
        let dir = opened.path.dentry;
        let mut change = Change::new(&self.kernel, &self.cred, opened.path.mnt)?;
        let node =
            NewNode { mode: S_IFREG | op.mode & S_IALLUGO, umask: self.fs.fs.umask(), rdev: 0, body: b"" };
        let dentry = change.make(dir, &node, 0)?;
        let inode = store.d_inode(dentry);
        change.add_nameless(inode);
        if !op.has(O_EXCL) {
            let i = store.inode(inode);
            let _change = store.open_inode(&mut change.ns, inode);
            i.mode.set(i.mode.get() | flags::LINKABLE);
        }
        let mut mode = op.file_mode();
        if mode.write {
            store.get_write_access(&change.ns, inode)?;
            self.kernel.get_mount_writer(&change.ns, opened.path.mnt);
            mode.writer = true;
        }
        store.put_locked(&mut change.ns, dir);
        drop(change);
        Ok(opening(Path { mnt: opened.path.mnt, dentry }, inode, mode, op))
    }
}

/// What the older calls ask for: unlike openat2, they drop what they do not know. Kernel: fs/open.c `build_open_how()`.
#[inline(always)]
fn older_how(flags: i32, mode: u32) -> OpenHow {
    let flags = flags & VALID_FLAGS;
    let flags = if flags & O_PATH != 0 { flags & PATH_FLAGS } else { flags };
    let mode = if flags & (O_CREAT | __O_TMPFILE) != 0 { mode & S_IALLUGO } else { 0 };
    OpenHow { flags: flags as u64, mode: u64::from(mode), resolve: 0 }
}

/// What the table makes an open file of.
#[inline]
fn opening(path: Path, inode: Handle, mode: FileMode, op: &OpenFlags) -> Opening {
    let kept = op.flags & !(O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_CLOEXEC);
    let flags = if mode.path { kept } else { kept | O_LARGEFILE };
    Opening { path, inode, mode, flags: flags as u32, proc: None }
}
