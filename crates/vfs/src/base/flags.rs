//! Flags of the calls, as types: what a call takes in place of a raw word.
//!
//! Each type has the flags of one argument, under the name of the constant in [`uapi`] without its prefix. A call that takes
//! `impl Into<OFlags>` takes [`OFlags`] or the raw `i32`; flags of another argument do not compile. A bit without a name
//! survives ([`from_bits_retain`](OFlags::from_bits_retain)): the call decides what it says about it.
//!
//! ```
//! use rcuwalk::flags::{Access, AtFlags, OFlags, RenameFlags};
//! use rcuwalk::uapi::{AT_FDCWD, F_SETFL, O_RDONLY};
//! use rcuwalk::{Cred, Errno, Vfs};
//!
//! let root = Vfs::new()?.task(Cred::root());
//! let fd = root.open(b"/f", OFlags::CREAT | OFlags::EXCL | OFlags::WRONLY, 0o600)?;
//! assert_eq!(root.write(fd, b"hello"), Ok(5));
//! assert_eq!(root.renameat2(AT_FDCWD, b"/f", AT_FDCWD, b"/f", RenameFlags::NOREPLACE), Err(Errno::EEXIST));
//! assert_eq!(root.faccessat2(AT_FDCWD, b"/f", Access::READ_OK, AtFlags::EACCESS), Ok(()));
//! assert_eq!(root.newfstatat(AT_FDCWD, b"/f", AtFlags::from(1)), Err(Errno::EINVAL), "the call sees bits without a name");
//! assert_eq!(root.fcntl(fd, F_SETFL, OFlags::APPEND), Ok(0));
//! assert!(root.open(b"/f", O_RDONLY, 0).is_ok(), "raw words do as well");
//! # Ok::<(), Errno>(())
//! ```
//!
//! [`uapi`]: crate::uapi

use crate::base::uapi::*;

/// Declares types of flags from the constants.
macro_rules! flag_types {
    ($($(#[$doc:meta])* $name:ident: $raw:ty { $($flag:ident = $constant:ident;)* })*) => {$(
        bitflags::bitflags! {
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
            pub struct $name: $raw {
                $(#[doc = concat!("[`", stringify!($constant), "`](crate::uapi::", stringify!($constant), ").")]
                const $flag = $constant;)*
            }
        }

        impl From<$raw> for $name {
            #[inline]
            fn from(bits: $raw) -> $name {
                $name::from_bits_retain(bits)
            }
        }

        impl From<$name> for $raw {
            #[inline]
            fn from(flags: $name) -> $raw {
                flags.bits()
            }
        }
    )*};
}

flag_types! {
    /// How [`Task::open`](crate::Task::open) and its like open a file, and what it then does.
    OFlags: i32 {
        RDONLY = O_RDONLY;
        WRONLY = O_WRONLY;
        RDWR = O_RDWR;
        CREAT = O_CREAT;
        EXCL = O_EXCL;
        NOCTTY = O_NOCTTY;
        TRUNC = O_TRUNC;
        APPEND = O_APPEND;
        NONBLOCK = O_NONBLOCK;
        DSYNC = O_DSYNC;
        ASYNC = O_ASYNC;
        DIRECT = O_DIRECT;
        LARGEFILE = O_LARGEFILE;
        DIRECTORY = O_DIRECTORY;
        NOFOLLOW = O_NOFOLLOW;
        NOATIME = O_NOATIME;
        CLOEXEC = O_CLOEXEC;
        SYNC = O_SYNC;
        PATH = O_PATH;
        TMPFILE = O_TMPFILE;
    }

    /// Flags of a descriptor, for `F_SETFD` of [`Task::fcntl`](crate::Task::fcntl).
    FdFlags: i32 {
        CLOEXEC = FD_CLOEXEC;
    }

    /// Where the walk of [`Task::openat2`](crate::Task::openat2) may lead.
    ResolveFlags: u64 {
        NO_XDEV = RESOLVE_NO_XDEV;
        NO_MAGICLINKS = RESOLVE_NO_MAGICLINKS;
        NO_SYMLINKS = RESOLVE_NO_SYMLINKS;
        BENEATH = RESOLVE_BENEATH;
        IN_ROOT = RESOLVE_IN_ROOT;
        CACHED = RESOLVE_CACHED;
    }

    /// What [`Task::name_to_handle_at`](crate::Task::name_to_handle_at) makes a handle of.
    HandleFlags: i32 {
        SYMLINK_FOLLOW = AT_SYMLINK_FOLLOW;
        EMPTY_PATH = AT_EMPTY_PATH;
        FID = AT_HANDLE_FID;
        MNT_ID_UNIQUE = AT_HANDLE_MNT_ID_UNIQUE;
        CONNECTABLE = AT_HANDLE_CONNECTABLE;
    }

    /// What [`Task::unshare`](crate::Task::unshare) gives a task of its own.
    UnshareFlags: u64 {
        FS = CLONE_FS;
        FILES = CLONE_FILES;
        NEWNS = CLONE_NEWNS;
        NEWUSER = CLONE_NEWUSER;
        THREAD = CLONE_THREAD;
        SIGHAND = CLONE_SIGHAND;
        VM = CLONE_VM;
    }

    /// Flags of the calls relative to a directory descriptor; each call says which of them it takes.
    AtFlags: i32 {
        SYMLINK_NOFOLLOW = AT_SYMLINK_NOFOLLOW;
        EACCESS = AT_EACCESS;
        REMOVEDIR = AT_REMOVEDIR;
        SYMLINK_FOLLOW = AT_SYMLINK_FOLLOW;
        NO_AUTOMOUNT = AT_NO_AUTOMOUNT;
        EMPTY_PATH = AT_EMPTY_PATH;
        STATX_FORCE_SYNC = AT_STATX_FORCE_SYNC;
        STATX_DONT_SYNC = AT_STATX_DONT_SYNC;
        RECURSIVE = AT_RECURSIVE;
        EXECVE_CHECK = AT_EXECVE_CHECK;
    }

    /// What [`Task::access`](crate::Task::access) and its like ask.
    Access: i32 {
        EXISTS = F_OK;
        EXEC_OK = X_OK;
        WRITE_OK = W_OK;
        READ_OK = R_OK;
    }

    /// What [`Task::statx`](crate::Task::statx) is to report.
    StatxFlags: u32 {
        TYPE = STATX_TYPE;
        MODE = STATX_MODE;
        NLINK = STATX_NLINK;
        UID = STATX_UID;
        GID = STATX_GID;
        ATIME = STATX_ATIME;
        MTIME = STATX_MTIME;
        CTIME = STATX_CTIME;
        INO = STATX_INO;
        SIZE = STATX_SIZE;
        BLOCKS = STATX_BLOCKS;
        BASIC_STATS = STATX_BASIC_STATS;
        BTIME = STATX_BTIME;
        MNT_ID = STATX_MNT_ID;
        DIOALIGN = STATX_DIOALIGN;
        MNT_ID_UNIQUE = STATX_MNT_ID_UNIQUE;
        SUBVOL = STATX_SUBVOL;
        WRITE_ATOMIC = STATX_WRITE_ATOMIC;
        DIO_READ_ALIGN = STATX_DIO_READ_ALIGN;
    }

    /// How [`Task::renameat2`](crate::Task::renameat2) treats the new name.
    RenameFlags: u32 {
        NOREPLACE = RENAME_NOREPLACE;
        EXCHANGE = RENAME_EXCHANGE;
        WHITEOUT = RENAME_WHITEOUT;
    }

    /// What [`Task::setxattr`](crate::Task::setxattr) and its like demand of the attribute.
    XattrFlags: i32 {
        CREATE = XATTR_CREATE;
        REPLACE = XATTR_REPLACE;
    }

    /// What [`Task::fallocate`](crate::Task::fallocate) does with the range.
    FallocateFlags: i32 {
        KEEP_SIZE = FALLOC_FL_KEEP_SIZE;
        PUNCH_HOLE = FALLOC_FL_PUNCH_HOLE;
        COLLAPSE_RANGE = FALLOC_FL_COLLAPSE_RANGE;
        ZERO_RANGE = FALLOC_FL_ZERO_RANGE;
        INSERT_RANGE = FALLOC_FL_INSERT_RANGE;
        UNSHARE_RANGE = FALLOC_FL_UNSHARE_RANGE;
        WRITE_ZEROES = FALLOC_FL_WRITE_ZEROES;
    }

    /// How [`Task::preadv2`](crate::Task::preadv2) reads and [`Task::pwritev2`](crate::Task::pwritev2) writes.
    ReadWriteFlags: i32 {
        HIPRI = RWF_HIPRI;
        DSYNC = RWF_DSYNC;
        SYNC = RWF_SYNC;
        NOWAIT = RWF_NOWAIT;
        APPEND = RWF_APPEND;
        NOAPPEND = RWF_NOAPPEND;
        ATOMIC = RWF_ATOMIC;
        DONTCACHE = RWF_DONTCACHE;
        NOSIGNAL = RWF_NOSIGNAL;
    }

    /// Which lock [`Task::flock`](crate::Task::flock) takes or gives back.
    FlockOperation: i32 {
        SH = LOCK_SH;
        EX = LOCK_EX;
        NB = LOCK_NB;
        UN = LOCK_UN;
    }

    /// What [`Task::mount`](crate::Task::mount) does, and what the mount forbids.
    MountFlags: u64 {
        RDONLY = MS_RDONLY;
        NOSUID = MS_NOSUID;
        NODEV = MS_NODEV;
        NOEXEC = MS_NOEXEC;
        SYNCHRONOUS = MS_SYNCHRONOUS;
        REMOUNT = MS_REMOUNT;
        MANDLOCK = MS_MANDLOCK;
        DIRSYNC = MS_DIRSYNC;
        NOSYMFOLLOW = MS_NOSYMFOLLOW;
        NOATIME = MS_NOATIME;
        NODIRATIME = MS_NODIRATIME;
        BIND = MS_BIND;
        MOVE = MS_MOVE;
        REC = MS_REC;
        SILENT = MS_SILENT;
        POSIXACL = MS_POSIXACL;
        UNBINDABLE = MS_UNBINDABLE;
        PRIVATE = MS_PRIVATE;
        SLAVE = MS_SLAVE;
        SHARED = MS_SHARED;
        RELATIME = MS_RELATIME;
        STRICTATIME = MS_STRICTATIME;
        LAZYTIME = MS_LAZYTIME;
    }

    /// What [`Task::mount_setattr`](crate::Task::mount_setattr) sets and clears.
    MountAttrFlags: u64 {
        RDONLY = MOUNT_ATTR_RDONLY;
        NOSUID = MOUNT_ATTR_NOSUID;
        NODEV = MOUNT_ATTR_NODEV;
        NOEXEC = MOUNT_ATTR_NOEXEC;
        NOATIME = MOUNT_ATTR_NOATIME;
        STRICTATIME = MOUNT_ATTR_STRICTATIME;
        ATIME = MOUNT_ATTR__ATIME;
        NODIRATIME = MOUNT_ATTR_NODIRATIME;
        IDMAP = MOUNT_ATTR_IDMAP;
        NOSYMFOLLOW = MOUNT_ATTR_NOSYMFOLLOW;
    }

    /// How [`Task::umount2`](crate::Task::umount2) unmounts.
    UnmountFlags: i32 {
        FORCE = MNT_FORCE;
        DETACH = MNT_DETACH;
        EXPIRE = MNT_EXPIRE;
        NOFOLLOW = UMOUNT_NOFOLLOW;
    }

    /// What [`Task::open_tree`](crate::Task::open_tree) opens.
    OpenTreeFlags: i32 {
        CLONE = OPEN_TREE_CLONE;
        CLOEXEC = OPEN_TREE_CLOEXEC;
        RECURSIVE = AT_RECURSIVE;
        EMPTY_PATH = AT_EMPTY_PATH;
        SYMLINK_NOFOLLOW = AT_SYMLINK_NOFOLLOW;
        NO_AUTOMOUNT = AT_NO_AUTOMOUNT;
    }

    /// What [`Task::statmount`](crate::Task::statmount) is to report.
    StatmountFlags: u64 {
        SB_BASIC = STATMOUNT_SB_BASIC;
        MNT_BASIC = STATMOUNT_MNT_BASIC;
        PROPAGATE_FROM = STATMOUNT_PROPAGATE_FROM;
        MNT_ROOT = STATMOUNT_MNT_ROOT;
        MNT_POINT = STATMOUNT_MNT_POINT;
        FS_TYPE = STATMOUNT_FS_TYPE;
        MNT_NS_ID = STATMOUNT_MNT_NS_ID;
        MNT_OPTS = STATMOUNT_MNT_OPTS;
        FS_SUBTYPE = STATMOUNT_FS_SUBTYPE;
        SB_SOURCE = STATMOUNT_SB_SOURCE;
        OPT_ARRAY = STATMOUNT_OPT_ARRAY;
        OPT_SEC_ARRAY = STATMOUNT_OPT_SEC_ARRAY;
        SUPPORTED_MASK = STATMOUNT_SUPPORTED_MASK;
        MNT_UIDMAP = STATMOUNT_MNT_UIDMAP;
        MNT_GIDMAP = STATMOUNT_MNT_GIDMAP;
    }

    /// How [`Task::listmount`](crate::Task::listmount) lists.
    ListmountFlags: u32 {
        REVERSE = LISTMOUNT_REVERSE;
    }

    /// How [`Task::move_mount`](crate::Task::move_mount) reads its two paths.
    MoveMountFlags: u32 {
        F_SYMLINKS = MOVE_MOUNT_F_SYMLINKS;
        F_AUTOMOUNTS = MOVE_MOUNT_F_AUTOMOUNTS;
        F_EMPTY_PATH = MOVE_MOUNT_F_EMPTY_PATH;
        T_SYMLINKS = MOVE_MOUNT_T_SYMLINKS;
        T_AUTOMOUNTS = MOVE_MOUNT_T_AUTOMOUNTS;
        T_EMPTY_PATH = MOVE_MOUNT_T_EMPTY_PATH;
    }
}
