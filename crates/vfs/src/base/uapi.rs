//! Constants and structures of the Linux user-space interface, with the values of x86-64.
//!
//! Each constant has the type of the argument that takes it: open flags, `AT_*` and access modes are `i32`, file modes
//! and `STATX_*` `u32`, `RESOLVE_*` and mount flags `u64`.

use crate::base::flags::{OFlags, ResolveFlags};
use zerocopy::{Immutable, IntoBytes, transmute_ref};

/// Declares constants, each documented by one line.
macro_rules! constants {
    ($ty:ty: $($name:ident = $value:expr, $doc:literal;)*) => {
        $(#[doc = $doc] pub const $name: $ty = $value;)*
    };
}

// open(2), openat2(2), fcntl(2)

constants! { i32:
    O_RDONLY = 0, "Open for reading.";
    O_WRONLY = 1, "Open for writing.";
    O_RDWR = 2, "Open for reading and writing.";
    O_ACCMODE = 3, "Mask of the access mode; the value 3 asks for both permissions and gives neither.";
    O_CREAT = 0o100, "Create the file if it is missing.";
    O_EXCL = 0o200, "With `O_CREAT`: fail if it exists.";
    O_NOCTTY = 0o400, "Do not make a terminal the controlling one.";
    O_TRUNC = 0o1000, "Set the size to zero; implies write permission.";
    O_APPEND = 0o2000, "Each write goes to the end.";
    O_NONBLOCK = 0o4000, "Do not block.";
    O_DSYNC = 0o10000, "Each write waits for the data to be stored.";
    O_ASYNC = 0o20000, "Signal-driven I/O (the kernel's `FASYNC`).";
    O_DIRECT = 0o40000, "Bypass the page cache.";
    O_LARGEFILE = 0o100000, "Allow sizes beyond 2 GiB; always set on 64-bit systems.";
    O_DIRECTORY = 0o200000, "Fail unless it is a directory.";
    O_NOFOLLOW = 0o400000, "Do not follow a symbolic link in the last component.";
    O_NOATIME = 0o1000000, "Reading does not change the access time.";
    O_CLOEXEC = 0o2000000, "Close on execve.";
    O_SYNC = 0o4010000, "Each write waits for data and metadata: `__O_SYNC | O_DSYNC`.";
    O_PATH = 0o10000000, "A reference to the place in the tree, without opening the object.";
    O_TMPFILE = 0o20200000, "A nameless file in the directory: `__O_TMPFILE | O_DIRECTORY`.";
    __O_SYNC = 0o4000000, "The bit of `O_SYNC` that is not `O_DSYNC`.";
    __O_TMPFILE = 0o20000000, "The bit of `O_TMPFILE` that is not `O_DIRECTORY`.";
    F_DUPFD = 0, "fcntl: duplicate to the lowest free number at or above the argument.";
    F_GETFD = 1, "fcntl: get the descriptor flags.";
    F_SETFD = 2, "fcntl: set the descriptor flags.";
    F_GETFL = 3, "fcntl: get the file status flags.";
    F_SETFL = 4, "fcntl: set the file status flags.";
    F_DUPFD_CLOEXEC = 1030, "fcntl: `F_DUPFD` with `FD_CLOEXEC` set.";
    FD_CLOEXEC = 1, "Descriptor flag: close on execve.";
    F_SETSIG = 10, "fcntl: which signal tells that input or output is possible; 0 for the usual one.";
    F_GETSIG = 11, "fcntl: which signal that is.";
    F_DUPFD_QUERY = 1027, "fcntl: whether the argument is a duplicate of the descriptor.";
    F_CREATED_QUERY = 1028, "fcntl: whether opening the descriptor created the file.";
    F_GET_RW_HINT = 1035, "fcntl: how long what is written to the inode is expected to live.";
    F_SET_RW_HINT = 1036, "fcntl: says how long, `RWH_*`.";
}

constants! { u64:
    RESOLVE_NO_XDEV = 0x01, "Do not cross mounts, upwards or downwards.";
    RESOLVE_NO_MAGICLINKS = 0x02, "Do not follow magic links.";
    RESOLVE_NO_SYMLINKS = 0x04, "Do not follow symbolic links.";
    RESOLVE_BENEATH = 0x08, "Fail when the walk would leave the starting directory.";
    RESOLVE_IN_ROOT = 0x10, "Treat the starting directory as the root.";
    RESOLVE_CACHED = 0x20, "Succeed only if the walk need not block.";
}

// The *at calls, access(2), renameat2(2), lseek(2), fallocate(2), *xattr(2)

constants! { i32:
    AT_FDCWD = -100, "In place of a directory descriptor: the current directory.";
    AT_SYMLINK_NOFOLLOW = 0x100, "Do not follow a symbolic link in the last component.";
    AT_EACCESS = 0x200, "faccessat2: test with the effective ids.";
    AT_REMOVEDIR = 0x200, "unlinkat: remove a directory.";
    AT_SYMLINK_FOLLOW = 0x400, "linkat: follow a symbolic link in the last component.";
    AT_NO_AUTOMOUNT = 0x800, "Do not trigger an automount; no effect here.";
    AT_EMPTY_PATH = 0x1000, "An empty path means the descriptor itself.";
    AT_STATX_SYNC_AS_STAT = 0x0000, "statx: synchronise as stat does.";
    AT_STATX_FORCE_SYNC = 0x2000, "statx: synchronise with the server.";
    AT_STATX_DONT_SYNC = 0x4000, "statx: take what is cached.";
    AT_STATX_SYNC_TYPE = 0x6000, "statx: mask of the two synchronisation bits.";
    AT_RECURSIVE = 0x8000, "Apply to the whole tree.";
    AT_HANDLE_FID = 0x200, "name_to_handle_at: the handle need not lead back to the object.";
    AT_HANDLE_MNT_ID_UNIQUE = 0x1, "name_to_handle_at: the number of the mount is one that is never used again.";
    AT_HANDLE_CONNECTABLE = 0x2, "name_to_handle_at: the handle leads to a place with a path; not on tmpfs.";
    AT_EXECVE_CHECK = 0x10000, "execveat: only check whether the file could be executed.";
    F_OK = 0, "access: does it exist?";
    X_OK = 1, "access: may it be executed or searched?";
    W_OK = 2, "access: may it be written?";
    R_OK = 4, "access: may it be read?";
    SEEK_SET = 0, "lseek: from the start.";
    SEEK_CUR = 1, "lseek: from the current position.";
    SEEK_END = 2, "lseek: from the end.";
    SEEK_DATA = 3, "lseek: the next byte that is not in a hole.";
    SEEK_HOLE = 4, "lseek: the next byte in a hole; the end counts as one.";
    FALLOC_FL_KEEP_SIZE = 0x01, "fallocate: leave the size as it is.";
    FALLOC_FL_PUNCH_HOLE = 0x02, "fallocate: free the range; needs `FALLOC_FL_KEEP_SIZE`.";
    FALLOC_FL_COLLAPSE_RANGE = 0x08, "fallocate: remove the range.";
    FALLOC_FL_ZERO_RANGE = 0x10, "fallocate: zero the range.";
    FALLOC_FL_INSERT_RANGE = 0x20, "fallocate: insert a hole.";
    FALLOC_FL_UNSHARE_RANGE = 0x40, "fallocate: unshare shared extents.";
    FALLOC_FL_WRITE_ZEROES = 0x80, "fallocate: write zeros.";
    XATTR_CREATE = 1, "setxattr: fail if the attribute exists.";
    XATTR_REPLACE = 2, "setxattr: fail if the attribute is missing.";
}

// preadv2(2), pwritev2(2)

constants! { i32:
    RWF_HIPRI = 0x1, "preadv2: poll for the end of it; no effect here.";
    RWF_DSYNC = 0x2, "pwritev2: as `O_DSYNC`.";
    RWF_SYNC = 0x4, "pwritev2: as `O_SYNC`.";
    RWF_NOWAIT = 0x8, "preadv2: fail instead of waiting; not on tmpfs.";
    RWF_APPEND = 0x10, "pwritev2: as `O_APPEND`.";
    RWF_NOAPPEND = 0x20, "pwritev2: as without `O_APPEND`.";
    RWF_ATOMIC = 0x40, "pwritev2: all or nothing; not on tmpfs.";
    RWF_DONTCACHE = 0x80, "preadv2: leave nothing in the cache; not on tmpfs.";
    RWF_NOSIGNAL = 0x100, "pwritev2: no SIGPIPE; no effect here.";
}

constants! { u64:
    RWH_WRITE_LIFE_NOT_SET = 0, "F_SET_RW_HINT: nothing is known.";
    RWH_WRITE_LIFE_NONE = 1, "F_SET_RW_HINT: no expectation.";
    RWH_WRITE_LIFE_SHORT = 2, "F_SET_RW_HINT: short.";
    RWH_WRITE_LIFE_MEDIUM = 3, "F_SET_RW_HINT: medium.";
    RWH_WRITE_LIFE_LONG = 4, "F_SET_RW_HINT: long.";
    RWH_WRITE_LIFE_EXTREME = 5, "F_SET_RW_HINT: as good as for ever.";
}

constants! { u32:
    RENAME_NOREPLACE = 1, "renameat2: fail if the new name exists.";
    RENAME_EXCHANGE = 2, "renameat2: swap the two names.";
    RENAME_WHITEOUT = 4, "renameat2: leave a whiteout at the old name.";
}

// File modes

constants! { u32:
    S_IFMT = 0o170000, "Mask of the file type.";
    S_IFSOCK = 0o140000, "Socket.";
    S_IFLNK = 0o120000, "Symbolic link.";
    S_IFREG = 0o100000, "Regular file.";
    S_IFBLK = 0o060000, "Block device.";
    S_IFDIR = 0o040000, "Directory.";
    S_IFCHR = 0o020000, "Character device.";
    S_IFIFO = 0o010000, "Fifo.";
    S_ISUID = 0o4000, "Set-user-id.";
    S_ISGID = 0o2000, "Set-group-id.";
    S_ISVTX = 0o1000, "Sticky.";
    S_IRWXU = 0o700, "All three bits of the owner.";
    S_IRUSR = 0o400, "Owner may read.";
    S_IWUSR = 0o200, "Owner may write.";
    S_IXUSR = 0o100, "Owner may execute or search.";
    S_IRWXG = 0o070, "All three bits of the group.";
    S_IRGRP = 0o040, "Group may read.";
    S_IWGRP = 0o020, "Group may write.";
    S_IXGRP = 0o010, "Group may execute or search.";
    S_IRWXO = 0o007, "All three bits of the others.";
    S_IROTH = 0o004, "Others may read.";
    S_IWOTH = 0o002, "Others may write.";
    S_IXOTH = 0o001, "Others may execute or search.";
    S_IRWXUGO = 0o777, "The nine permission bits.";
    S_IXUGO = 0o111, "The three execute bits.";
    S_IALLUGO = 0o7777, "The permission bits with set-id and sticky.";
}

/// Declares the file-type predicates.
macro_rules! type_predicates {
    ($($name:ident, $ty:ident, $doc:literal;)*) => {
        $(#[doc = $doc]
        #[inline]
        pub const fn $name(mode: u32) -> bool {
            mode & S_IFMT == $ty
        })*
    };
}

type_predicates! {
    s_isreg, S_IFREG, "Is this the mode of a regular file?";
    s_isdir, S_IFDIR, "Is this the mode of a directory?";
    s_islnk, S_IFLNK, "Is this the mode of a symbolic link?";
    s_ischr, S_IFCHR, "Is this the mode of a character device?";
    s_isblk, S_IFBLK, "Is this the mode of a block device?";
    s_isfifo, S_IFIFO, "Is this the mode of a fifo?";
    s_issock, S_IFSOCK, "Is this the mode of a socket?";
}

constants! { u8:
    DT_UNKNOWN = 0, "Directory entry of unknown type.";
    DT_FIFO = 1, "Directory entry of a fifo.";
    DT_CHR = 2, "Directory entry of a character device.";
    DT_DIR = 4, "Directory entry of a directory.";
    DT_BLK = 6, "Directory entry of a block device.";
    DT_REG = 8, "Directory entry of a regular file.";
    DT_LNK = 10, "Directory entry of a symbolic link.";
    DT_SOCK = 12, "Directory entry of a socket.";
    DT_WHT = 14, "Directory entry of a whiteout.";
}

/// The directory-entry type (`DT_*`) of a file mode.
///
/// ```
/// use rcuwalk::uapi::{DT_DIR, S_IFDIR, mode_to_dt};
/// assert_eq!(mode_to_dt(S_IFDIR | 0o755), DT_DIR);
/// ```
#[inline]
pub const fn mode_to_dt(mode: u32) -> u8 {
    ((mode & S_IFMT) >> 12) as u8
}

// statx(2)

constants! { u32:
    STATX_TYPE = 0x0001, "The type bits of `mode`.";
    STATX_MODE = 0x0002, "The other bits of `mode`.";
    STATX_NLINK = 0x0004, "`nlink`.";
    STATX_UID = 0x0008, "`uid`.";
    STATX_GID = 0x0010, "`gid`.";
    STATX_ATIME = 0x0020, "`atime`.";
    STATX_MTIME = 0x0040, "`mtime`.";
    STATX_CTIME = 0x0080, "`ctime`.";
    STATX_INO = 0x0100, "`ino`.";
    STATX_SIZE = 0x0200, "`size`.";
    STATX_BLOCKS = 0x0400, "`blocks`.";
    STATX_BASIC_STATS = 0x07ff, "Everything that stat(2) reports.";
    STATX_BTIME = 0x0800, "`btime`.";
    STATX_ALL = 0x0fff, "`STATX_BASIC_STATS` and `STATX_BTIME`; deprecated.";
    STATX_MNT_ID = 0x1000, "`mnt_id`, the reusable one.";
    STATX_DIOALIGN = 0x2000, "Alignment of direct I/O.";
    STATX_MNT_ID_UNIQUE = 0x4000, "`mnt_id`, the one that is never reused.";
    STATX_SUBVOL = 0x8000, "`subvol`.";
    STATX_WRITE_ATOMIC = 0x10000, "The atomic-write fields.";
    STATX_DIO_READ_ALIGN = 0x20000, "`dio_read_offset_align`.";
    STATX__RESERVED = 0x8000_0000, "Reserved; asking for it is `EINVAL`.";
}

constants! { u64:
    STATX_ATTR_COMPRESSED = 0x4, "The file is compressed.";
    STATX_ATTR_IMMUTABLE = 0x10, "The file is immutable.";
    STATX_ATTR_APPEND = 0x20, "The file is append-only.";
    STATX_ATTR_NODUMP = 0x40, "The file is not to be dumped.";
    STATX_ATTR_ENCRYPTED = 0x800, "The file needs a key.";
    STATX_ATTR_AUTOMOUNT = 0x1000, "An automount trigger.";
    STATX_ATTR_MOUNT_ROOT = 0x2000, "The root of a mount.";
    STATX_ATTR_VERITY = 0x10_0000, "Protected by fs-verity.";
    STATX_ATTR_DAX = 0x20_0000, "In direct-access state.";
}

// ioctl(2)

constants! { u32:
    FS_IMMUTABLE_FL = 0x10, "FS_IOC_SETFLAGS: nothing about the inode may change (chattr +i).";
    FS_APPEND_FL = 0x20, "FS_IOC_SETFLAGS: contents may only be appended to, names only be added (chattr +a).";
    FS_NODUMP_FL = 0x40, "FS_IOC_SETFLAGS: not to be dumped (chattr +d).";
    FS_NOATIME_FL = 0x80, "FS_IOC_SETFLAGS: the access time does not change (chattr +A).";
}

constants! { u32:
    FS_SYNC_FL = 0x8, "FS_IOC_SETFLAGS: written at once; not on tmpfs.";
    FS_DAX_FL = 0x0200_0000, "FS_IOC_SETFLAGS: direct access; not on tmpfs.";
    FS_PROJINHERIT_FL = 0x2000_0000, "FS_IOC_SETFLAGS: names made here are of the project; not on tmpfs.";
    FS_XFLAG_REALTIME = 0x1, "file_setattr: on the realtime device; not on tmpfs.";
    FS_XFLAG_PREALLOC = 0x2, "file_setattr: shown only; ignored.";
    FS_XFLAG_IMMUTABLE = 0x8, "file_setattr: `FS_IMMUTABLE_FL`.";
    FS_XFLAG_APPEND = 0x10, "file_setattr: `FS_APPEND_FL`.";
    FS_XFLAG_SYNC = 0x20, "file_setattr: `FS_SYNC_FL`.";
    FS_XFLAG_NOATIME = 0x40, "file_setattr: `FS_NOATIME_FL`.";
    FS_XFLAG_NODUMP = 0x80, "file_setattr: `FS_NODUMP_FL`.";
    FS_XFLAG_RTINHERIT = 0x100, "file_setattr: files made here are on the realtime device; not on tmpfs.";
    FS_XFLAG_PROJINHERIT = 0x200, "file_setattr: `FS_PROJINHERIT_FL`.";
    FS_XFLAG_NOSYMLINKS = 0x400, "file_setattr: no links are made here; not on tmpfs.";
    FS_XFLAG_EXTSIZE = 0x800, "file_setattr: `extsize` counts for a file.";
    FS_XFLAG_EXTSZINHERIT = 0x1000, "file_setattr: `extsize` counts for files made here.";
    FS_XFLAG_NODEFRAG = 0x2000, "file_setattr: not to be defragmented; not on tmpfs.";
    FS_XFLAG_FILESTREAM = 0x4000, "file_setattr: files made here lie together; not on tmpfs.";
    FS_XFLAG_DAX = 0x8000, "file_setattr: `FS_DAX_FL`.";
    FS_XFLAG_COWEXTSIZE = 0x1_0000, "file_setattr: `cowextsize` counts.";
    FS_XFLAG_HASATTR = 0x8000_0000, "file_setattr: shown only; ignored.";
}

// statfs(2)

constants! { u64:
    TMPFS_MAGIC = 0x0102_1994, "statfs: the type of tmpfs.";
    ST_RDONLY = 0x1, "statfs: read-only.";
    ST_NOSUID = 0x2, "statfs: set-id bits are ignored.";
    ST_NODEV = 0x4, "statfs: device files cannot be opened.";
    ST_NOEXEC = 0x8, "statfs: nothing can be executed.";
    ST_SYNCHRONOUS = 0x10, "statfs: what is written is written at once.";
    ST_VALID = 0x20, "statfs: the flags are there; always set.";
    ST_MANDLOCK = 0x40, "statfs: mandatory locks; there are none.";
    ST_NOATIME = 0x400, "statfs: access times do not change.";
    ST_NODIRATIME = 0x800, "statfs: access times of directories do not change.";
    ST_RELATIME = 0x1000, "statfs: relative access times.";
    ST_NOSYMFOLLOW = 0x2000, "statfs: links are not followed.";
}

// flock(2), and the locks of fcntl(2)

constants! { i32:
    LOCK_SH = 1, "flock: a lock that others may share.";
    LOCK_EX = 2, "flock: a lock for one alone.";
    LOCK_NB = 4, "flock: do not wait.";
    LOCK_UN = 8, "flock: unlock.";
    LOCK_MAND = 32, "flock: gone from the kernel; does nothing.";
    F_GETLK = 5, "fcntl: what is in the way of this process's lock.";
    F_SETLK = 6, "fcntl: set or give back a lock of this process.";
    F_SETLKW = 7, "fcntl: `F_SETLK`, but wait.";
    F_OFD_GETLK = 36, "fcntl: `F_GETLK` for the open file.";
    F_OFD_SETLK = 37, "fcntl: `F_SETLK` for the open file.";
    F_OFD_SETLKW = 38, "fcntl: `F_SETLKW` for the open file.";
}

constants! { i16:
    F_RDLCK = 0, "A lock that others may share.";
    F_WRLCK = 1, "A lock for one alone.";
    F_UNLCK = 2, "No lock.";
}

// mount(2), umount2(2), mount_setattr(2)

constants! { u64:
    MS_RDONLY = 1, "Read-only.";
    MS_NOSUID = 2, "Ignore set-id bits and file capabilities.";
    MS_NODEV = 4, "Device files cannot be opened.";
    MS_NOEXEC = 8, "Nothing can be executed.";
    MS_SYNCHRONOUS = 0x10, "Writes are synchronous.";
    MS_REMOUNT = 0x20, "Change the flags of an existing mount.";
    MS_MANDLOCK = 0x40, "Mandatory locks; without effect.";
    MS_DIRSYNC = 0x80, "Directory changes are synchronous.";
    MS_NOSYMFOLLOW = 0x100, "Symbolic links are not followed.";
    MS_NOATIME = 0x400, "Access times do not change.";
    MS_NODIRATIME = 0x800, "Access times of directories do not change.";
    MS_BIND = 0x1000, "Show a tree at a second place.";
    MS_MOVE = 0x2000, "Move a mount.";
    MS_REC = 0x4000, "Apply to the whole tree.";
    MS_SILENT = 0x8000, "Do not log.";
    MS_POSIXACL = 1 << 16, "ACLs are in force.";
    MS_UNBINDABLE = 1 << 17, "Cannot be bound elsewhere.";
    MS_PRIVATE = 1 << 18, "No propagation.";
    MS_SLAVE = 1 << 19, "Receives propagation.";
    MS_SHARED = 1 << 20, "Sends and receives propagation.";
    MS_RELATIME = 1 << 21, "Access times change when older than the modification, or than a day.";
    MS_STRICTATIME = 1 << 24, "Access times always change.";
    MS_LAZYTIME = 1 << 25, "Times are written back late.";
    MS_NOUSER = 1 << 31, "For the kernel itself; `EINVAL`.";
    MS_MGC_VAL = 0xc0ed_0000, "Ancient magic in the upper half; stripped.";
    MS_MGC_MSK = 0xffff_0000, "Mask of the ancient magic.";
    MOUNT_ATTR_RDONLY = 0x1, "mount_setattr: read-only.";
    MOUNT_ATTR_NOSUID = 0x2, "mount_setattr: ignore set-id bits.";
    MOUNT_ATTR_NODEV = 0x4, "mount_setattr: no device files.";
    MOUNT_ATTR_NOEXEC = 0x8, "mount_setattr: no execution.";
    MOUNT_ATTR_RELATIME = 0x0, "mount_setattr: relative access times, the value 0 of `MOUNT_ATTR__ATIME`.";
    MOUNT_ATTR_NOATIME = 0x10, "mount_setattr: no access times.";
    MOUNT_ATTR_STRICTATIME = 0x20, "mount_setattr: strict access times.";
    MOUNT_ATTR__ATIME = 0x70, "mount_setattr: mask of the access-time field.";
    MOUNT_ATTR_NODIRATIME = 0x80, "mount_setattr: no access times of directories.";
    MOUNT_ATTR_IDMAP = 0x10_0000, "mount_setattr: map ids.";
    MOUNT_ATTR_NOSYMFOLLOW = 0x20_0000, "mount_setattr: do not follow symbolic links.";
}

constants! { u64:
    CLONE_VM = 0x100, "clone: memory is shared.";
    CLONE_FS = 0x200, "clone, unshare: root, current directory and umask.";
    CLONE_FILES = 0x400, "clone, unshare: the descriptor table.";
    CLONE_SIGHAND = 0x800, "clone: signal handlers are shared; needs `CLONE_VM`.";
    CLONE_VFORK = 0x4000, "clone: the parent waits until the child executes or ends.";
    CLONE_THREAD = 0x1_0000, "clone: a thread of the same process; needs `CLONE_SIGHAND`.";
    CLONE_NEWNS = 0x2_0000, "unshare: the mount namespace.";
    CLONE_NEWUSER = 0x1000_0000, "unshare: the user namespace.";
}

constants! { u32:
    RLIMIT_FSIZE = 1, "setrlimit: bytes of a file.";
    RLIMIT_STACK = 3, "setrlimit: bytes of the stack, a quarter of which arguments may take.";
    RLIMIT_NPROC = 6, "setrlimit: tasks of the user.";
    RLIMIT_NOFILE = 7, "setrlimit: descriptors are numbered below it.";
}

constants! { u32:
    MOVE_MOUNT_F_SYMLINKS = 0x1, "move_mount: follow a link in the last component of the source.";
    MOVE_MOUNT_F_AUTOMOUNTS = 0x2, "move_mount: without effect.";
    MOVE_MOUNT_F_EMPTY_PATH = 0x4, "move_mount: an empty source path means the descriptor.";
    MOVE_MOUNT_T_SYMLINKS = 0x10, "move_mount: follow a link in the last component of the target.";
    MOVE_MOUNT_T_AUTOMOUNTS = 0x20, "move_mount: without effect.";
    MOVE_MOUNT_T_EMPTY_PATH = 0x40, "move_mount: an empty target path means the descriptor.";
}

constants! { u64:
    STATMOUNT_SB_BASIC = 0x1, "statmount: device number, type and flags of the file system.";
    STATMOUNT_MNT_BASIC = 0x2, "statmount: ids, attributes and propagation of the mount.";
    STATMOUNT_PROPAGATE_FROM = 0x4, "statmount: the nearest group below the root that the mount receives from.";
    STATMOUNT_MNT_ROOT = 0x8, "statmount: the directory of the file system that is seen.";
    STATMOUNT_MNT_POINT = 0x10, "statmount: where that is, below the root.";
    STATMOUNT_FS_TYPE = 0x20, "statmount: the name of the type.";
    STATMOUNT_MNT_NS_ID = 0x40, "statmount: the id of the mount namespace.";
    STATMOUNT_MNT_OPTS = 0x80, "statmount: the options of the file system.";
    STATMOUNT_FS_SUBTYPE = 0x100, "statmount: the name of the subtype; tmpfs has none.";
    STATMOUNT_SB_SOURCE = 0x200, "statmount: the source that mount(2) was given.";
    STATMOUNT_OPT_ARRAY = 0x400, "statmount: the options, one by one.";
    STATMOUNT_OPT_SEC_ARRAY = 0x800, "statmount: the options of security modules; there are none.";
    STATMOUNT_SUPPORTED_MASK = 0x1000, "statmount: which of these bits there are.";
    STATMOUNT_MNT_UIDMAP = 0x2000, "statmount: the user ids of an idmapped mount.";
    STATMOUNT_MNT_GIDMAP = 0x4000, "statmount: the group ids of an idmapped mount.";
    LSMT_ROOT = u64::MAX, "listmount, in place of a mount: the root directory.";
}

constants! { u32:
    LISTMOUNT_REVERSE = 1, "listmount: the newest mount first.";
}

constants! { i32:
    OPEN_TREE_CLONE = 1, "open_tree: a detached copy.";
    OPEN_TREE_CLOEXEC = O_CLOEXEC, "open_tree: close on execve.";
    MNT_FORCE = 1, "umount2: abort pending requests.";
    MNT_DETACH = 2, "umount2: detach now, clean up when no longer busy.";
    MNT_EXPIRE = 4, "umount2: mark as expired, unmount the second time.";
    UMOUNT_NOFOLLOW = 8, "umount2: do not follow a symbolic link.";
}

// capabilities(7)

constants! { u32:
    CAP_CHOWN = 0, "Change owner and group of any file.";
    CAP_DAC_OVERRIDE = 1, "Pass permission bits and ACLs.";
    CAP_DAC_READ_SEARCH = 2, "Read any file, read and search any directory.";
    CAP_FOWNER = 3, "Act as the owner of any file.";
    CAP_FSETID = 4, "Keep set-id bits on change; set set-group-id of any group.";
    CAP_KILL = 5, "Signal any process.";
    CAP_SETGID = 6, "Change group ids and the group list.";
    CAP_SETUID = 7, "Change user ids.";
    CAP_SETPCAP = 8, "Change bounding set and securebits.";
    CAP_LINUX_IMMUTABLE = 9, "Change the immutable and append-only flags.";
    CAP_NET_BIND_SERVICE = 10, "Bind to low ports.";
    CAP_NET_BROADCAST = 11, "Broadcast and multicast.";
    CAP_NET_ADMIN = 12, "Administer the network.";
    CAP_NET_RAW = 13, "Use raw sockets.";
    CAP_IPC_LOCK = 14, "Lock memory.";
    CAP_IPC_OWNER = 15, "Pass IPC permissions.";
    CAP_SYS_MODULE = 16, "Load kernel modules.";
    CAP_SYS_RAWIO = 17, "Raw I/O.";
    CAP_SYS_CHROOT = 18, "chroot(2), and entering a mount namespace.";
    CAP_SYS_PTRACE = 19, "Trace any process.";
    CAP_SYS_PACCT = 20, "Process accounting.";
    CAP_SYS_ADMIN = 21, "Mount, `trusted.*` attributes, and much else.";
    CAP_SYS_BOOT = 22, "Reboot.";
    CAP_SYS_NICE = 23, "Raise priorities.";
    CAP_SYS_RESOURCE = 24, "Exceed resource limits.";
    CAP_SYS_TIME = 25, "Set the clock.";
    CAP_SYS_TTY_CONFIG = 26, "Configure terminals.";
    CAP_MKNOD = 27, "Create device files.";
    CAP_LEASE = 28, "Take leases on any file.";
    CAP_AUDIT_WRITE = 29, "Write audit records.";
    CAP_AUDIT_CONTROL = 30, "Configure auditing.";
    CAP_SETFCAP = 31, "Set file capabilities.";
    CAP_MAC_OVERRIDE = 32, "Pass mandatory access control.";
    CAP_MAC_ADMIN = 33, "Configure mandatory access control.";
    CAP_SYSLOG = 34, "Read the kernel log.";
    CAP_WAKE_ALARM = 35, "Set wake-up alarms.";
    CAP_BLOCK_SUSPEND = 36, "Block suspend.";
    CAP_AUDIT_READ = 37, "Read audit records.";
    CAP_PERFMON = 38, "Performance monitoring.";
    CAP_BPF = 39, "Privileged BPF.";
    CAP_CHECKPOINT_RESTORE = 40, "Checkpoint and restore.";
    CAP_LAST_CAP = 40, "The highest capability.";
    SECBIT_NOROOT = 1 << 0, "User id 0 gets nothing special at execve.";
    SECBIT_NOROOT_LOCKED = 1 << 1, "Locks `SECBIT_NOROOT`.";
    SECBIT_NO_SETUID_FIXUP = 1 << 2, "Changes of user ids leave capabilities alone.";
    SECBIT_NO_SETUID_FIXUP_LOCKED = 1 << 3, "Locks `SECBIT_NO_SETUID_FIXUP`.";
    SECBIT_KEEP_CAPS = 1 << 4, "Permitted capabilities survive leaving user id 0.";
    SECBIT_KEEP_CAPS_LOCKED = 1 << 5, "Locks `SECBIT_KEEP_CAPS`.";
    SECBIT_NO_CAP_AMBIENT_RAISE = 1 << 6, "Ambient capabilities cannot be raised.";
    SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED = 1 << 7, "Locks `SECBIT_NO_CAP_AMBIENT_RAISE`.";
    SECBIT_EXEC_RESTRICT_FILE = 1 << 8, "User space asks `AT_EXECVE_CHECK` before running a script.";
    SECBIT_EXEC_RESTRICT_FILE_LOCKED = 1 << 9, "Locks `SECBIT_EXEC_RESTRICT_FILE`.";
    SECBIT_EXEC_DENY_INTERACTIVE = 1 << 10, "User space refuses interactive interpreters.";
    SECBIT_EXEC_DENY_INTERACTIVE_LOCKED = 1 << 11, "Locks `SECBIT_EXEC_DENY_INTERACTIVE`.";
}

// Limits

constants! { usize:
    PATH_MAX = 4096, "Bytes of a path, including the NUL.";
    NAME_MAX = 255, "Bytes of one component.";
    XATTR_NAME_MAX = 255, "Bytes of the name of an extended attribute.";
    XATTR_SIZE_MAX = 65536, "Bytes of the value of an extended attribute.";
    XATTR_LIST_MAX = 65536, "Bytes of a list of extended attributes.";
    NGROUPS_MAX = 65536, "Supplementary groups of one credential.";
}

constants! { u32:
    MAXSYMLINKS = 40, "Symbolic links followed in one path.";
    OVERFLOWUID = 65534, "Shown for a user id without a mapping.";
    OVERFLOWGID = 65534, "Shown for a group id without a mapping.";
    UTIME_NOW = 0x3fff_ffff, "utimensat, in place of nanoseconds: the current time.";
    UTIME_OMIT = 0x3fff_fffe, "utimensat, in place of nanoseconds: leave the time alone.";
    INVALID_ID = u32::MAX, "An id without a mapping (the kernel's `INVALID_UID`, `INVALID_GID`).";
}

/// A point in time: seconds since 1970 and nanoseconds (0 to 999,999,999, or `UTIME_NOW`/`UTIME_OMIT` for utimensat).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timespec {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub sec: i64,
    /// Nanoseconds within the second.
    pub nsec: u32,
}

impl Timespec {
    /// A point in time.
    pub const fn new(sec: i64, nsec: u32) -> Timespec {
        Timespec { sec, nsec }
    }
}

/// What stat(2) reports. Ids are those of the caller's user namespace.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stat {
    /// Device of the filesystem.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Number of names.
    pub nlink: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device that a device file stands for.
    pub rdev: u64,
    /// Size in bytes.
    pub size: i64,
    /// Preferred I/O size in bytes.
    pub blksize: i64,
    /// Allocated units of 512 bytes.
    pub blocks: i64,
    /// Time of the last access.
    pub atime: Timespec,
    /// Time of the last change of the contents.
    pub mtime: Timespec,
    /// Time of the last change of the inode.
    pub ctime: Timespec,
}

/// A time stamp in [`Statx`].
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, IntoBytes, Immutable)]
pub struct StatxTimestamp {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub sec: i64,
    /// Nanoseconds within the second.
    pub nsec: u32,
    /// Zero.
    pub reserved: i32,
}

impl From<Timespec> for StatxTimestamp {
    fn from(time: Timespec) -> Self {
        StatxTimestamp { sec: time.sec, nsec: time.nsec, reserved: 0 }
    }
}

impl From<StatxTimestamp> for Timespec {
    fn from(time: StatxTimestamp) -> Self {
        Timespec { sec: time.sec, nsec: time.nsec }
    }
}

/// What statx(2) reports, in the layout of the system call, which has no padding: that it is bytes throughout is checked where
/// it is compiled. Fields whose bit is not in `mask` may be zero.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, IntoBytes, Immutable)]
pub struct Statx {
    /// Which fields are filled (`STATX_*`).
    pub mask: u32,
    /// Preferred I/O size in bytes.
    pub blksize: u32,
    /// Attributes (`STATX_ATTR_*`).
    pub attributes: u64,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Type and permission bits.
    pub mode: u16,
    /// Zero.
    pub spare0: u16,
    /// Inode number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated units of 512 bytes.
    pub blocks: u64,
    /// Which bits of `attributes` the filesystem supports.
    pub attributes_mask: u64,
    /// Time of the last access.
    pub atime: StatxTimestamp,
    /// Time of creation.
    pub btime: StatxTimestamp,
    /// Time of the last change of the inode.
    pub ctime: StatxTimestamp,
    /// Time of the last change of the contents.
    pub mtime: StatxTimestamp,
    /// Major number of the device that a device file stands for.
    pub rdev_major: u32,
    /// Minor number of the device that a device file stands for.
    pub rdev_minor: u32,
    /// Major number of the device of the filesystem.
    pub dev_major: u32,
    /// Minor number of the device of the filesystem.
    pub dev_minor: u32,
    /// Mount id.
    pub mnt_id: u64,
    /// Memory alignment of direct I/O.
    pub dio_mem_align: u32,
    /// File-offset alignment of direct I/O.
    pub dio_offset_align: u32,
    /// Subvolume.
    pub subvol: u64,
    /// Smallest atomic write in bytes.
    pub atomic_write_unit_min: u32,
    /// Largest atomic write in bytes.
    pub atomic_write_unit_max: u32,
    /// Most segments of an atomic write.
    pub atomic_write_segments_max: u32,
    /// File-offset alignment of direct reads.
    pub dio_read_offset_align: u32,
    /// Largest optimised atomic write in bytes.
    pub atomic_write_unit_max_opt: u32,
    /// Zero.
    pub spare2: u32,
    /// Zero.
    pub spare3: [u64; 8],
}

/// Fills an array from its start with the bytes of one value after the other.
macro_rules! store {
    ($to:ident: $($value:expr),* $(,)?) => {
        let mut at = 0;
        $(
            let bytes = $value.to_ne_bytes();
            $to[at..at + bytes.len()].copy_from_slice(&bytes);
            at += bytes.len();
        )*
        debug_assert!(at <= $to.len());
    };
}

impl Stat {
    /// Bytes of `struct stat`.
    pub const SIZE: usize = 144;

    /// The x86-64 `struct stat`, as the system call stores it: every byte is set, reserved ones to zero.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Stat::SIZE] {
        let mut to = [0; Stat::SIZE];
        let nsec = |time: Timespec| u64::from(time.nsec);
        store! { to:
            self.dev, self.ino, self.nlink, self.mode, self.uid, self.gid, 0_u32, self.rdev, self.size, self.blksize,
            self.blocks, self.atime.sec, nsec(self.atime), self.mtime.sec, nsec(self.mtime), self.ctime.sec,
            nsec(self.ctime),
        }
        to
    }
}

impl Statx {
    /// Bytes of `struct statx`.
    pub const SIZE: usize = 256;

    /// `struct statx`, as the system call stores it: every byte is set, reserved ones to zero. One piece, for one copy (S7).
    #[inline]
    pub fn as_bytes(&self) -> &[u8; Statx::SIZE] {
        transmute_ref!(self)
    }

    /// [`as_bytes`](Self::as_bytes), by value.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Statx::SIZE] {
        *self.as_bytes()
    }
}

/// The argument of openat2(2).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct OpenHow {
    /// `O_*`; unknown bits are an error.
    pub flags: u64,
    /// Mode of a file that is created.
    pub mode: u64,
    /// `RESOLVE_*`.
    pub resolve: u64,
}

impl OpenHow {
    /// To open with these `O_*`.
    ///
    /// ```
    /// use rcuwalk::uapi::{O_DIRECTORY, RESOLVE_BENEATH};
    /// use rcuwalk::OpenHow;
    ///
    /// let how = OpenHow::new(O_DIRECTORY).with_resolve(RESOLVE_BENEATH);
    /// assert_eq!((how.flags, how.mode, how.resolve), (0o200000, 0, 8));
    /// ```
    pub fn new(flags: impl Into<OFlags>) -> OpenHow {
        OpenHow { flags: flags.into().bits() as u64, mode: 0, resolve: 0 }
    }

    setters! {
        with_flags flags: u64;
        with_mode mode: u64;
    }

    flag_setters! {
        with_resolve resolve: ResolveFlags;
    }
}

/// One entry of a directory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Dirent {
    /// Inode number.
    pub ino: u64,
    /// Position to seek to in order to continue behind this entry.
    pub off: i64,
    /// Type of the object (`DT_*`).
    pub kind: u8,
    /// Name, without a NUL.
    pub name: Vec<u8>,
}

const _: () = {
    assert!(size_of::<StatxTimestamp>() == 16, "no padding");
    assert!(size_of::<OpenHow>() == 24, "OPEN_HOW_SIZE_VER0");
    assert!(size_of::<Stat>() == 120, "dev to ctime without the reserved tail of the system call");
    assert!(std::mem::offset_of!(Stat, rdev) == 40);
    assert!(std::mem::offset_of!(Stat, atime) == 72);
    assert!(std::mem::offset_of!(Stat, ctime) == 104);
};

/// Asserts the offset of each field of [`Statx`], and that the field ends where the next one begins.
macro_rules! statx_layout {
    ($($field:ident @ $offset:literal + $size:literal,)*) => {
        const _: () = {
            let mut end = 0;
            $(
                assert!(std::mem::offset_of!(Statx, $field) == $offset);
                assert!(end == $offset, "no padding before this field");
                end += $size;
            )*
            assert!(end == 256 && size_of::<Statx>() == 256, "no padding behind the last field");
        };
    };
}

statx_layout! {
    mask @ 0x00 + 4, blksize @ 0x04 + 4, attributes @ 0x08 + 8, nlink @ 0x10 + 4, uid @ 0x14 + 4, gid @ 0x18 + 4,
    mode @ 0x1c + 2, spare0 @ 0x1e + 2, ino @ 0x20 + 8, size @ 0x28 + 8, blocks @ 0x30 + 8,
    attributes_mask @ 0x38 + 8, atime @ 0x40 + 16, btime @ 0x50 + 16, ctime @ 0x60 + 16, mtime @ 0x70 + 16,
    rdev_major @ 0x80 + 4, rdev_minor @ 0x84 + 4, dev_major @ 0x88 + 4, dev_minor @ 0x8c + 4, mnt_id @ 0x90 + 8,
    dio_mem_align @ 0x98 + 4, dio_offset_align @ 0x9c + 4, subvol @ 0xa0 + 8, atomic_write_unit_min @ 0xa8 + 4,
    atomic_write_unit_max @ 0xac + 4, atomic_write_segments_max @ 0xb0 + 4, dio_read_offset_align @ 0xb4 + 4,
    atomic_write_unit_max_opt @ 0xb8 + 4, spare2 @ 0xbc + 4, spare3 @ 0xc0 + 64,
}

/// The device number that stat(2) shows and mknod(2) takes: 12 bits of major, 20 bits of minor.
///
/// Kernel: `new_encode_dev()`.
///
/// ```
/// use rcuwalk::uapi::{major, makedev, minor};
/// let dev = makedev(8, 0x12345);
/// assert_eq!(dev, 0x1230_0845);
/// assert_eq!((major(dev), minor(dev)), (8, 0x12345));
/// ```
#[inline]
pub const fn makedev(major: u32, minor: u32) -> u64 {
    ((minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xfff00) << 12)) as u64
}

/// The major number of a device number.
#[inline]
pub const fn major(dev: u64) -> u32 {
    ((dev >> 8) & 0xfff) as u32
}

/// The minor number of a device number.
#[inline]
pub const fn minor(dev: u64) -> u32 {
    ((dev & 0xff) | ((dev >> 12) & 0xfff00)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_round_trip() {
        for (maj, min) in [(0, 0), (1, 3), (8, 1), (259, 255), (259, 256), (0xfff, 0xfffff)] {
            let dev = makedev(maj, min);
            assert_eq!((major(dev), minor(dev)), (maj, min));
            assert!(dev <= u64::from(u32::MAX), "mknod takes 32 bits");
        }
        assert_eq!(makedev(1, 3), 0x103, "/dev/null");
    }

    #[test]
    fn each_mode_has_one_type() {
        let types = [S_IFREG, S_IFDIR, S_IFLNK, S_IFCHR, S_IFBLK, S_IFIFO, S_IFSOCK];
        let dts = [DT_REG, DT_DIR, DT_LNK, DT_CHR, DT_BLK, DT_FIFO, DT_SOCK];
        for (ty, dt) in types.into_iter().zip(dts) {
            let mode = ty | 0o7777;
            let hits = [s_isreg, s_isdir, s_islnk, s_ischr, s_isblk, s_isfifo, s_issock].map(|is| is(mode));
            assert_eq!(hits.iter().filter(|&&hit| hit).count(), 1);
            assert_eq!(mode_to_dt(mode), dt);
        }
    }
}
