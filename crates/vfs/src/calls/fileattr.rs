//! Attributes of inodes: immutable, append-only and their like, in the three forms in which they are asked for.
//!
//! Kernel: fs/file_attr.c, mm/shmem.c `shmem_fileattr_set()`; fs/fcntl.c for hints.

use crate::base::errno::{Errno, Result};
use crate::base::flags::AtFlags;
use crate::base::uapi::*;
use crate::calls::xattr::Target;
use crate::dcache::inode::{Touch, flags};
use crate::mount::Path;
use crate::perm;
use crate::task::Task;
use rcuwalk_sync::Handle;

/// The flags that there are, with the bits of [`crate::dcache::inode::Inode::mode`] that keep them.
const FLAGS: [(u32, u32); 4] = [
    (FS_IMMUTABLE_FL, flags::IMMUTABLE),
    (FS_APPEND_FL, flags::APPEND),
    (FS_NODUMP_FL, flags::NODUMP),
    (FS_NOATIME_FL, flags::NOATIME),
];

/// The flags that only a privileged task may change.
const PRIVILEGED: u32 = FS_IMMUTABLE_FL | FS_APPEND_FL;

/// Flags that have two names: `FS_*_FL` and `FS_XFLAG_*`. Kernel: `FS_COMMON_FL`, `FS_XFLAG_COMMON`.
const COMMON: [(u32, u32); 7] = [
    (FS_SYNC_FL, FS_XFLAG_SYNC),
    (FS_IMMUTABLE_FL, FS_XFLAG_IMMUTABLE),
    (FS_APPEND_FL, FS_XFLAG_APPEND),
    (FS_NODUMP_FL, FS_XFLAG_NODUMP),
    (FS_NOATIME_FL, FS_XFLAG_NOATIME),
    (FS_DAX_FL, FS_XFLAG_DAX),
    (FS_PROJINHERIT_FL, FS_XFLAG_PROJINHERIT),
];

/// Flags that are shown, and ignored when they are set. Kernel: `FS_XFLAG_RDONLY_MASK`.
const SHOWN_ONLY: u32 = FS_XFLAG_PREALLOC | FS_XFLAG_HASATTR;

/// Every flag that any file system knows. Kernel: `FS_XFLAGS_MASK`.
const KNOWN: u32 = SHOWN_ONLY
    | FS_XFLAG_REALTIME
    | FS_XFLAG_IMMUTABLE
    | FS_XFLAG_APPEND
    | FS_XFLAG_SYNC
    | FS_XFLAG_NOATIME
    | FS_XFLAG_NODUMP
    | FS_XFLAG_RTINHERIT
    | FS_XFLAG_PROJINHERIT
    | FS_XFLAG_NOSYMLINKS
    | FS_XFLAG_EXTSIZE
    | FS_XFLAG_EXTSZINHERIT
    | FS_XFLAG_NODEFRAG
    | FS_XFLAG_FILESTREAM
    | FS_XFLAG_DAX
    | FS_XFLAG_COWEXTSIZE;

/// What file_getattr(2) tells and file_setattr(2) sets, and `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR` in their own layout. On
/// tmpfs everything but `xflags` is 0. Kernel: `struct file_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct FileAttr {
    /// `FS_XFLAG_*`.
    pub xflags: u64,
    /// Bytes that the file system allocates at once.
    pub extsize: u32,
    /// Pieces that the contents lie in; ignored when it is set.
    pub nextents: u32,
    /// The project that the space is accounted to.
    pub projid: u32,
    /// Bytes that the file system copies at once on a write to what is shared.
    pub cowextsize: u32,
}

impl FileAttr {
    setters! {
        with_xflags xflags: u64;
        with_extsize extsize: u32;
        with_projid projid: u32;
        with_cowextsize cowextsize: u32;
    }
}

/// What is to be set, parsed. Kernel: `struct file_kattr`.
struct Wanted {
    /// `FS_*_FL`.
    flags: u32,
    /// `FS_XFLAG_*`, those of `flags` among them.
    xflags: u32,
    attr: FileAttr,
}

impl Wanted {
    /// Kernel: `fileattr_fill_flags()`.
    fn flags(flags: u32) -> Wanted {
        let xflags = COMMON.iter().filter(|(flag, _)| flags & flag != 0).fold(0, |all, (_, bit)| all | bit);
        Wanted { flags, xflags, attr: FileAttr::default() }
    }

    /// `None` if a flag is one that no file system has. Kernel: `fileattr_fill_xflags()`.
    fn xattr(attr: FileAttr) -> Option<Wanted> {
        let xflags = u32::try_from(attr.xflags).ok().filter(|xflags| xflags & !KNOWN == 0)? & !SHOWN_ONLY;
        let flags = COMMON.iter().filter(|(_, bit)| xflags & bit != 0).fold(0, |all, (flag, _)| all | flag);
        Some(Wanted { flags, xflags, attr })
    }

    /// What nobody may set. Kernel: `fileattr_set_prepare()`.
    fn check(&self, task: &Task, kind: u32) -> Result<()> {
        let has = |xflag: u32| self.xflags & xflag != 0;
        let wrong_project = if task.cred.user_ns().is_init() {
            self.attr.projid == INVALID_ID
        } else {
            self.attr.projid != 0 || has(FS_XFLAG_PROJINHERIT)
        };
        let wrong_hint =
            has(FS_XFLAG_EXTSIZE) && kind != S_IFREG || has(FS_XFLAG_EXTSZINHERIT) && kind != S_IFDIR;
        if wrong_project || wrong_hint { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// Whether tmpfs can keep it all. Kernel: mm/shmem.c `shmem_fileattr_set()`.
    fn fits_tmpfs(&self) -> bool {
        let FileAttr { extsize, projid, cowextsize, .. } = self.attr;
        let common = COMMON.iter().fold(0, |all, (_, bit)| all | bit);
        // A hint of zero takes its flags along.
        let idle = FS_XFLAG_EXTSIZE | FS_XFLAG_EXTSZINHERIT | FS_XFLAG_COWEXTSIZE;
        [extsize, projid, cowextsize] == [0; 3]
            && self.xflags & !(common | idle) == 0
            && FLAGS.iter().fold(self.flags, |rest, (flag, _)| rest & !flag) == 0
    }
}

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
        self.fileattr_get(file.inode)
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
        self.fileattr_set(file.path, file.inode, &Wanted::flags(new))
    }

    /// `FS_IOC_FSGETXATTR`: the attributes of the open file or directory.
    ///
    /// # Errors
    ///
    /// As [`getflags`](Self::getflags).
    ///
    /// Kernel: fs/file_attr.c `ioctl_fsgetxattr()`.
    pub fn fsgetxattr(&self, fd: i32) -> Result<FileAttr> {
        self.getflags(fd).map(attr_of)
    }

    /// `FS_IOC_FSSETXATTR`: replaces the attributes of the open file or directory, as [`setflags`](Self::setflags) does.
    ///
    /// # Errors
    ///
    /// In this order: `EBADF` (also for `O_PATH`), `EOPNOTSUPP` (a flag that no file system has, or beyond the 32 bits of the
    /// ioctl's structure), `EROFS`, `ENOTTY` (neither file
    /// nor directory), `EPERM` (as [`setflags`](Self::setflags)), `EINVAL` (a project that is none, or any from within a user
    /// namespace; a size for files on a directory, or the other way round), `EOPNOTSUPP` (what tmpfs does not have).
    ///
    /// Kernel: fs/file_attr.c `ioctl_fssetxattr()`.
    pub fn fssetxattr(&self, fd: i32, attr: FileAttr) -> Result<()> {
        let file = self.file(fd)?;
        let wanted = Wanted::xattr(attr).ok_or(Errno::EOPNOTSUPP)?;
        self.want_write(file.path)?;
        self.fileattr_set(file.path, file.inode, &wanted)
    }

    /// The attributes of `path`. `at_flags`: `AT_SYMLINK_NOFOLLOW`, `AT_EMPTY_PATH`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (flags), those of the walk, `EBADF` (also for an `O_PATH` descriptor itself), `EOPNOTSUPP` (neither file nor
    /// directory).
    ///
    /// Kernel: fs/file_attr.c `file_getattr()`.
    ///
    /// ```
    /// # use rcuwalk::{Cred, FileAttr, Vfs, uapi::*};
    /// # let vfs = Vfs::new()?;
    /// let root = vfs.task(Cred::root());
    /// root.mkdir(b"/d", 0o755)?;
    /// let attr = FileAttr::default().with_xflags(u64::from(FS_XFLAG_NODUMP));
    /// root.file_setattr(AT_FDCWD, b"/d", attr, 0)?;
    /// assert_eq!(root.file_getattr(AT_FDCWD, b"/d", 0)?, attr);
    /// # Ok::<(), rcuwalk::Errno>(())
    /// ```
    pub fn file_getattr(&self, dirfd: i32, path: &[u8], at_flags: impl Into<AtFlags>) -> Result<FileAttr> {
        let target = Target::at(dirfd, path, at_flags.into())?;
        self.at_target(target, |_, inode| self.fileattr_get(inode)).map(attr_of).map_err(unsupported)
    }

    /// Replaces the attributes of `path`, as [`fssetxattr`](Self::fssetxattr) does. `at_flags` are those of
    /// [`file_getattr`](Self::file_getattr).
    ///
    /// # Errors
    ///
    /// `EINVAL` (flags; a flag of `attr` that no file system has), then those of the walk, and as [`fssetxattr`](Self::fssetxattr),
    /// but `EOPNOTSUPP` for `ENOTTY`.
    ///
    /// Kernel: fs/file_attr.c `file_setattr()`.
    pub fn file_setattr(
        &self,
        dirfd: i32,
        path: &[u8],
        attr: FileAttr,
        at_flags: impl Into<AtFlags>,
    ) -> Result<()> {
        let target = Target::at(dirfd, path, at_flags.into())?;
        let wanted = Wanted::xattr(attr).ok_or(Errno::EINVAL)?;
        let set = |place, inode| {
            self.want_write(place)?;
            self.fileattr_set(place, inode, &wanted)
        };
        self.at_target(target, set).map_err(unsupported)
    }

    /// Kernel: fs/file_attr.c `vfs_fileattr_get()`.
    fn fileattr_get(&self, inode: Handle) -> Result<u32> {
        let mode = self.kernel.store.inode(inode).mode.get();
        if has_fileattr(mode) { Ok(shown(mode)) } else { Err(Errno::ENOTTY) }
    }

    /// Kernel: fs/file_attr.c `vfs_fileattr_set()`.
    fn fileattr_set(&self, place: Path, inode: Handle, wanted: &Wanted) -> Result<()> {
        let (kernel, store) = (&*self.kernel, &self.kernel.store);
        let _room = kernel.watch.admit();
        let (now, mut ns) = (kernel.now(), store.lock());
        let i = store.inode(inode);
        if !has_fileattr(i.mode.get()) {
            return Err(Errno::ENOTTY);
        }
        if !perm::owner_or_capable(&self.cred, &kernel.attr(place.mnt, i)) {
            return Err(Errno::EPERM);
        }
        let changed = shown(i.mode.get()) ^ wanted.flags;
        if changed & PRIVILEGED != 0 && !self.cred.capable(CAP_LINUX_IMMUTABLE) {
            return Err(Errno::EPERM);
        }
        wanted.check(self, i.mode.get() & S_IFMT)?;
        if !wanted.fits_tmpfs() {
            return Err(Errno::EOPNOTSUPP);
        }
        store.change_inode(&mut ns, inode, |i, ns| {
            let kept = FLAGS.iter().fold(i.mode.get(), |mode, (_, bit)| mode & !bit);
            let set = FLAGS.iter().filter(|(flag, _)| wanted.flags & flag != 0);
            i.mode.set(set.fold(kept, |mode, (_, bit)| mode | bit));
            store.touch(ns, inode, Touch::C, now);
        });
        Ok(())
    }

    /// `F_GET_RW_HINT`: how long what is written to the inode of the open file is expected to live (`RWH_*`).
    ///
    /// # Errors
    ///
    /// `EBADF` (also for `O_PATH`).
    ///
    /// Kernel: fs/fcntl.c `fcntl_get_rw_hint()`.
    pub fn get_rw_hint(&self, fd: i32) -> Result<u64> {
        let file = self.file(fd)?;
        let mode = self.kernel.store.inode(file.inode).mode.get();
        Ok(u64::from((mode & flags::WRITE_HINT) >> flags::WRITE_HINT_SHIFT))
    }

    /// `F_SET_RW_HINT`: says how long, for every descriptor of the inode. It has no effect.
    ///
    /// # Errors
    ///
    /// `EBADF` (also for `O_PATH`), `EPERM` (not the owner, and no `CAP_FOWNER`), `EINVAL` (no such hint).
    ///
    /// Kernel: fs/fcntl.c `fcntl_set_rw_hint()`.
    pub fn set_rw_hint(&self, fd: i32, hint: u64) -> Result<()> {
        self.may_set_rw_hint(fd)?;
        if hint > RWH_WRITE_LIFE_EXTREME {
            return Err(Errno::EINVAL);
        }
        let file = self.file(fd)?;
        let store = &self.kernel.store;
        let mut ns = store.lock();
        let _change = store.open_inode(&mut ns, file.inode);
        let mode = &store.inode(file.inode).mode;
        mode.set(mode.get() & !flags::WRITE_HINT | (hint as u32) << flags::WRITE_HINT_SHIFT);
        Ok(())
    }

    /// Whether the task may say how long, which comes before what it says.
    pub(crate) fn may_set_rw_hint(&self, fd: i32) -> Result<()> {
        let file = self.file(fd)?;
        let attr = self.kernel.read_attr(file.path.mnt, file.inode);
        if perm::owner_or_capable(&self.cred, &attr) { Ok(()) } else { Err(Errno::EPERM) }
    }
}

/// Whether an object with this mode has such attributes at all.
fn has_fileattr(mode: u32) -> bool {
    matches!(mode & S_IFMT, S_IFREG | S_IFDIR)
}

fn attr_of(flags: u32) -> FileAttr {
    FileAttr::default().with_xflags(u64::from(Wanted::flags(flags).xflags))
}

/// Where there is no ioctl that could be inappropriate.
fn unsupported(errno: Errno) -> Errno {
    if errno == Errno::ENOTTY { Errno::EOPNOTSUPP } else { errno }
}
