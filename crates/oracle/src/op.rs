//! The calls a row can make: one table that says how each is written, how it reaches the kernel and what it answers.

use serde::{Deserialize, Serialize};

use crate::args::{
    Arg, Attributes, CapRoom, CapSets, Data, Dev, Fd, Fsxattr, Handle, Hint, How, Id, IdList, IdMap, Int,
    Limit, LockRange, Mem, MountAttr, MountRequest, NO_KEY, Name, Offset, Pieces, Room, Rooms, SetFlags,
    SplitOffset, StatRoom, StatxRoom, Struct, ThreeIds, Times, Vector, XattrArgs, XattrRoom,
};
use crate::need::Need;
use crate::outcome::Kind;
use crate::read::{Problem, Read, Table, alternatives};
use crate::sys::{Frame, Nr, nr};
use crate::words::{
    AccessMode, AtFlags, CLibrary, Capability, CloneFlags, FallocateMode, FcntlCommand, FlockOperation,
    IoctlCommand, ListmountFlags, LockCommand, Mode, MountFlags, MoveMountFlags, OpenFlags, OpenTreeFlags,
    ProcFile, RenameFlags, Resource, RwFlags, Securebits, StatmountMask, StatxMask, UmountFlags,
    UnshareFlags, Whence, XattrFlags,
};

/// Description of one call for the list of calls.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Name in a row.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Keys with the kind of their value, and whether they may be left out.
    pub args: &'static [(&'static str, &'static str, bool)],
    /// Kind of the answer.
    pub kind: Kind,
}

impl Description {
    /// One line: name, keys with the kind of their values (`?`: may be left out), kind of the answer, what it is.
    pub fn line(&self) -> String {
        let keys = self.args.iter().filter(|(_, kind, _)| *kind != NO_KEY);
        let keys: Vec<String> = keys
            .map(|(name, kind, optional)| format!("{name}{}: {kind}", if *optional { "?" } else { "" }))
            .collect();
        let answer = match self.kind {
            Kind::Done => String::new(),
            kind => format!(" -> {}", format!("{kind:?}").to_lowercase()),
        };
        format!("{} {{ {} }}{answer}: {}", self.name, keys.join(", "), self.about.trim())
            .replace("{  }", "{}")
    }
}

macro_rules! is_optional {
    () => {
        false
    };
    ($default:expr) => {
        true
    };
}

macro_rules! read_arg {
    ($table:ident, $arg:ident, $ty:ty) => {
        <$ty as Arg>::read($table.need(stringify!($arg))?)?
    };
    ($table:ident, $arg:ident, $ty:ty, $default:expr) => {
        match $table.take(stringify!($arg)) {
            Some(node) => <$ty as Arg>::read(node)?,
            None => $default,
        }
    };
}

macro_rules! print_arg {
    ($out:ident, $arg:ident) => {
        $out.push_str(&format!(", {} = {}", stringify!($arg), $arg.print()))
    };
    ($out:ident, $arg:ident, $default:expr) => {
        if *$arg != $default {
            $out.push_str(&format!(", {} = {}", stringify!($arg), $arg.print()));
        }
    };
}

macro_rules! number_of {
    (harness) => {
        None
    };
    ($nr:ident) => {
        Some(nr::$nr)
    };
}

macro_rules! ops {
    ($(
        $(#[doc = $doc:literal])*
        $variant:ident $name:literal ( $($arg:ident : $ty:ty $(= $default:expr)?),* $(,)? ) -> $kind:ident
            via $nr:ident $([ $($first:expr),* ])? $(needs $need:ident)? ;
    )*) => {
        /// A call with its arguments, as the row says it.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub enum Op {
            $(
                $(#[doc = $doc])*
                $variant {
                    $(
                        #[doc = concat!("`", stringify!($arg), "`.")]
                        $arg: $ty,
                    )*
                },
            )*
        }

        impl Op {
            /// Every call.
            pub const ALL: &'static [Description] = &[$(Description {
                name: $name,
                about: concat!($($doc),*),
                args: &[$((stringify!($arg), <$ty as Arg>::KIND, is_optional!($($default)?))),*],
                kind: Kind::$kind,
            }),*];

            /// Name in a row.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Op::$variant { .. } => $name,)*
                }
            }

            /// What a success answers.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Op::$variant { .. } => Kind::$kind,)*
                }
            }

            /// What the call needs of the system by itself.
            fn own_need(&self) -> Option<Need> {
                match self {
                    $($(Op::$variant { .. } => Some(Need::$need),)?)*
                    #[allow(unreachable_patterns)]
                    _ => None,
                }
            }

            /// Reads the arguments of the call `name` from `table`.
            ///
            /// # Errors
            ///
            /// What is wrong, and where.
            fn read_args(name: &str, table: &mut Table<'_>) -> Read<Option<Op>> {
                Ok(Some(match name {
                    $($name => Op::$variant { $($arg: read_arg!(table, $arg, $ty $(, $default)?)),* },)*
                    _ => return Ok(None),
                }))
            }

            /// The arguments as a row writes them, each led by a comma.
            fn print_args(&self, out: &mut String) {
                match self {
                    $(Op::$variant { $($arg),* } => { $(print_arg!(out, $arg $(, $default)?);)* })*
                }
            }

            /// Fills the registers; the number of the call, or `None` if the backend has to do more than one call.
            pub(crate) fn lower(&self, frame: &mut Frame) -> Option<Nr> {
                match self {
                    $(Op::$variant { $($arg),* } => {
                        $($(frame.int($first as u64);)*)?
                        $($arg.lower(frame);)*
                        number_of!($nr)
                    })*
                }
            }

            /// Replaces names of descriptors by numbers.
            ///
            /// # Errors
            ///
            /// The name that `lookup` does not know.
            pub fn resolve(&mut self, lookup: &dyn Fn(&str) -> Option<i32>) -> Result<(), String> {
                match self {
                    $(Op::$variant { $($arg),* } => { $($arg.resolve(lookup)?;)* })*
                }
                Ok(())
            }

            /// True if an argument is something only a raw call can pass.
            pub fn is_raw(&self) -> bool {
                match self {
                    $(Op::$variant { $($arg),* } => { false $(|| $arg.is_raw())* })*
                }
            }
        }
    };
}

/// Proper room for a structure.
const GOOD: Struct<144> = Struct { bad: false };
/// Proper room for `struct statx`.
const GOOD_STATX: Struct<256> = Struct { bad: false };
/// Room for a path.
const PATH_ROOM: Room = Room::of(4096);
/// Room for an attribute's value or a list of names.
const XATTR_ROOM: Room = Room::of(65536);

ops! {
    /// access(2)
    Access "access" (path: Mem, mode: AccessMode) -> Done via access;
    /// faccessat(2), the call without flags
    Faccessat "faccessat" (dirfd: Fd = Fd::CWD, path: Mem, mode: AccessMode) -> Done via faccessat;
    /// faccessat2(2)
    Faccessat2 "faccessat2" (dirfd: Fd = Fd::CWD, path: Mem, mode: AccessMode, flags: AtFlags = AtFlags(0)) -> Done via faccessat2;

    /// stat(2)
    Stat "stat" (path: Mem, buf: StatRoom = GOOD) -> Stat via stat;
    /// lstat(2)
    Lstat "lstat" (path: Mem, buf: StatRoom = GOOD) -> Stat via lstat;
    /// fstat(2)
    Fstat "fstat" (fd: Fd, buf: StatRoom = GOOD) -> Stat via fstat;
    /// newfstatat(2)
    Newfstatat "newfstatat" (dirfd: Fd = Fd::CWD, path: Mem, buf: StatRoom = GOOD, flags: AtFlags = AtFlags(0)) -> Stat via newfstatat;
    /// statx(2)
    Statx "statx" (dirfd: Fd = Fd::CWD, path: Mem, flags: AtFlags = AtFlags(0), mask: StatxMask = StatxMask(0xfff), buf: StatxRoom = GOOD_STATX) -> Statx via statx;

    /// open(2)
    Open "open" (path: Mem, flags: OpenFlags = OpenFlags(0), mode: Mode = Mode(0)) -> Fd via open;
    /// openat(2)
    Openat "openat" (dirfd: Fd = Fd::CWD, path: Mem, flags: OpenFlags = OpenFlags(0), mode: Mode = Mode(0)) -> Fd via openat;
    /// openat2(2)
    Openat2 "openat2" (dirfd: Fd = Fd::CWD, path: Mem, how: How) -> Fd via openat2;
    /// creat(2)
    Creat "creat" (path: Mem, mode: Mode = Mode(0)) -> Fd via creat;
    /// close(2)
    Close "close" (fd: Fd) -> Done via close;
    /// read(2)
    Read "read" (fd: Fd, count: Room = PATH_ROOM) -> Bytes via read;
    /// write(2)
    Write "write" (fd: Fd, data: Data) -> Number via write;
    /// pread64(2)
    Pread "pread" (fd: Fd, count: Room = PATH_ROOM, offset: Int) -> Bytes via pread64;
    /// pwrite64(2)
    Pwrite "pwrite" (fd: Fd, data: Data, offset: Int) -> Number via pwrite64;
    /// readv(2)
    Readv "readv" (fd: Fd, buffers: Rooms) -> Bytes via readv;
    /// writev(2)
    Writev "writev" (fd: Fd, data: Pieces) -> Number via writev;
    /// preadv(2)
    Preadv "preadv" (fd: Fd, buffers: Rooms, offset: Int) -> Bytes via preadv;
    /// pwritev(2)
    Pwritev "pwritev" (fd: Fd, data: Pieces, offset: Int) -> Number via pwritev;
    /// preadv2(2); without `offset` at the position
    Preadv2 "preadv2" (fd: Fd, buffers: Rooms, offset: SplitOffset = SplitOffset(-1), flags: RwFlags = RwFlags(0)) -> Bytes via preadv2;
    /// pwritev2(2); without `offset` at the position
    Pwritev2 "pwritev2" (fd: Fd, data: Pieces, offset: SplitOffset = SplitOffset(-1), flags: RwFlags = RwFlags(0)) -> Number via pwritev2;
    /// sendfile(2)
    Sendfile "sendfile" (to: Fd, from: Fd, offset: Offset = Offset(None), length: Int) -> Number via sendfile;
    /// lseek(2)
    Lseek "lseek" (fd: Fd, offset: Int, whence: Whence) -> Number via lseek;
    /// truncate(2)
    Truncate "truncate" (path: Mem, length: Int) -> Done via truncate;
    /// ftruncate(2)
    Ftruncate "ftruncate" (fd: Fd, length: Int) -> Done via ftruncate;
    /// fallocate(2)
    Fallocate "fallocate" (fd: Fd, mode: FallocateMode = FallocateMode(0), offset: Int, length: Int) -> Done via fallocate;
    /// copy_file_range(2)
    CopyFileRange "copy_file_range" (from: Fd, from_offset: Offset = Offset(None), to: Fd, to_offset: Offset = Offset(None), length: Int, flags: Int = Int(0)) -> Number via copy_file_range;
    /// fsync(2)
    Fsync "fsync" (fd: Fd) -> Done via fsync;
    /// fdatasync(2)
    Fdatasync "fdatasync" (fd: Fd) -> Done via fdatasync;
    /// syncfs(2)
    Syncfs "syncfs" (fd: Fd) -> Done via syncfs;
    /// statfs(2): type, block size, longest name and flags; with `space` 1, blocks that there are and that are free; with 2, inodes
    Statfs "statfs" (path: Mem, space: Int = Int(0)) -> Bytes via harness;
    /// fstatfs(2), likewise
    Fstatfs "fstatfs" (fd: Fd, space: Int = Int(0)) -> Bytes via harness;
    /// getdents64(2)
    Getdents "getdents" (fd: Fd, room: Room = XATTR_ROOM) -> Entries via getdents64;
    /// name_to_handle_at(2) with room for `bytes`: type and length
    NameToHandleAt "name_to_handle_at" (dirfd: Fd = Fd::CWD, path: Mem, bytes: Int = Int(128), flags: AtFlags = AtFlags(0)) -> Bytes via harness needs Handle;
    /// open_by_handle_at(2) of a handle that no call gave
    OpenByHandleAt "open_by_handle_at" (mount: Fd = Fd::CWD, handle: Handle, flags: OpenFlags = OpenFlags(0)) -> Fd via open_by_handle_at needs Handle;
    /// name_to_handle_at(2), then open_by_handle_at(2) of the handle, with `kind` added to its type
    Reopen "reopen" (dirfd: Fd = Fd::CWD, path: Mem, at_flags: AtFlags = AtFlags(0), mount: Fd = Fd::CWD, kind: Int = Int(0), flags: OpenFlags = OpenFlags(0)) -> Fd via harness needs Handle;
    /// readlink(2)
    Readlink "readlink" (path: Mem, room: Room = PATH_ROOM) -> Bytes via readlink;
    /// readlinkat(2)
    Readlinkat "readlinkat" (dirfd: Fd = Fd::CWD, path: Mem, room: Room = PATH_ROOM) -> Bytes via readlinkat;

    /// mkdir(2)
    Mkdir "mkdir" (path: Mem, mode: Mode = Mode(0o755)) -> Done via mkdir;
    /// mkdirat(2)
    Mkdirat "mkdirat" (dirfd: Fd = Fd::CWD, path: Mem, mode: Mode = Mode(0o755)) -> Done via mkdirat;
    /// mknod(2)
    Mknod "mknod" (path: Mem, mode: Mode, dev: Dev = Dev { major: 0, minor: 0 }) -> Done via mknod;
    /// mknodat(2)
    Mknodat "mknodat" (dirfd: Fd = Fd::CWD, path: Mem, mode: Mode, dev: Dev = Dev { major: 0, minor: 0 }) -> Done via mknodat;
    /// symlink(2)
    Symlink "symlink" (target: Mem, path: Mem) -> Done via symlink;
    /// symlinkat(2)
    Symlinkat "symlinkat" (target: Mem, dirfd: Fd = Fd::CWD, path: Mem) -> Done via symlinkat;
    /// link(2)
    Link "link" (old: Mem, new: Mem) -> Done via link;
    /// linkat(2)
    Linkat "linkat" (olddirfd: Fd = Fd::CWD, old: Mem, newdirfd: Fd = Fd::CWD, new: Mem, flags: AtFlags = AtFlags(0)) -> Done via linkat;
    /// unlink(2)
    Unlink "unlink" (path: Mem) -> Done via unlink;
    /// unlinkat(2)
    Unlinkat "unlinkat" (dirfd: Fd = Fd::CWD, path: Mem, flags: AtFlags = AtFlags(0)) -> Done via unlinkat;
    /// rmdir(2)
    Rmdir "rmdir" (path: Mem) -> Done via rmdir;
    /// rename(2)
    Rename "rename" (old: Mem, new: Mem) -> Done via rename;
    /// renameat(2)
    Renameat "renameat" (olddirfd: Fd = Fd::CWD, old: Mem, newdirfd: Fd = Fd::CWD, new: Mem) -> Done via renameat;
    /// renameat2(2)
    Renameat2 "renameat2" (olddirfd: Fd = Fd::CWD, old: Mem, newdirfd: Fd = Fd::CWD, new: Mem, flags: RenameFlags = RenameFlags(0)) -> Done via renameat2;

    /// chmod(2)
    Chmod "chmod" (path: Mem, mode: Mode) -> Done via chmod;
    /// fchmod(2)
    Fchmod "fchmod" (fd: Fd, mode: Mode) -> Done via fchmod;
    /// fchmodat(2), the call without flags
    Fchmodat "fchmodat" (dirfd: Fd = Fd::CWD, path: Mem, mode: Mode) -> Done via fchmodat;
    /// fchmodat2(2)
    Fchmodat2 "fchmodat2" (dirfd: Fd = Fd::CWD, path: Mem, mode: Mode, flags: AtFlags = AtFlags(0)) -> Done via fchmodat2;
    /// chown(2)
    Chown "chown" (path: Mem, uid: Id, gid: Id) -> Done via chown;
    /// lchown(2)
    Lchown "lchown" (path: Mem, uid: Id, gid: Id) -> Done via lchown;
    /// fchown(2)
    Fchown "fchown" (fd: Fd, uid: Id, gid: Id) -> Done via fchown;
    /// fchownat(2)
    Fchownat "fchownat" (dirfd: Fd = Fd::CWD, path: Mem, uid: Id, gid: Id, flags: AtFlags = AtFlags(0)) -> Done via fchownat;
    /// utimensat(2)
    Utimensat "utimensat" (dirfd: Fd = Fd::CWD, path: Mem, times: Times = Times::Null, flags: AtFlags = AtFlags(0)) -> Done via utimensat;

    /// setxattr(2)
    Setxattr "setxattr" (path: Mem, name: Mem, value: Data, flags: XattrFlags = XattrFlags(0)) -> Done via setxattr needs Xattr;
    /// lsetxattr(2)
    Lsetxattr "lsetxattr" (path: Mem, name: Mem, value: Data, flags: XattrFlags = XattrFlags(0)) -> Done via lsetxattr needs Xattr;
    /// fsetxattr(2)
    Fsetxattr "fsetxattr" (fd: Fd, name: Mem, value: Data, flags: XattrFlags = XattrFlags(0)) -> Done via fsetxattr needs Xattr;
    /// setxattrat(2)
    Setxattrat "setxattrat" (dirfd: Fd = Fd::CWD, path: Mem, at_flags: AtFlags = AtFlags(0), name: Mem, args: XattrArgs) -> Done via setxattrat needs Xattr;
    /// getxattr(2)
    Getxattr "getxattr" (path: Mem, name: Mem, room: Room = XATTR_ROOM) -> Bytes via getxattr needs Xattr;
    /// lgetxattr(2)
    Lgetxattr "lgetxattr" (path: Mem, name: Mem, room: Room = XATTR_ROOM) -> Bytes via lgetxattr needs Xattr;
    /// fgetxattr(2)
    Fgetxattr "fgetxattr" (fd: Fd, name: Mem, room: Room = XATTR_ROOM) -> Bytes via fgetxattr needs Xattr;
    /// getxattrat(2)
    Getxattrat "getxattrat" (dirfd: Fd = Fd::CWD, path: Mem, at_flags: AtFlags = AtFlags(0), name: Mem, args: XattrRoom = XattrRoom::default()) -> Bytes via getxattrat needs Xattr;
    /// listxattr(2)
    Listxattr "listxattr" (path: Mem, room: Room = XATTR_ROOM) -> Names via listxattr needs Xattr;
    /// llistxattr(2)
    Llistxattr "llistxattr" (path: Mem, room: Room = XATTR_ROOM) -> Names via llistxattr needs Xattr;
    /// flistxattr(2)
    Flistxattr "flistxattr" (fd: Fd, room: Room = XATTR_ROOM) -> Names via flistxattr needs Xattr;
    /// listxattrat(2)
    Listxattrat "listxattrat" (dirfd: Fd = Fd::CWD, path: Mem, at_flags: AtFlags = AtFlags(0), room: Room = XATTR_ROOM) -> Names via listxattrat needs Xattr;
    /// removexattr(2)
    Removexattr "removexattr" (path: Mem, name: Mem) -> Done via removexattr needs Xattr;
    /// lremovexattr(2)
    Lremovexattr "lremovexattr" (path: Mem, name: Mem) -> Done via lremovexattr needs Xattr;
    /// fremovexattr(2)
    Fremovexattr "fremovexattr" (fd: Fd, name: Mem) -> Done via fremovexattr needs Xattr;
    /// removexattrat(2)
    Removexattrat "removexattrat" (dirfd: Fd = Fd::CWD, path: Mem, at_flags: AtFlags = AtFlags(0), name: Mem) -> Done via removexattrat needs Xattr;
    /// ioctl(2) `FS_IOC_SETFLAGS`
    Setflags "setflags" (fd: Fd, flags: SetFlags) -> Done via ioctl needs InodeFlags;
    /// ioctl(2) `FS_IOC_GETFLAGS`
    Getflags "getflags" (fd: Fd) -> Number via harness needs InodeFlags;

    /// ioctl(2) `FS_IOC_FSSETXATTR`
    Fssetxattr "fssetxattr" (fd: Fd, attr: Fsxattr) -> Done via ioctl needs InodeFlags;
    /// ioctl(2) `FS_IOC_FSGETXATTR`: the flags
    Fsgetxattr "fsgetxattr" (fd: Fd) -> Number via harness needs InodeFlags;
    /// file_setattr(2)
    FileSetattr "file_setattr" (dirfd: Fd = Fd::CWD, path: Mem, attr: Attributes, size: Int = Int(24), flags: AtFlags = AtFlags(0)) -> Done via file_setattr needs InodeFlags;
    /// file_getattr(2): the flags
    FileGetattr "file_getattr" (dirfd: Fd = Fd::CWD, path: Mem, size: Int = Int(24), flags: AtFlags = AtFlags(0)) -> Number via harness needs InodeFlags;
    /// ioctl(2) `FICLONE`
    Ficlone "ficlone" (fd: Fd, command: IoctlCommand = IoctlCommand(0x4004_9409), from: Fd) -> Done via ioctl;
    /// ioctl(2) `FIONREAD`
    Fionread "fionread" (fd: Fd) -> Number via harness;
    /// ioctl(2) `FIOQSIZE`
    Fioqsize "fioqsize" (fd: Fd) -> Number via harness;

    /// chdir(2)
    Chdir "chdir" (path: Mem) -> Done via chdir;
    /// fchdir(2)
    Fchdir "fchdir" (fd: Fd) -> Done via fchdir;
    /// chroot(2)
    Chroot "chroot" (path: Mem) -> Done via chroot;
    /// getcwd(2)
    Getcwd "getcwd" (room: Room = PATH_ROOM) -> Bytes via getcwd;
    /// umask(2)
    Umask "umask" (mask: Mode) -> Number via umask;
    /// dup(2)
    Dup "dup" (fd: Fd) -> Fd via dup;
    /// dup2(2)
    Dup2 "dup2" (fd: Fd, newfd: Fd) -> Fd via dup2;
    /// dup3(2)
    Dup3 "dup3" (fd: Fd, newfd: Fd, flags: OpenFlags = OpenFlags(0)) -> Fd via dup3;
    /// fcntl(2) with an integer argument
    Fcntl "fcntl" (fd: Fd, command: FcntlCommand, arg: Int = Int(0)) -> Number via fcntl;
    /// fcntl(2) `F_DUPFD_QUERY`
    DupfdQuery "dupfd_query" (fd: Fd, command: FcntlCommand = FcntlCommand(1027), other: Fd) -> Number via fcntl;
    /// fcntl(2) `F_SET_RW_HINT`
    SetRwHint "set_rw_hint" (fd: Fd, command: FcntlCommand = FcntlCommand(1036), hint: Hint) -> Done via fcntl;
    /// fcntl(2) `F_GET_RW_HINT`
    GetRwHint "get_rw_hint" (fd: Fd) -> Number via harness;
    /// flock(2)
    Flock "flock" (fd: Fd, operation: FlockOperation) -> Done via flock needs Lock;
    /// fcntl(2) `F_SETLK` and its like
    Setlk "setlk" (fd: Fd, command: LockCommand = LockCommand(6), lock: LockRange) -> Done via fcntl needs Lock;
    /// fcntl(2) `F_GETLK` or `F_OFD_GETLK`: `F_UNLCK`, or kind, first byte, length and `ofd` of the lock in the way
    Getlk "getlk" (fd: Fd, command: LockCommand = LockCommand(5), lock: LockRange) -> Bytes via harness needs Lock;

    /// setuid(2)
    Setuid "setuid" (uid: Id) -> Done via setuid;
    /// setgid(2)
    Setgid "setgid" (gid: Id) -> Done via setgid;
    /// setreuid(2)
    Setreuid "setreuid" (ruid: Id, euid: Id) -> Done via setreuid;
    /// setregid(2)
    Setregid "setregid" (rgid: Id, egid: Id) -> Done via setregid;
    /// setresuid(2)
    Setresuid "setresuid" (ruid: Id, euid: Id, suid: Id) -> Done via setresuid;
    /// setresgid(2)
    Setresgid "setresgid" (rgid: Id, egid: Id, sgid: Id) -> Done via setresgid;
    /// setfsuid(2)
    Setfsuid "setfsuid" (uid: Id) -> Number via setfsuid;
    /// setfsgid(2)
    Setfsgid "setfsgid" (gid: Id) -> Number via setfsgid;
    /// setgroups(2)
    Setgroups "setgroups" (groups: IdList) -> Done via setgroups;
    /// getresuid(2)
    Getresuid "getresuid" (out: ThreeIds = ThreeIds) -> Ids via getresuid;
    /// getresgid(2)
    Getresgid "getresgid" (out: ThreeIds = ThreeIds) -> Ids via getresgid;
    /// getgroups(2)
    Getgroups "getgroups" () -> Ids via harness;
    /// capset(2)
    Capset "capset" (sets: CapSets) -> Done via capset;
    /// capget(2)
    Capget "capget" (out: CapRoom = CapRoom) -> Caps via capget;
    /// prctl(2) `PR_SET_DUMPABLE`
    SetDumpable "set_dumpable" (on: Int) -> Done via prctl[libc::PR_SET_DUMPABLE];
    /// prctl(2) `PR_GET_DUMPABLE`
    GetDumpable "get_dumpable" () -> Number via prctl[libc::PR_GET_DUMPABLE];
    /// prctl(2) `PR_SET_NAME`
    SetName "set_name" (name: Mem) -> Done via prctl[libc::PR_SET_NAME];
    /// prctl(2) `PR_GET_NAME`
    GetName "get_name" () -> Bytes via harness;
    /// prctl(2) `PR_SET_SECUREBITS`
    SetSecurebits "set_securebits" (bits: Securebits) -> Done via prctl[libc::PR_SET_SECUREBITS];
    /// prctl(2) `PR_GET_SECUREBITS`
    GetSecurebits "get_securebits" () -> Number via prctl[libc::PR_GET_SECUREBITS];
    /// prctl(2) `PR_SET_KEEPCAPS`
    SetKeepcaps "set_keepcaps" (on: Int) -> Done via prctl[libc::PR_SET_KEEPCAPS];
    /// prctl(2) `PR_SET_NO_NEW_PRIVS`
    SetNoNewPrivs "set_no_new_privs" () -> Done via prctl[libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0];
    /// prctl(2) `PR_CAPBSET_DROP`
    CapbsetDrop "capbset_drop" (cap: Capability) -> Done via prctl[libc::PR_CAPBSET_DROP];
    /// prctl(2) `PR_CAPBSET_READ`
    CapbsetRead "capbset_read" (cap: Capability) -> Number via prctl[libc::PR_CAPBSET_READ];
    /// prctl(2) `PR_CAP_AMBIENT_RAISE`
    AmbientRaise "ambient_raise" (cap: Capability) -> Done via prctl[libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE];
    /// prctl(2) `PR_CAP_AMBIENT_LOWER`
    AmbientLower "ambient_lower" (cap: Capability) -> Done via prctl[libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_LOWER];
    /// prctl(2) `PR_CAP_AMBIENT_IS_SET`
    AmbientIsSet "ambient_is_set" (cap: Capability) -> Number via prctl[libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_IS_SET];
    /// prctl(2) `PR_CAP_AMBIENT_CLEAR_ALL`
    AmbientClear "ambient_clear" () -> Done via prctl[libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0];
    /// setrlimit(2); without `hard` that limit stays, and cuts the soft one
    Setrlimit "setrlimit" (resource: Resource, soft: Limit, hard: Limit = Limit::KEPT) -> Done via harness needs Rlimit;
    /// getrlimit(2): the soft and the hard limit
    Getrlimit "getrlimit" (resource: Resource) -> Bytes via harness needs Rlimit;

    /// execve(2) in a child of the task: what the program saw, or the error
    Execve "execve" (path: Mem, argv: Vector = Vector::default(), envp: Vector = Vector::default()) -> Exec via execve needs Exec;
    /// execveat(2) in a child of the task
    Execveat "execveat" (dirfd: Fd = Fd::CWD, path: Mem, argv: Vector = Vector::default(), envp: Vector = Vector::default(), flags: AtFlags = AtFlags(0)) -> Exec via execveat needs Exec;
    /// execvpe(3) of a C library (glibc unless it says musl) in a child of the task, with `search` as PATH (absent: PATH unset)
    Execvp "execvp" (file: Mem, argv: Vector = Vector::default(), search: Mem = Mem::Null, libc: CLibrary = CLibrary(0)) -> Exec via harness needs Exec;
    /// fork(2), or clone(2) with these flags: `child` becomes a task of its own
    Fork "fork" (child: Name, flags: CloneFlags = CloneFlags(0)) -> Done via harness needs Fork;
    /// clone(2) of a thread: `child` becomes a task that shares all that threads share
    Thread "thread" (child: Name) -> Done via harness needs Thread;
    /// waits this many milliseconds
    Sleep "sleep" (milliseconds: Int) -> Done via harness;

    /// mount(2)
    Mount "mount" (source: Mem = Mem::Null, target: Mem, fstype: Mem = Mem::Null, flags: MountFlags = MountFlags(0), data: Mem = Mem::Null) -> Done via mount needs Mount;
    /// umount2(2)
    Umount2 "umount2" (target: Mem, flags: UmountFlags = UmountFlags(0)) -> Done via umount2 needs Mount;
    /// mount_setattr(2)
    MountSetattr "mount_setattr" (dirfd: Fd = Fd::CWD, path: Mem, flags: AtFlags = AtFlags(0), attr: MountAttr) -> Done via mount_setattr needs Mount;
    /// open_tree(2)
    OpenTree "open_tree" (dirfd: Fd = Fd::CWD, path: Mem, flags: OpenTreeFlags = OpenTreeFlags(0)) -> Fd via open_tree needs Mount;
    /// open_tree_attr(2)
    OpenTreeAttr "open_tree_attr" (dirfd: Fd = Fd::CWD, path: Mem, flags: OpenTreeFlags = OpenTreeFlags(0), attr: MountAttr) -> Fd via open_tree_attr needs Mount;
    /// move_mount(2)
    MoveMount "move_mount" (from_dirfd: Fd = Fd::CWD, from: Mem, to_dirfd: Fd = Fd::CWD, to: Mem, flags: MoveMountFlags = MoveMountFlags(0)) -> Done via move_mount needs Mount;
    /// statmount(2): what it tells, with the place of the parent for its id
    Statmount "statmount" (of: MountRequest, mask: StatmountMask = StatmountMask(0), room: Int = Int(65536), flags: Int = Int(0)) -> Bytes via harness needs Mount;
    /// listmount(2): where each mount is, as statmount(2) tells it, or `-`; `after`, a path, or `after_id` say behind which mount
    Listmount "listmount" (of: MountRequest, after: Mem = Mem::Null, after_id: Int = Int(0), room: Int = Int(1000), flags: ListmountFlags = ListmountFlags(0)) -> Names via harness needs Mount;
    /// pivot_root(2)
    PivotRoot "pivot_root" (new_root: Mem, put_old: Mem) -> Done via pivot_root needs Mount;
    /// unshare(2); after `CLONE_NEWUSER` no id is mapped
    Unshare "unshare" (flags: UnshareFlags) -> Done via unshare;
    /// writes the id maps of the task's user namespace from outside, as root
    MapIds "map_ids" (uid_map: IdMap, gid_map: IdMap) -> Done via harness needs Userns;
    /// setns(2)
    Setns "setns" (fd: Fd, nstype: UnshareFlags = UnshareFlags(0)) -> Done via setns needs Userns;
    /// opens a file below `/proc/PID` of this task, or of the task `of`: namespaces for `setns`, the others to be written
    OpenProc "open_proc" (file: ProcFile, of: Name = Name::default()) -> Fd via harness needs Userns;
    /// opens a user namespace with these maps, for `mount_setattr`
    OpenUserns "open_userns" (uid_map: IdMap, gid_map: IdMap) -> Fd via harness needs Userns;
    /// writes a machine-wide setting below `/proc/sys`, for the duration of the row
    Sysctl "sysctl" (name: Name, value: Int) -> Done via harness needs Sysctl;
}

impl Op {
    /// Reads a call from the table of a row; keys it does not know stay in the table.
    ///
    /// # Errors
    ///
    /// What is wrong, and where.
    pub fn read(table: &mut Table<'_>) -> Read<Op> {
        let node = table.need("op")?;
        let name = node.str()?;
        table.call_it(format!("call `{name}`"));
        match Op::read_args(name, table)? {
            Some(op) => Ok(op),
            None => {
                let names: Vec<&str> = Op::ALL.iter().map(|d| d.name).collect();
                Err(Problem::new(node.at(), format!("unknown call `{name}`{}", alternatives(name, &names))))
            }
        }
    }

    /// The call as a row writes it, without the braces.
    pub fn print(&self) -> String {
        let mut out = format!("op = \"{}\"", self.name());
        self.print_args(&mut out);
        out
    }

    /// What the call needs of the system.
    pub fn needs(&self) -> Vec<Need> {
        let mut needs: Vec<Need> = self.own_need().into_iter().collect();
        if self.is_raw() && !matches!(self, Op::Mount { .. } | Op::Listmount { .. } | Op::Execvp { .. }) {
            needs.push(Need::Memory);
        }
        match self {
            Op::Setxattr { name, value, .. }
            | Op::Lsetxattr { name, value, .. }
            | Op::Fsetxattr { name, value, .. }
                if is_acl(name)
                    || value.bytes.bytes().is_some_and(|b| crate::text::acl_from_xattr(b).is_some()) =>
            {
                needs.push(Need::Acl);
            }
            Op::Getxattr { name, .. }
            | Op::Lgetxattr { name, .. }
            | Op::Fgetxattr { name, .. }
            | Op::Removexattr { name, .. }
            | Op::Lremovexattr { name, .. }
            | Op::Fremovexattr { name, .. }
            | Op::Setxattrat { name, .. }
            | Op::Getxattrat { name, .. }
            | Op::Removexattrat { name, .. }
                if is_acl(name) =>
            {
                needs.push(Need::Acl);
            }
            Op::Mknod { mode, .. } | Op::Mknodat { mode, .. }
                if matches!(mode.0 & 0o170000, 0o020000 | 0o060000) =>
            {
                needs.push(Need::Device);
            }
            Op::Unshare { flags: UnshareFlags(flags) } | Op::Fork { flags: CloneFlags(flags), .. } => {
                needs.extend((flags & 0x1000_0000 != 0).then_some(Need::Userns));
                needs.extend((flags & 0x20000 != 0).then_some(Need::Mount));
            }
            Op::MountSetattr { attr, .. } if attr.set.0 & 0x100000 != 0 => needs.push(Need::Idmap),
            _ => {}
        }
        needs
    }
}

/// True for the names under which ACLs are kept.
fn is_acl(name: &Mem) -> bool {
    name.bytes().is_some_and(|n| n.starts_with(b"system.posix_acl_"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{Node, Table};
    use toml::de::DeTable;

    fn parse(text: &str) -> Result<Op, String> {
        let doc = format!("call = {{ {text} }}");
        let table = DeTable::parse(&doc).map_err(|e| e.to_string())?;
        let node = Node::new(table.get_ref().get("call").ok_or("no call")?);
        let mut table: Table<'_> = node.table("call").map_err(|p| p.message)?;
        let op = Op::read(&mut table).map_err(|p| p.message)?;
        table.finish().map_err(|p| p.message)?;
        Ok(op)
    }

    #[test]
    fn what_is_printed_reads_back() {
        for text in [
            r#"op = "stat", path = "d/f""#,
            r#"op = "openat", dirfd = "d", path = "f", flags = "O_RDWR|O_CREAT", mode = "0644""#,
            r#"op = "mknod", path = "c", mode = "S_IFCHR|0600", dev = "1:3""#,
            r#"op = "utimensat", path = "f", times = ["now", "12.000000005"], flags = "AT_SYMLINK_NOFOLLOW""#,
            r#"op = "setxattr", path = "f", name = "user.a", value = { hex = "ff00" }"#,
            r#"op = "openat2", path = "f", how = { flags = "O_RDONLY", resolve = "RESOLVE_BENEATH" }"#,
            r#"op = "setresuid", ruid = -1, euid = 1000, suid = 0"#,
        ] {
            let op = parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(op.print(), text);
        }
    }

    #[test]
    fn mistakes_are_named() {
        let message = |text: &str| parse(text).expect_err(text);
        assert_eq!(message(r#"op = "stta", path = "f""#), "unknown call `stta`; did you mean `stat`?");
        assert_eq!(message(r#"op = "stat", pth = "f""#), "call `stat` needs `path`");
        assert_eq!(
            message(r#"op = "stat", path = "f", mode = "1""#),
            "call `stat` has no key `mode`; known: op, path, buf"
        );
        assert!(message(r#"op = "open", path = "f", flags = "O_CRAET""#).contains("did you mean `O_CREAT`?"));
        assert!(message(r#"op = "mkdir", path = "f", mode = 493"#).contains("expected a string"));
        assert!(
            message(r#"op = "fssetxattr", fd = 0, attr = { xflags = "0x100000000" }"#).contains("32 bits"),
            "what the kernel's structure cannot hold is not cut in silence"
        );
    }
}
