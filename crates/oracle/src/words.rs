//! Flag words and other named numbers: `"O_RDWR|O_CREAT|0x40000000"` in a row, a number in a call.
//!
//! The values are libc's (or, where libc has none yet, the kernel's), not those of the engine under test.

use serde::{Deserialize, Serialize};

use crate::args::Arg;
use crate::read::{Node, Read, alternatives, quote};
use crate::sys::Frame;

/// Parses `A|B|0x10` with the names of `table`.
fn parse(node: Node<'_>, table: &[(&str, u64)]) -> Read<u64> {
    if node.is_int() {
        return Ok(node.int()? as u64);
    }
    let mut word = 0;
    for part in node.str()?.split('|').map(str::trim) {
        word |= match table.iter().find(|(name, _)| *name == part) {
            Some((_, value)) => *value,
            None => number(part).ok_or_else(|| {
                let names: Vec<&str> = table.iter().map(|(name, _)| *name).collect();
                node.problem(format!("unknown name `{part}`{}", alternatives(part, &names)))
            })?,
        };
    }
    Ok(word)
}

/// A number in decimal, `0x` hexadecimal, `0o` or leading-zero octal.
pub fn number(text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x") {
        u64::from_str_radix(hex, 16).ok()
    } else if let Some(octal) = text.strip_prefix("0o") {
        u64::from_str_radix(octal, 8).ok()
    } else if text.len() > 1 && text.starts_with('0') {
        u64::from_str_radix(text, 8).ok()
    } else {
        text.parse().ok()
    }
}

/// Prints `word` with the names of `table`: single bits and multi-bit names largest first, the rest in hexadecimal.
fn print(word: u64, table: &[(&str, u64)]) -> String {
    if let Some((name, _)) = table.iter().find(|(_, value)| *value == word) {
        return (*name).to_owned();
    }
    let mut names: Vec<&(&str, u64)> = table.iter().filter(|(_, v)| *v != 0).collect();
    names.sort_by_key(|(_, v)| std::cmp::Reverse(v.count_ones()));
    let mut rest = word;
    let mut out = Vec::new();
    for (name, value) in names {
        if rest & value == *value {
            rest &= !value;
            out.push((*name).to_owned());
        }
    }
    if rest != 0 {
        out.push(format!("{rest:#x}"));
    }
    if out.is_empty() { "0".to_owned() } else { out.join("|") }
}

macro_rules! words {
    ($($(#[$doc:meta])* $ty:ident $kind:literal { $($name:ident = $value:expr),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
            pub struct $ty(
                /// The word itself.
                pub u64,
            );

            impl $ty {
                /// The names a row may use, with their values.
                pub const NAMES: &'static [(&'static str, u64)] = &[$((stringify!($name), $value as u64)),*];
            }

            impl Arg for $ty {
                const KIND: &'static str = $kind;

                fn read(node: Node<'_>) -> Read<$ty> {
                    parse(node, $ty::NAMES).map($ty)
                }

                fn print(&self) -> String {
                    quote(&print(self.0, $ty::NAMES))
                }

                fn lower(&self, frame: &mut Frame) {
                    frame.int(self.0);
                }
            }
        )*
    };
}

words! {
    /// Flags of open(2), openat(2), openat2(2).
    OpenFlags "open flags" {
        O_RDONLY = 0, O_WRONLY = 1, O_RDWR = 2, O_ACCMODE = 3, O_CREAT = libc::O_CREAT, O_EXCL = libc::O_EXCL,
        O_NOCTTY = libc::O_NOCTTY, O_TRUNC = libc::O_TRUNC, O_APPEND = libc::O_APPEND,
        O_NONBLOCK = libc::O_NONBLOCK, O_DSYNC = libc::O_DSYNC, O_ASYNC = libc::O_ASYNC,
        O_DIRECT = libc::O_DIRECT, O_LARGEFILE = 0o100000, O_DIRECTORY = libc::O_DIRECTORY,
        O_NOFOLLOW = libc::O_NOFOLLOW, O_NOATIME = libc::O_NOATIME, O_CLOEXEC = libc::O_CLOEXEC,
        O_SYNC = libc::O_SYNC, O_PATH = libc::O_PATH, O_TMPFILE = libc::O_TMPFILE, __O_TMPFILE = 0o20000000,
    }

    /// Flags of openat2(2)'s `resolve`.
    ResolveFlags "resolve flags" {
        RESOLVE_NO_XDEV = 1, RESOLVE_NO_MAGICLINKS = 2, RESOLVE_NO_SYMLINKS = 4, RESOLVE_BENEATH = 8,
        RESOLVE_IN_ROOT = 0x10, RESOLVE_CACHED = 0x20,
    }

    /// `AT_*` flags.
    AtFlags "AT_ flags" {
        AT_SYMLINK_NOFOLLOW = 0x100, AT_EACCESS = 0x200, AT_REMOVEDIR = 0x200, AT_SYMLINK_FOLLOW = 0x400,
        AT_NO_AUTOMOUNT = 0x800, AT_EMPTY_PATH = 0x1000, AT_STATX_FORCE_SYNC = 0x2000,
        AT_STATX_DONT_SYNC = 0x4000, AT_RECURSIVE = 0x8000, AT_EXECVE_CHECK = 0x10000,
        AT_HANDLE_FID = 0x200, AT_HANDLE_MNT_ID_UNIQUE = 1, AT_HANDLE_CONNECTABLE = 2,
    }

    /// Modes of access(2).
    AccessMode "access mode" { F_OK = 0, X_OK = 1, W_OK = 2, R_OK = 4 }

    /// Request mask and result mask of statx(2).
    StatxMask "statx mask" {
        STATX_TYPE = 1, STATX_MODE = 2, STATX_NLINK = 4, STATX_UID = 8, STATX_GID = 0x10, STATX_ATIME = 0x20,
        STATX_MTIME = 0x40, STATX_CTIME = 0x80, STATX_INO = 0x100, STATX_SIZE = 0x200, STATX_BLOCKS = 0x400,
        STATX_BASIC_STATS = 0x7ff, STATX_BTIME = 0x800, STATX_ALL = 0xfff, STATX_MNT_ID = 0x1000,
        STATX_DIOALIGN = 0x2000, STATX_MNT_ID_UNIQUE = 0x4000, STATX_SUBVOL = 0x8000,
        STATX_WRITE_ATOMIC = 0x10000, STATX_DIO_READ_ALIGN = 0x20000, STATX__RESERVED = 0x8000_0000_u32,
    }

    /// Attributes of statx(2).
    StatxAttributes "statx attributes" {
        STATX_ATTR_COMPRESSED = 4, STATX_ATTR_IMMUTABLE = 0x10, STATX_ATTR_APPEND = 0x20, STATX_ATTR_NODUMP = 0x40,
        STATX_ATTR_ENCRYPTED = 0x800, STATX_ATTR_AUTOMOUNT = 0x1000, STATX_ATTR_MOUNT_ROOT = 0x2000,
        STATX_ATTR_VERITY = 0x100000, STATX_ATTR_DAX = 0x200000,
    }

    /// Flags of renameat2(2).
    RenameFlags "rename flags" { RENAME_NOREPLACE = 1, RENAME_EXCHANGE = 2, RENAME_WHITEOUT = 4 }

    /// Flags of setxattr(2).
    XattrFlags "xattr flags" { XATTR_CREATE = 1, XATTR_REPLACE = 2 }

    /// Origin of lseek(2).
    Whence "lseek origin" { SEEK_SET = 0, SEEK_CUR = 1, SEEK_END = 2, SEEK_DATA = 3, SEEK_HOLE = 4 }

    /// Commands of fcntl(2) with an integer argument.
    FcntlCommand "fcntl command" {
        F_DUPFD = 0, F_GETFD = 1, F_SETFD = 2, F_GETFL = 3, F_SETFL = 4, F_DUPFD_CLOEXEC = 1030,
        F_SETSIG = 10, F_GETSIG = 11, F_DUPFD_QUERY = 1027, F_CREATED_QUERY = 1028, F_SET_RW_HINT = 1036,
    }

    /// Commands of ioctl(2) with an integer argument.
    IoctlCommand "ioctl command" { FICLONE = 0x4004_9409 }

    /// Flags of preadv2(2) and pwritev2(2).
    RwFlags "transfer flags" {
        RWF_HIPRI = 1, RWF_DSYNC = 2, RWF_SYNC = 4, RWF_NOWAIT = 8, RWF_APPEND = 0x10, RWF_NOAPPEND = 0x20,
        RWF_ATOMIC = 0x40, RWF_DONTCACHE = 0x80, RWF_NOSIGNAL = 0x100,
    }

    /// Attributes of file_setattr(2).
    XFlags "attribute flags" {
        FS_XFLAG_REALTIME = 1, FS_XFLAG_PREALLOC = 2, FS_XFLAG_IMMUTABLE = 8, FS_XFLAG_APPEND = 0x10,
        FS_XFLAG_SYNC = 0x20, FS_XFLAG_NOATIME = 0x40, FS_XFLAG_NODUMP = 0x80, FS_XFLAG_PROJINHERIT = 0x200,
        FS_XFLAG_EXTSIZE = 0x800, FS_XFLAG_EXTSZINHERIT = 0x1000, FS_XFLAG_DAX = 0x8000,
        FS_XFLAG_COWEXTSIZE = 0x10000, FS_XFLAG_HASATTR = 0x8000_0000_u32,
    }

    /// Operation of flock(2).
    FlockOperation "flock operation" { LOCK_SH = 1, LOCK_EX = 2, LOCK_NB = 4, LOCK_UN = 8 }

    /// Lock commands of fcntl(2).
    LockCommand "lock command" {
        F_GETLK = 5, F_SETLK = 6, F_SETLKW = 7, F_OFD_GETLK = 36, F_OFD_SETLK = 37, F_OFD_SETLKW = 38,
    }

    /// Kind of a lock of fcntl(2).
    LockKind "lock kind" { F_RDLCK = 0, F_WRLCK = 1, F_UNLCK = 2 }

    /// Mode of fallocate(2).
    FallocateMode "fallocate mode" {
        FALLOC_FL_KEEP_SIZE = 1, FALLOC_FL_PUNCH_HOLE = 2, FALLOC_FL_COLLAPSE_RANGE = 8, FALLOC_FL_ZERO_RANGE = 0x10,
        FALLOC_FL_INSERT_RANGE = 0x20, FALLOC_FL_UNSHARE_RANGE = 0x40, FALLOC_FL_WRITE_ZEROES = 0x80,
    }

    /// Inode flags of `FS_IOC_SETFLAGS`.
    InodeFlags "inode flags" {
        FS_SYNC_FL = 8, FS_IMMUTABLE_FL = 0x10, FS_APPEND_FL = 0x20, FS_NODUMP_FL = 0x40, FS_NOATIME_FL = 0x80,
    }

    /// Resources of setrlimit(2).
    Resource "resource" { RLIMIT_FSIZE = 1, RLIMIT_STACK = 3, RLIMIT_NPROC = 6, RLIMIT_NOFILE = 7 }

    /// Securebits of prctl(2).
    Securebits "securebits" {
        SECBIT_NOROOT = 1, SECBIT_NOROOT_LOCKED = 2, SECBIT_NO_SETUID_FIXUP = 4, SECBIT_NO_SETUID_FIXUP_LOCKED = 8,
        SECBIT_KEEP_CAPS = 0x10, SECBIT_KEEP_CAPS_LOCKED = 0x20, SECBIT_NO_CAP_AMBIENT_RAISE = 0x40,
        SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED = 0x80, SECBIT_EXEC_RESTRICT_FILE = 0x100,
        SECBIT_EXEC_RESTRICT_FILE_LOCKED = 0x200, SECBIT_EXEC_DENY_INTERACTIVE = 0x400,
        SECBIT_EXEC_DENY_INTERACTIVE_LOCKED = 0x800,
    }

    /// Flags of mount(2).
    MountFlags "mount flags" {
        MS_RDONLY = 1, MS_NOSUID = 2, MS_NODEV = 4, MS_NOEXEC = 8, MS_REMOUNT = 0x20, MS_NOSYMFOLLOW = 0x100,
        MS_NOATIME = 0x400, MS_NODIRATIME = 0x800, MS_BIND = 0x1000, MS_MOVE = 0x2000, MS_REC = 0x4000,
        MS_UNBINDABLE = 1 << 17, MS_PRIVATE = 1 << 18, MS_SLAVE = 1 << 19, MS_SHARED = 1 << 20,
        MS_RELATIME = 1 << 21, MS_STRICTATIME = 1 << 24,
    }

    /// Flags of umount2(2).
    UmountFlags "umount flags" { MNT_FORCE = 1, MNT_DETACH = 2, MNT_EXPIRE = 4, UMOUNT_NOFOLLOW = 8 }

    /// Attributes of mount_setattr(2).
    MountAttributes "mount attributes" {
        MOUNT_ATTR_RDONLY = 1, MOUNT_ATTR_NOSUID = 2, MOUNT_ATTR_NODEV = 4, MOUNT_ATTR_NOEXEC = 8,
        MOUNT_ATTR_NOATIME = 0x10, MOUNT_ATTR_STRICTATIME = 0x20, MOUNT_ATTR__ATIME = 0x70,
        MOUNT_ATTR_NODIRATIME = 0x80, MOUNT_ATTR_IDMAP = 0x100000, MOUNT_ATTR_NOSYMFOLLOW = 0x200000,
    }

    /// Flags of open_tree(2).
    OpenTreeFlags "open_tree flags" {
        OPEN_TREE_CLONE = 1, OPEN_TREE_CLOEXEC = libc::O_CLOEXEC, AT_EMPTY_PATH = 0x1000, AT_RECURSIVE = 0x8000,
        AT_SYMLINK_NOFOLLOW = 0x100, AT_NO_AUTOMOUNT = 0x800,
    }

    /// Request mask of statmount(2).
    StatmountMask "statmount mask" {
        STATMOUNT_SB_BASIC = 1, STATMOUNT_MNT_BASIC = 2, STATMOUNT_PROPAGATE_FROM = 4, STATMOUNT_MNT_ROOT = 8,
        STATMOUNT_MNT_POINT = 0x10, STATMOUNT_FS_TYPE = 0x20, STATMOUNT_MNT_NS_ID = 0x40,
        STATMOUNT_MNT_OPTS = 0x80, STATMOUNT_FS_SUBTYPE = 0x100, STATMOUNT_SB_SOURCE = 0x200,
        STATMOUNT_OPT_ARRAY = 0x400, STATMOUNT_OPT_SEC_ARRAY = 0x800, STATMOUNT_SUPPORTED_MASK = 0x1000,
        STATMOUNT_MNT_UIDMAP = 0x2000, STATMOUNT_MNT_GIDMAP = 0x4000,
    }

    /// Flags of listmount(2).
    ListmountFlags "listmount flags" { LISTMOUNT_REVERSE = 1 }

    /// Flags of move_mount(2).
    MoveMountFlags "move_mount flags" {
        MOVE_MOUNT_F_SYMLINKS = 1, MOVE_MOUNT_F_EMPTY_PATH = 4, MOVE_MOUNT_T_SYMLINKS = 0x10,
        MOVE_MOUNT_T_EMPTY_PATH = 0x40,
    }

    /// Flags of unshare(2).
    UnshareFlags "unshare flags" {
        CLONE_FS = 0x200, CLONE_FILES = 0x400, CLONE_NEWNS = 0x20000, CLONE_NEWUSER = 0x1000_0000,
    }

    /// Flags of clone(2): the process that results shares no memory.
    CloneFlags "clone flags" {
        CLONE_FS = 0x200, CLONE_FILES = 0x400, CLONE_NEWNS = 0x20000, CLONE_NEWUSER = 0x1000_0000,
        CLONE_SIGHAND = 0x800, CLONE_THREAD = 0x10000,
    }

    /// A file of `/proc/PID`, or of `/proc/PID/ns`.
    ProcFile "proc file" { ns_user = 0, ns_mnt = 1, uid_map = 2, gid_map = 3, setgroups = 4 }

    /// A C library, which decides how a program is searched for.
    CLibrary "C library" { glibc = 0, musl = 1 }

    /// One capability.
    Capability "capability number" {
        CAP_CHOWN = 0, CAP_DAC_OVERRIDE = 1, CAP_DAC_READ_SEARCH = 2, CAP_FOWNER = 3, CAP_FSETID = 4, CAP_KILL = 5,
        CAP_SETGID = 6, CAP_SETUID = 7, CAP_SETPCAP = 8, CAP_LINUX_IMMUTABLE = 9, CAP_NET_BIND_SERVICE = 10,
        CAP_NET_BROADCAST = 11, CAP_NET_ADMIN = 12, CAP_NET_RAW = 13, CAP_IPC_LOCK = 14, CAP_IPC_OWNER = 15,
        CAP_SYS_MODULE = 16, CAP_SYS_RAWIO = 17, CAP_SYS_CHROOT = 18, CAP_SYS_PTRACE = 19, CAP_SYS_PACCT = 20,
        CAP_SYS_ADMIN = 21, CAP_SYS_BOOT = 22, CAP_SYS_NICE = 23, CAP_SYS_RESOURCE = 24, CAP_SYS_TIME = 25,
        CAP_SYS_TTY_CONFIG = 26, CAP_MKNOD = 27, CAP_LEASE = 28, CAP_AUDIT_WRITE = 29, CAP_AUDIT_CONTROL = 30,
        CAP_SETFCAP = 31, CAP_MAC_OVERRIDE = 32, CAP_MAC_ADMIN = 33, CAP_SYSLOG = 34, CAP_WAKE_ALARM = 35,
        CAP_BLOCK_SUSPEND = 36, CAP_AUDIT_READ = 37, CAP_PERFMON = 38, CAP_BPF = 39, CAP_CHECKPOINT_RESTORE = 40,
    }
}

/// A file mode: `"0644"` (always octal), with an optional type: `"S_IFCHR|0644"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mode(
    /// Type and permission bits.
    pub u64,
);

/// File types as they stand in a mode.
const TYPES: &[(&str, u64)] = &[
    ("S_IFIFO", 0o010000),
    ("S_IFCHR", 0o020000),
    ("S_IFDIR", 0o040000),
    ("S_IFBLK", 0o060000),
    ("S_IFREG", 0o100000),
    ("S_IFLNK", 0o120000),
    ("S_IFSOCK", 0o140000),
];

impl Mode {
    /// Parses octal digits and type names joined by `|`.
    pub fn parse(text: &str) -> Result<Mode, String> {
        let mut mode = 0;
        for part in text.split('|').map(str::trim) {
            mode |= match TYPES.iter().find(|(name, _)| *name == part) {
                Some((_, value)) => *value,
                None => u64::from_str_radix(part, 8).map_err(|_| {
                    let names: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
                    format!("`{part}` is not an octal mode{}", alternatives(part, &names))
                })?,
            };
        }
        Ok(Mode(mode))
    }
}

impl Arg for Mode {
    const KIND: &'static str = "mode";

    fn read(node: Node<'_>) -> Read<Mode> {
        Mode::parse(node.str()?).map_err(|message| node.problem(message))
    }

    fn print(&self) -> String {
        let kind = TYPES.iter().find(|(_, value)| *value == self.0 & 0o170000);
        match kind {
            Some((name, value)) => format!("\"{name}|{:04o}\"", self.0 & !value),
            None => format!("\"{:04o}\"", self.0),
        }
    }

    fn lower(&self, frame: &mut Frame) {
        frame.int(self.0);
    }
}

/// A set of capabilities: `"CAP_FOWNER|CAP_CHOWN"`, `"full"` (all that the running system has) or `"none"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapSet(
    /// One bit per capability; all ones stands for "full".
    pub u64,
);

impl CapSet {
    /// Every capability of the running system.
    pub const FULL: CapSet = CapSet(u64::MAX);
    /// No capability.
    pub const NONE: CapSet = CapSet(0);

    /// Prints the set by names.
    pub fn text(self) -> String {
        match self {
            CapSet::FULL => "full".to_owned(),
            CapSet::NONE => "none".to_owned(),
            CapSet(bits) if bits.count_ones() > 12 => format!("{bits:#x}"),
            CapSet(bits) => {
                let named =
                    |i: u64| Capability::NAMES.iter().find(|(_, v)| *v == i).map(|(n, _)| (*n).to_owned());
                let one = |i: u64| named(i).unwrap_or_else(|| format!("{:#x}", 1_u64 << i));
                (0..64).filter(|i| bits >> i & 1 == 1).map(one).collect::<Vec<_>>().join("|")
            }
        }
    }
}

impl Arg for CapSet {
    const KIND: &'static str = "capability set";

    fn read(node: Node<'_>) -> Read<CapSet> {
        match node.str()? {
            "full" => Ok(CapSet::FULL),
            "none" => Ok(CapSet::NONE),
            text => {
                let mut bits = 0;
                for part in text.split('|').map(str::trim) {
                    bits |= match Capability::NAMES.iter().find(|(name, _)| *name == part) {
                        Some((_, bit)) => 1 << bit,
                        None => number(part).ok_or_else(|| {
                            let mut names: Vec<&str> = Capability::NAMES.iter().map(|(n, _)| *n).collect();
                            names.extend(["full", "none"]);
                            node.problem(format!("unknown capability `{part}`{}", alternatives(part, &names)))
                        })?,
                    };
                }
                Ok(CapSet(bits))
            }
        }
    }

    fn print(&self) -> String {
        quote(&self.text())
    }

    fn lower(&self, frame: &mut Frame) {
        frame.int(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_print_as_they_are_read() {
        assert_eq!(print(libc::O_TMPFILE as u64 | 2, OpenFlags::NAMES), "O_TMPFILE|O_RDWR");
        assert_eq!(print(0x4000_0000, OpenFlags::NAMES), "0x40000000");
        assert_eq!(print(0, OpenFlags::NAMES), "O_RDONLY");
    }

    #[test]
    fn a_mode_is_always_octal() {
        assert_eq!(Mode::parse("644"), Ok(Mode(0o644)));
        assert_eq!(Mode::parse("S_IFCHR|0600"), Ok(Mode(0o020600)));
        assert!(Mode::parse("0888").is_err());
    }

    #[test]
    fn capability_sets_have_names() {
        assert_eq!(CapSet(1 << 3 | 1).text(), "CAP_CHOWN|CAP_FOWNER");
        assert_eq!(CapSet::NONE.text(), "none");
    }
}
