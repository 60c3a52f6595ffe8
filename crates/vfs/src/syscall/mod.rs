//! The raw door: system calls by number, with registers, and memory behind them.
//!
//! [`Task::syscall`] takes what a program has in its registers when it executes `syscall`, and answers what the kernel
//! would leave in `rax`: a result, or a negated error number. Numbers and structures are those of x86-64. Whatever else a
//! call needs is in a [`UserMemory`]. What concerns more than one task is left to the caller as an [`Event`].
//!
//! ```
//! use rcuwalk::syscall::{SliceMemory, nr};
//! use rcuwalk::{Cred, Errno, Stat, Vfs, uapi};
//!
//! let vfs = Vfs::new()?;
//! let mut task = vfs.task(Cred::user(1000, 1000, &[]));
//! let mut bytes = [0; 4096];
//! bytes[..2].copy_from_slice(b"/\0");
//! let mut memory = SliceMemory::new(0x10000, &mut bytes);
//! assert_eq!(task.syscall(&mut memory, nr::STAT, [0x10000, 0x10100, 0, 0, 0, 0]), 0);
//! assert_eq!(task.syscall(&mut memory, nr::ACCESS, [0x10000, uapi::W_OK as u64, 0, 0, 0, 0]), -13, "EACCES");
//! let mode = u32::from_le_bytes(bytes[0x118..0x11c].try_into().unwrap());
//! assert_eq!(mode, 0o040755);
//! # Ok::<(), Errno>(())
//! ```
//!
//! # What is not there
//!
//! Calls without a number in [`nr`] are `ENOSYS`: those about memory, signals, sockets, time, and whatever else does not
//! touch the tree or the credential; of the calls about mounts, `fsopen` and its like (`fsconfig`, `fsmount`, `fspick`): a tmpfs
//! is mounted with `mount`. Nothing blocks: what would wait, for a lock as well, is `EAGAIN`. Signals are not sent.
//!
//! Kernel: arch/x86/entry/syscall_64.c `do_syscall_64()`.

mod fds;
mod handles;
mod ids;
mod memory;
mod mounts;
mod paths;
mod process;
mod xattrs;

use crate::base::errno::{Errno, Result};
use crate::task::Task;
use memory::{Name, copy_out};

pub use crate::task::program::Event;
pub use memory::{SliceMemory, TASK_SIZE_MAX, UserMemory};

/// A call under way: who makes it, the memory, the registers.
struct Call<'a> {
    task: &'a mut Task,
    mem: &'a mut dyn UserMemory,
    args: [u64; 6],
}

/// What a call answers, if it is no error.
type Answer = Result<i64>;

/// Declares the calls: number, the constant for it, the function that makes it.
macro_rules! calls {
    ($($number:literal $constant:ident $function:ident $doc:literal;)*) => {
        /// The numbers of the calls that there are, those of x86-64.
        pub mod nr {
            $(#[doc = $doc] pub const $constant: u64 = $number;)*

            /// Every number, ascending, with the name of the constant for it.
            pub const ALL: &[(u64, &str)] = &[$(($number, stringify!($constant))),*];
        }

        /// By number. Kernel: `sys_call_table`.
        static TABLE: [Option<fn(&mut Call<'_>) -> Answer>; TABLE_LEN] = {
            let mut table: [Option<fn(&mut Call<'_>) -> Answer>; TABLE_LEN] = [None; TABLE_LEN];
            $(table[$number] = Some(|call| Call::$function(call));)*
            table
        };
    };
}

/// One more than the highest number.
const TABLE_LEN: usize = 470;

calls! {
    0 READ read "read(2)";
    1 WRITE write "write(2)";
    2 OPEN open "open(2)";
    3 CLOSE close "close(2)";
    4 STAT stat "stat(2)";
    5 FSTAT fstat "fstat(2)";
    6 LSTAT lstat "lstat(2)";
    8 LSEEK lseek "lseek(2)";
    16 IOCTL ioctl "ioctl(2): `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS`, `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR`, `FICLONE`, `FICLONERANGE`, `FIONREAD`, `FIOQSIZE`, `FIOCLEX`, `FIONCLEX`";
    17 PREAD64 pread64 "pread(2)";
    18 PWRITE64 pwrite64 "pwrite(2)";
    19 READV readv "readv(2)";
    20 WRITEV writev "writev(2)";
    21 ACCESS access "access(2)";
    32 DUP dup "dup(2)";
    33 DUP2 dup2 "dup2(2)";
    39 GETPID getpid "getpid(2)";
    40 SENDFILE sendfile "sendfile(2)";
    56 CLONE clone "clone(2)";
    57 FORK fork "fork(2)";
    58 VFORK vfork "vfork(2)";
    59 EXECVE execve "execve(2)";
    60 EXIT exit "exit(2)";
    72 FCNTL fcntl "fcntl(2), without waiting for locks";
    73 FLOCK flock "flock(2), without waiting";
    74 FSYNC fsync "fsync(2)";
    75 FDATASYNC fdatasync "fdatasync(2)";
    76 TRUNCATE truncate "truncate(2)";
    77 FTRUNCATE ftruncate "ftruncate(2)";
    78 GETDENTS getdents "getdents(2), the older structure";
    79 GETCWD getcwd "getcwd(2)";
    80 CHDIR chdir "chdir(2)";
    81 FCHDIR fchdir "fchdir(2)";
    82 RENAME rename "rename(2)";
    83 MKDIR mkdir "mkdir(2)";
    84 RMDIR rmdir "rmdir(2)";
    85 CREAT creat "creat(2)";
    86 LINK link "link(2)";
    87 UNLINK unlink "unlink(2)";
    88 SYMLINK symlink "symlink(2)";
    89 READLINK readlink "readlink(2)";
    90 CHMOD chmod "chmod(2)";
    91 FCHMOD fchmod "fchmod(2)";
    92 CHOWN chown "chown(2)";
    93 FCHOWN fchown "fchown(2)";
    94 LCHOWN lchown "lchown(2)";
    95 UMASK umask "umask(2)";
    97 GETRLIMIT getrlimit "getrlimit(2): `RLIMIT_FSIZE`, `RLIMIT_STACK`, `RLIMIT_NPROC`, `RLIMIT_NOFILE`";
    102 GETUID getuid "getuid(2)";
    104 GETGID getgid "getgid(2)";
    105 SETUID setuid "setuid(2)";
    106 SETGID setgid "setgid(2)";
    107 GETEUID geteuid "geteuid(2)";
    108 GETEGID getegid "getegid(2)";
    110 GETPPID getppid "getppid(2)";
    113 SETREUID setreuid "setreuid(2)";
    114 SETREGID setregid "setregid(2)";
    115 GETGROUPS getgroups "getgroups(2)";
    116 SETGROUPS setgroups "setgroups(2)";
    117 SETRESUID setresuid "setresuid(2)";
    118 GETRESUID getresuid "getresuid(2)";
    119 SETRESGID setresgid "setresgid(2)";
    120 GETRESGID getresgid "getresgid(2)";
    122 SETFSUID setfsuid "setfsuid(2)";
    123 SETFSGID setfsgid "setfsgid(2)";
    125 CAPGET capget "capget(2), of the task itself";
    126 CAPSET capset "capset(2)";
    132 UTIME utime "utime(2)";
    133 MKNOD mknod "mknod(2)";
    137 STATFS statfs "statfs(2)";
    138 FSTATFS fstatfs "fstatfs(2)";
    155 PIVOT_ROOT pivot_root "pivot_root(2)";
    157 PRCTL prctl "prctl(2): capabilities, securebits, `PR_SET_NO_NEW_PRIVS`, `PR_SET_DUMPABLE`, `PR_SET_NAME`";
    160 SETRLIMIT setrlimit "setrlimit(2): as [`GETRLIMIT`]";
    161 CHROOT chroot "chroot(2)";
    162 SYNC sync "sync(2)";
    165 MOUNT mount "mount(2)";
    166 UMOUNT2 umount2 "umount2(2)";
    186 GETTID gettid "gettid(2)";
    188 SETXATTR setxattr "setxattr(2)";
    189 LSETXATTR lsetxattr "lsetxattr(2)";
    190 FSETXATTR fsetxattr "fsetxattr(2)";
    191 GETXATTR getxattr "getxattr(2)";
    192 LGETXATTR lgetxattr "lgetxattr(2)";
    193 FGETXATTR fgetxattr "fgetxattr(2)";
    194 LISTXATTR listxattr "listxattr(2)";
    195 LLISTXATTR llistxattr "llistxattr(2)";
    196 FLISTXATTR flistxattr "flistxattr(2)";
    197 REMOVEXATTR removexattr "removexattr(2)";
    198 LREMOVEXATTR lremovexattr "lremovexattr(2)";
    199 FREMOVEXATTR fremovexattr "fremovexattr(2)";
    217 GETDENTS64 getdents64 "getdents64(2)";
    231 EXIT_GROUP exit_group "exit_group(2)";
    235 UTIMES utimes "utimes(2)";
    257 OPENAT openat "openat(2)";
    258 MKDIRAT mkdirat "mkdirat(2)";
    259 MKNODAT mknodat "mknodat(2)";
    260 FCHOWNAT fchownat "fchownat(2)";
    261 FUTIMESAT futimesat "futimesat(2)";
    262 NEWFSTATAT newfstatat "newfstatat(2)";
    263 UNLINKAT unlinkat "unlinkat(2)";
    264 RENAMEAT renameat "renameat(2)";
    265 LINKAT linkat "linkat(2)";
    266 SYMLINKAT symlinkat "symlinkat(2)";
    267 READLINKAT readlinkat "readlinkat(2)";
    268 FCHMODAT fchmodat "fchmodat(2), without flags";
    269 FACCESSAT faccessat "faccessat(2), without flags";
    272 UNSHARE unshare "unshare(2)";
    280 UTIMENSAT utimensat "utimensat(2)";
    285 FALLOCATE fallocate "fallocate(2)";
    292 DUP3 dup3 "dup3(2)";
    295 PREADV preadv "preadv(2)";
    296 PWRITEV pwritev "pwritev(2)";
    302 PRLIMIT64 prlimit64 "prlimit(2), of the task itself: as [`GETRLIMIT`]";
    303 NAME_TO_HANDLE_AT name_to_handle_at "name_to_handle_at(2)";
    304 OPEN_BY_HANDLE_AT open_by_handle_at "open_by_handle_at(2)";
    306 SYNCFS syncfs "syncfs(2)";
    308 SETNS setns "setns(2): the descriptor is one of `Task::open_proc`";
    316 RENAMEAT2 renameat2 "renameat2(2)";
    322 EXECVEAT execveat "execveat(2)";
    326 COPY_FILE_RANGE copy_file_range "copy_file_range(2)";
    327 PREADV2 preadv2 "preadv2(2)";
    328 PWRITEV2 pwritev2 "pwritev2(2)";
    332 STATX statx "statx(2)";
    428 OPEN_TREE open_tree "open_tree(2)";
    429 MOVE_MOUNT move_mount "move_mount(2)";
    435 CLONE3 clone3 "clone3(2)";
    436 CLOSE_RANGE close_range "close_range(2)";
    437 OPENAT2 openat2 "openat2(2)";
    439 FACCESSAT2 faccessat2 "faccessat2(2)";
    442 MOUNT_SETATTR mount_setattr "mount_setattr(2)";
    452 FCHMODAT2 fchmodat2 "fchmodat2(2)";
    457 STATMOUNT statmount "statmount(2)";
    458 LISTMOUNT listmount "listmount(2)";
    463 SETXATTRAT setxattrat "setxattrat(2)";
    464 GETXATTRAT getxattrat "getxattrat(2)";
    465 LISTXATTRAT listxattrat "listxattrat(2)";
    466 REMOVEXATTRAT removexattrat "removexattrat(2)";
    467 OPEN_TREE_ATTR open_tree_attr "open_tree_attr(2)";
    468 FILE_GETATTR file_getattr "file_getattr(2)";
    469 FILE_SETATTR file_setattr "file_setattr(2)";
}

impl Task {
    /// Makes the system call `nr` ([`nr`](mod@nr)) with the registers `args` (`rdi`, `rsi`, `rdx`, `r10`, `r8`, `r9`), of
    /// which each call looks at those it takes, and only at as many bits as its types have. Gives what the kernel leaves in
    /// `rax`: 0 or more, or from -4095 to -1 a negated error number.
    ///
    /// Memory is only what `mem` shows; arguments that point elsewhere are `-EFAULT`, where the kernel finds that out.
    /// Numbers that are not in [`nr`](mod@nr) are `-ENOSYS`, and a task that has exited is `-ESRCH`. After a call that makes
    /// a task or a program, [`take_event`](Self::take_event) has it.
    ///
    /// ```
    /// use rcuwalk::syscall::{Event, SliceMemory, nr};
    /// # use rcuwalk::{Cred, Errno, Vfs};
    /// # let vfs = Vfs::new()?;
    /// let mut task = vfs.task(Cred::root());
    /// let mut no_memory = SliceMemory::default();
    /// let pid = task.syscall(&mut no_memory, nr::FORK, [0; 6]);
    /// let Some(Event::Cloned { mut child, .. }) = task.take_event() else { unreachable!() };
    /// assert_eq!(child.syscall(&mut no_memory, nr::GETPID, [0; 6]), pid);
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn syscall(&mut self, mem: &mut dyn UserMemory, nr: u64, args: [u64; 6]) -> i64 {
        self.event = None;
        let entry = usize::try_from(nr).ok().and_then(|nr| TABLE.get(nr).copied().flatten());
        let Some(function) = entry else { return negated(Errno::ENOSYS) };
        if self.has_exited() {
            return negated(Errno::ESRCH);
        }
        function(&mut Call { task: self, mem, args }).unwrap_or_else(negated)
    }

    /// What the last [`syscall`](Self::syscall) leaves to the program that runs the task, if anything. The next call forgets it.
    pub fn take_event(&mut self) -> Option<Event> {
        self.event.take().map(|event| *event)
    }
}

/// As a call answers it.
fn negated(errno: Errno) -> i64 {
    -i64::from(errno.raw())
}

/// Success without a result.
fn done(result: Result<()>) -> Answer {
    result.map(|()| 0)
}

/// Success with a descriptor.
fn fd(result: Result<i32>) -> Answer {
    result.map(i64::from)
}

/// Arguments, as the types of the calls take them from registers.
impl Call<'_> {
    /// An `int`.
    #[inline(always)]
    fn int(&self, i: usize) -> i32 {
        self.args[i] as i32
    }

    /// An `unsigned int`, a mode or an id.
    #[inline(always)]
    fn uint(&self, i: usize) -> u32 {
        self.args[i] as u32
    }

    /// A `long` or an offset.
    #[inline(always)]
    fn long(&self, i: usize) -> i64 {
        self.args[i] as i64
    }

    /// The name that an argument points to.
    #[inline(always)]
    fn name(&mut self, i: usize) -> Name {
        let kernel = &self.task.kernel;
        Name::get(self.mem, self.args[i], &kernel.names, kernel.variants.name_buffer())
    }

    /// A name for which a null pointer is as good as an empty one if `flags` has `AT_EMPTY_PATH`.
    ///
    /// Kernel: fs/namei.c `getname_maybe_null()`.
    fn maybe_null_name(&mut self, i: usize, flags: i32) -> Name {
        if self.is_empty_name(i, flags) { Name::empty() } else { self.name(i) }
    }

    /// Whether `flags` has `AT_EMPTY_PATH` and an argument points to an empty name, or to none. A look at the first byte
    /// spares the copy of a name that is mostly empty.
    #[inline(always)]
    fn is_empty_name(&mut self, i: usize, flags: i32) -> bool {
        flags & crate::base::uapi::AT_EMPTY_PATH != 0
            && (self.args[i] == 0 || self.mem.get_user(self.args[i]) == Ok(0))
    }

    /// Puts a structure to where an argument points, in one copy (S7).
    #[inline(always)]
    fn put(&mut self, i: usize, bytes: &[u8]) -> Answer {
        self.mem.copy_to_user(self.args[i], bytes)?;
        Ok(0)
    }

    /// Reads `N` bytes from an address.
    fn get<const N: usize>(&mut self, address: u64) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.mem.copy_from_user(&mut bytes, address)?;
        Ok(bytes)
    }

    /// Reads words from an address.
    fn words<const N: usize>(&mut self, address: u64) -> Result<[u64; N]> {
        let mut bytes = [[0_u8; 8]; N];
        self.mem.copy_from_user(bytes.as_flattened_mut(), address)?;
        Ok(bytes.map(u64::from_ne_bytes))
    }

    /// Reads a structure that may be longer than this version of it, if the rest is zero, but not longer than a page.
    ///
    /// # Errors
    ///
    /// `E2BIG`, `EFAULT`. `EINVAL` is for the caller: it depends on the call what comes first.
    ///
    /// Kernel: include/linux/uaccess.h `copy_struct_from_user()`.
    fn extensible<const N: usize>(&mut self, address: u64, size: u64) -> Result<[u64; N]> {
        const PAGE: u64 = 4096;
        let known = (N * 8) as u64;
        if size > PAGE {
            return Err(Errno::E2BIG);
        }
        if size > known {
            let mut rest = vec![0; (size - known) as usize];
            let at = address.checked_add(known).ok_or(Errno::EFAULT)?;
            self.mem.copy_from_user(&mut rest, at)?;
            if rest.iter().any(|&byte| byte != 0) {
                return Err(Errno::E2BIG);
            }
        }
        let mut bytes = [[0_u8; 8]; N];
        let n = size.min(known) as usize;
        self.mem.copy_from_user(&mut bytes.as_flattened_mut()[..n], address)?;
        Ok(bytes.map(u64::from_ne_bytes))
    }

    /// Puts bytes to where argument `i` points, or as many of them as argument `i + 1` leaves room for.
    fn put_cut(&mut self, i: usize, bytes: &[u8], room: usize) -> Answer {
        let n = bytes.len().min(room);
        if copy_out(self.mem, self.args[i], &bytes[..n]) < n { Err(Errno::EFAULT) } else { Ok(n as i64) }
    }
}
