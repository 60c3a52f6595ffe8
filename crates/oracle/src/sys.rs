//! Raw system calls: the only module of this crate with `unsafe` code.
//!
//! A row says exactly what reaches the kernel: bad pointers, wrong sizes, unknown flag bits. No wrapper library lets
//! such a call through, so calls are made by number, with registers that a [`Frame`] fills.
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use crate::args::Mem;

/// A system call that touches no memory but what its pointer arguments say.
///
/// Made in this module only, so a call that could break the process (mmap, brk, …) cannot be named elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nr(libc::c_long);

#[cfg(feature = "engine")]
impl Nr {
    /// The number.
    pub(crate) fn number(self) -> u64 {
        self.0 as u64
    }
}

macro_rules! calls {
    ($($name:ident = $nr:expr;)*) => {
        /// The calls that rows and the runner use.
        #[allow(non_upper_case_globals)]
        pub(crate) mod nr {
            use super::Nr;
            $(pub(crate) const $name: Nr = Nr($nr as libc::c_long);)*
        }
    };
}

calls! {
    access = libc::SYS_access; faccessat = libc::SYS_faccessat; faccessat2 = libc::SYS_faccessat2;
    stat = libc::SYS_stat; lstat = libc::SYS_lstat; fstat = libc::SYS_fstat;
    newfstatat = libc::SYS_newfstatat; statx = libc::SYS_statx;
    open = libc::SYS_open; openat = libc::SYS_openat; openat2 = libc::SYS_openat2; creat = libc::SYS_creat;
    close = libc::SYS_close; read = libc::SYS_read; write = libc::SYS_write; pread64 = libc::SYS_pread64;
    readv = libc::SYS_readv; writev = libc::SYS_writev; preadv = libc::SYS_preadv; pwritev = libc::SYS_pwritev;
    pwrite64 = libc::SYS_pwrite64; lseek = libc::SYS_lseek; truncate = libc::SYS_truncate;
    ftruncate = libc::SYS_ftruncate; fallocate = libc::SYS_fallocate; getdents64 = libc::SYS_getdents64;
    readlink = libc::SYS_readlink; readlinkat = libc::SYS_readlinkat; mkdir = libc::SYS_mkdir;
    mkdirat = libc::SYS_mkdirat; mknod = libc::SYS_mknod; mknodat = libc::SYS_mknodat; symlink = libc::SYS_symlink;
    symlinkat = libc::SYS_symlinkat; link = libc::SYS_link; linkat = libc::SYS_linkat; unlink = libc::SYS_unlink;
    unlinkat = libc::SYS_unlinkat; rmdir = libc::SYS_rmdir; rename = libc::SYS_rename;
    renameat = libc::SYS_renameat; renameat2 = libc::SYS_renameat2; chmod = libc::SYS_chmod;
    fchmod = libc::SYS_fchmod; fchmodat = libc::SYS_fchmodat; fchmodat2 = 452; chown = libc::SYS_chown;
    lchown = libc::SYS_lchown; fchown = libc::SYS_fchown; fchownat = libc::SYS_fchownat;
    utimensat = libc::SYS_utimensat; setxattr = libc::SYS_setxattr; lsetxattr = libc::SYS_lsetxattr;
    fsetxattr = libc::SYS_fsetxattr; getxattr = libc::SYS_getxattr; lgetxattr = libc::SYS_lgetxattr;
    fgetxattr = libc::SYS_fgetxattr; listxattr = libc::SYS_listxattr; llistxattr = libc::SYS_llistxattr;
    flistxattr = libc::SYS_flistxattr; removexattr = libc::SYS_removexattr; lremovexattr = libc::SYS_lremovexattr;
    fremovexattr = libc::SYS_fremovexattr; setxattrat = 463; getxattrat = 464; listxattrat = 465;
    removexattrat = 466; chdir = libc::SYS_chdir; fchdir = libc::SYS_fchdir; chroot = libc::SYS_chroot;
    getcwd = libc::SYS_getcwd; umask = libc::SYS_umask; dup = libc::SYS_dup; dup2 = libc::SYS_dup2;
    dup3 = libc::SYS_dup3; fcntl = libc::SYS_fcntl; flock = libc::SYS_flock; ioctl = libc::SYS_ioctl;
    setuid = libc::SYS_setuid; setgid = libc::SYS_setgid; setreuid = libc::SYS_setreuid;
    setregid = libc::SYS_setregid; setresuid = libc::SYS_setresuid; setresgid = libc::SYS_setresgid;
    setfsuid = libc::SYS_setfsuid; setfsgid = libc::SYS_setfsgid; setgroups = libc::SYS_setgroups;
    getresuid = libc::SYS_getresuid; getresgid = libc::SYS_getresgid; getgroups = libc::SYS_getgroups;
    capset = libc::SYS_capset; capget = libc::SYS_capget; prctl = libc::SYS_prctl;
    prlimit64 = libc::SYS_prlimit64; unshare = libc::SYS_unshare; mount = libc::SYS_mount;
    umount2 = libc::SYS_umount2; pivot_root = libc::SYS_pivot_root; open_tree = libc::SYS_open_tree;
    move_mount = libc::SYS_move_mount; mount_setattr = libc::SYS_mount_setattr; execve = libc::SYS_execve;
    execveat = libc::SYS_execveat; kill = libc::SYS_kill; close_range = libc::SYS_close_range;
    setpgid = libc::SYS_setpgid; copy_file_range = libc::SYS_copy_file_range; fsync = libc::SYS_fsync;
    fdatasync = libc::SYS_fdatasync; syncfs = libc::SYS_syncfs;
    fstatfs = libc::SYS_fstatfs; statfs = libc::SYS_statfs;
    setns = libc::SYS_setns; gettid = libc::SYS_gettid;
    preadv2 = libc::SYS_preadv2; pwritev2 = libc::SYS_pwritev2; sendfile = libc::SYS_sendfile;
    name_to_handle_at = libc::SYS_name_to_handle_at; open_by_handle_at = libc::SYS_open_by_handle_at;
    statmount = 457; listmount = 458; open_tree_attr = 467; file_getattr = 468; file_setattr = 469;
    setrlimit = libc::SYS_setrlimit; getrlimit = libc::SYS_getrlimit;
}

/// An address in a page that is never mapped.
pub(crate) const BAD_ADDRESS: u64 = 8;

/// The registers of one call and the memory they point to.
#[derive(Debug, Default)]
pub struct Frame {
    regs: Vec<u64>,
    /// Memory that pointers in `regs` refer to; a `Vec` keeps its heap address when it is moved.
    keep: Vec<Vec<u8>>,
    guards: Vec<Guard>,
    out: Option<usize>,
}

impl Frame {
    /// No arguments yet.
    pub(crate) fn new() -> Frame {
        Frame::default()
    }

    /// An integer argument.
    pub(crate) fn int(&mut self, value: u64) {
        self.regs.push(value);
    }

    /// A pointer to a copy of `bytes`.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let address = self.hold(bytes);
        self.regs.push(address);
    }

    /// A pointer to a copy of `bytes` with a NUL behind it.
    pub(crate) fn string(&mut self, bytes: &[u8]) {
        let address = self.hold_string(bytes);
        self.regs.push(address);
    }

    /// A pointer to `len` zeroed bytes that the call may write; see [`Frame::out`].
    pub(crate) fn room(&mut self, len: usize) {
        self.out = Some(self.keep.len());
        // At least one byte, so that the address is one of ours even when the call is told there is no room.
        let mut room = vec![0_u8; len.max(1)];
        self.regs.push(room.as_mut_ptr() as u64);
        self.keep.push(room);
    }

    /// Puts `bytes` into the last [`Frame::room`].
    pub(crate) fn fill(&mut self, bytes: &[u8]) {
        let last = self.out.expect("fill follows room");
        self.keep[last][..bytes.len()].copy_from_slice(bytes);
    }

    /// A pointer `offset` bytes into the last [`Frame::room`].
    pub(crate) fn room_at(&mut self, offset: usize) {
        let last = self.out.expect("room_at follows room");
        assert!(offset < self.keep[last].len(), "inside the room");
        let address = self.keep[last].as_mut_ptr() as u64 + offset as u64;
        self.regs.push(address);
    }

    /// A pointer that faults.
    pub(crate) fn bad(&mut self) {
        self.regs.push(BAD_ADDRESS);
    }

    /// A null pointer.
    pub(crate) fn null(&mut self) {
        self.regs.push(0);
    }

    /// A pointer to `bytes` that end, without a NUL, where an unmapped page begins.
    pub(crate) fn unterminated(&mut self, bytes: &[u8]) {
        let guard = Guard::new(bytes);
        self.regs.push(guard.address);
        self.guards.push(guard);
    }

    /// A pointer to an array of pointers to strings (`None`: a pointer that faults), ended by a null pointer.
    pub(crate) fn vector(&mut self, strings: &[Option<&[u8]>]) {
        let mut table = Vec::with_capacity((strings.len() + 1) * 8);
        for string in strings {
            let address = match string {
                Some(bytes) => self.hold_string(bytes),
                None => BAD_ADDRESS,
            };
            table.extend_from_slice(&address.to_ne_bytes());
        }
        table.extend_from_slice(&[0; 8]);
        self.bytes(&table);
    }

    /// Address and length of a copy of `value`, for a structure that holds a pointer; no register.
    pub(crate) fn detached(&mut self, value: &Mem) -> (u64, u32) {
        match value {
            Mem::Bytes(bytes) => (self.hold(bytes), bytes.len() as u32),
            Mem::Null => (0, 1),
            Mem::Bad | Mem::Unterminated(_) => (BAD_ADDRESS, 1),
        }
    }

    /// Address of `len` zeroed bytes that the call may write, for a structure that holds a pointer; no register.
    pub(crate) fn detached_room(&mut self, len: usize) -> u64 {
        self.room(len);
        self.regs.pop().expect("room pushed a register")
    }

    /// What the call wrote into the last [`Frame::room`].
    pub(crate) fn out(&self) -> &[u8] {
        self.out.map_or(&[], |i| &self.keep[i])
    }

    /// The registers, for a caller that is not the kernel.
    #[cfg(feature = "engine")]
    pub(crate) fn registers(&self) -> [u64; 6] {
        let mut r = [0; 6];
        r[..self.regs.len()].copy_from_slice(&self.regs);
        r
    }

    /// What pointers in the registers lead to, as slices at the addresses they have anyway.
    #[cfg(feature = "engine")]
    pub(crate) fn memory(&mut self) -> rcuwalk::syscall::SliceMemory<'_> {
        let kept = self.keep.iter_mut().map(|bytes| (bytes.as_ptr() as u64, bytes.as_mut_slice()));
        let guarded = self.guards.iter_mut().map(|guard| (guard.address, guard.bytes.as_mut_slice()));
        kept.chain(guarded)
            .fold(Default::default(), |memory: rcuwalk::syscall::SliceMemory<'_>, (base, bytes)| {
                memory.with(base, bytes)
            })
    }

    /// Makes the call through the C interface of the engine, with pointers into this process.
    #[cfg(feature = "engine")]
    pub(crate) fn call_c(&mut self, task: i64, number: u64) -> i64 {
        let [a0, a1, a2, a3, a4, a5] = self.registers();
        let memory = std::ptr::null();
        // SAFETY: the door's first demand: what a call writes to was pushed by `room`, and is ours and as large as stated.
        // No callbacks, no trusted addresses.
        unsafe { rcuwalk_capi::door::rcuwalk_syscall(task, memory, number, a0, a1, a2, a3, a4, a5) }
    }

    /// Makes the call; the kernel's answer or its error number.
    pub(crate) fn call(&mut self, nr: Nr) -> Result<i64, i32> {
        assert!(self.regs.len() <= 6, "a system call has six arguments");
        let mut r = [0_u64; 6];
        r[..self.regs.len()].copy_from_slice(&self.regs);
        // SAFETY: `Nr` names only calls that touch no memory but what pointer arguments refer to. Each such argument
        // was pushed by a method above: it points into memory that `self` owns and keeps until it is dropped (inputs
        // and rooms with the size the argument before or behind it states, or with one that no memory has, for which the
        // kernel moves nothing, or less than the 1 MiB there is then), or to an address that is never mapped.
        let ret = unsafe { libc::syscall(nr.0, r[0], r[1], r[2], r[3], r[4], r[5]) };
        if ret == -1 { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { Ok(ret) }
    }

    /// Makes a call that answers a new descriptor.
    pub(crate) fn open(&mut self, nr: Nr) -> Result<OwnedFd, i32> {
        let fd = self.call(nr)? as RawFd;
        // SAFETY: the call has just made this descriptor; nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn hold(&mut self, bytes: &[u8]) -> u64 {
        let mut copy = bytes.to_vec();
        if copy.is_empty() {
            copy.push(0);
        }
        let address = copy.as_ptr() as u64;
        self.keep.push(copy);
        address
    }

    fn hold_string(&mut self, bytes: &[u8]) -> u64 {
        let mut copy = Vec::with_capacity(bytes.len() + 1);
        copy.extend_from_slice(bytes);
        copy.push(0);
        let address = copy.as_ptr() as u64;
        self.keep.push(copy);
        address
    }
}

/// Bytes that end exactly at an inaccessible page.
#[derive(Debug)]
struct Guard {
    base: *mut libc::c_void,
    len: usize,
    address: u64,
    /// The bytes once more, for callers that are given slices.
    #[cfg_attr(not(feature = "engine"), expect(dead_code, reason = "only the engine is given slices"))]
    bytes: Vec<u8>,
}

const PAGE: usize = 4096;

impl Guard {
    fn new(bytes: &[u8]) -> Guard {
        let data = bytes.len().div_ceil(PAGE) * PAGE;
        let len = data + PAGE;
        // SAFETY: a fresh private anonymous mapping at an address the kernel chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert!(base != libc::MAP_FAILED, "mmap of {len} bytes failed");
        // SAFETY: `data` is inside the mapping of `data + PAGE` bytes.
        let end = unsafe { base.cast::<u8>().add(data) };
        // SAFETY: the `bytes.len() <= data` bytes before `end` are ours and mapped writable.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), end.sub(bytes.len()), bytes.len()) };
        // SAFETY: the last page of our own mapping; nothing refers to it.
        let protected = unsafe { libc::mprotect(end.cast(), PAGE, libc::PROT_NONE) };
        assert!(protected == 0, "mprotect of the guard page failed");
        Guard { base, len, address: end as u64 - bytes.len() as u64, bytes: bytes.to_vec() }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, unmapped once; the frame that pointed to it is being dropped.
        unsafe { libc::munmap(self.base, self.len) };
    }
}

/// The right to fork: held by a process that has one thread.
#[derive(Clone, Debug)]
pub struct SingleThreaded(PhantomData<*const ()>);

impl SingleThreaded {
    /// Checks that the process has one thread. The caller creates none while it holds the token.
    ///
    /// # Errors
    ///
    /// If the process has several threads or `/proc` cannot be read.
    pub fn claim() -> io::Result<SingleThreaded> {
        let threads = std::fs::read_dir("/proc/self/task")?.count();
        if threads == 1 {
            Ok(SingleThreaded(PhantomData))
        } else {
            Err(io::Error::other(format!("the process has {threads} threads; rows are run by forking")))
        }
    }

    /// fork(2): `None` in the child.
    pub(crate) fn fork(&self) -> io::Result<Option<i32>> {
        // SAFETY: the process has one thread (the token), so no lock is held by a thread the child lacks.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(None),
            pid => Ok(Some(pid)),
        }
    }
}

impl SingleThreaded {
    /// clone(2) of a process that shares no memory: `None` in the child.
    pub(crate) fn clone_process(&self, flags: u64) -> io::Result<Option<i32>> {
        /// Signal handlers are shared only together with memory.
        const MEMORY: u64 = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;
        if flags == 0 {
            return self.fork();
        }
        if flags & MEMORY != 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        // SAFETY: without CLONE_VM the child has a copy of the memory, as after fork(2); without a stack of its own it goes
        // on at the same place. The process has one thread (the token).
        match unsafe { libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD as u64, 0, 0, 0, 0) } {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(None),
            pid => Ok(Some(pid as i32)),
        }
    }
}

/// _exit(2): ends the process without running anything of the parent's (buffers, destructors).
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// waitpid(2): the wait status, or `None` if `hang` is false and the child still runs.
pub(crate) fn wait(pid: i32, hang: bool) -> io::Result<Option<i32>> {
    let mut status = 0;
    let flags = if hang { 0 } else { libc::WNOHANG };
    // SAFETY: `status` is a valid place for the result.
    match unsafe { libc::waitpid(pid, &mut status, flags) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ => Ok(Some(status)),
    }
}

/// Time on a processor, in and outside the kernel, of this process and of the children it has waited for.
#[cfg(feature = "engine")]
pub(crate) fn cpu_time() -> std::time::Duration {
    let of = |who: i32| {
        let mut frame = Frame::new();
        frame.int(i64::from(who) as u64);
        // struct rusage; it begins with two pairs of seconds and microseconds.
        frame.room(144);
        // It fails for an unknown `who` only.
        let _ = frame.call(Nr(libc::SYS_getrusage));
        let word =
            |i: usize| u64::from_ne_bytes(frame.out()[8 * i..8 * i + 8].try_into().expect("eight bytes"));
        std::time::Duration::from_micros((word(0) + word(2)) * 1_000_000 + word(1) + word(3))
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}

/// statfs(2): the magic number of the file system that `path` is on.
#[cfg(feature = "engine")]
pub(crate) fn file_system(path: &[u8]) -> Result<i64, i32> {
    let mut frame = Frame::new();
    frame.string(path);
    frame.room(120);
    frame.call(nr::statfs)?;
    Ok(i64::from_ne_bytes(frame.out()[..8].try_into().expect("eight bytes")))
}

/// Makes signals that a failing call would send harmless.
pub(crate) fn ignore_signals() {
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: SIG_IGN installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Moves `fd` to a number of at least `min`, close-on-exec.
pub(crate) fn move_fd(fd: OwnedFd, min: RawFd) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    // SAFETY: F_DUPFD_CLOEXEC takes an integer and touches no memory.
    let new = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, min) };
    if new < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `new` was just made and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}

/// glibc's execvpe(3) in the current process: returns only on failure, with errno.
pub(crate) fn execvpe(file: &[u8], argv: &[&[u8]], path: Option<&[u8]>) -> i32 {
    let own = |s: &[u8]| s.iter().copied().chain([0]).collect::<Vec<u8>>();
    let file = own(file);
    let strings: Vec<Vec<u8>> = argv.iter().map(|s| own(s)).collect();
    let mut table: Vec<*const libc::c_char> = strings.iter().map(|s| s.as_ptr().cast()).collect();
    table.push(std::ptr::null());
    let environment = [std::ptr::null()];
    match path {
        Some(path) => {
            let path = own(path);
            // SAFETY: both strings end with NUL; the process has one thread (a forked child about to exec).
            unsafe { libc::setenv(c"PATH".as_ptr(), path.as_ptr().cast(), 1) };
        }
        // SAFETY: as above.
        None => unsafe {
            libc::unsetenv(c"PATH".as_ptr());
        },
    }
    // SAFETY: glibc leaves errno alone on some paths, so it starts at zero; it is this thread's own.
    unsafe { *libc::__errno_location() = 0 };
    // SAFETY: `file` ends with NUL; `table` and `environment` end with null pointers and point to NUL-ended strings.
    unsafe { libc::execvpe(file.as_ptr().cast(), table.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[cfg(target_arch = "x86_64")]
mod program {
    //! A position-independent program without a library: reports its credentials and its initial stack on
    //! descriptor 998, then exits. It stands in for "a binary" wherever a row executes one.

    std::arch::global_asm!(
        ".pushsection .rodata",
        ".globl rcuwalk_oracle_program",
        "rcuwalk_oracle_program:",
        "mov rbx, rsp",
        "sub rsp, 256",
        "mov eax, 118", // getresuid
        "lea rdi, [rsp]",
        "lea rsi, [rsp+4]",
        "lea rdx, [rsp+8]",
        "syscall",
        "mov eax, 120", // getresgid
        "lea rdi, [rsp+12]",
        "lea rsi, [rsp+16]",
        "lea rdx, [rsp+20]",
        "syscall",
        "mov eax, 122", // setfsuid(-1) answers the present one
        "mov edi, -1",
        "syscall",
        "mov [rsp+24], eax",
        "mov eax, 123", // setfsgid(-1)
        "mov edi, -1",
        "syscall",
        "mov [rsp+28], eax",
        "mov dword ptr [rsp+32], 0x20080522",
        "mov dword ptr [rsp+36], 0",
        "mov eax, 125", // capget
        "lea rdi, [rsp+32]",
        "lea rsi, [rsp+40]",
        "syscall",
        "mov [rsp+64], rbx",
        "mov eax, 1", // write(998, report, 72)
        "mov edi, 998",
        "mov rsi, rsp",
        "mov edx, 72",
        "syscall",
        "2:",
        "mov eax, 1", // write(998, stack, up to the end of the page) until the end of the stack faults:
        "mov edi, 998", // a pipe gives up a page that faults half-way
        "mov rsi, rbx",
        "mov edx, ebx",
        "or edx, -4096",
        "neg edx",
        "syscall",
        "test rax, rax",
        "jle 3f",
        "add rbx, rax",
        "jmp 2b",
        "3:",
        "mov eax, 60", // exit
        "xor edi, edi",
        "syscall",
        ".globl rcuwalk_oracle_program_end",
        "rcuwalk_oracle_program_end:",
        ".popsection",
    );

    // SAFETY: both symbols are defined by the assembly above.
    unsafe extern "C" {
        static rcuwalk_oracle_program: u8;
        static rcuwalk_oracle_program_end: u8;
    }

    /// The machine code between the two symbols.
    pub(super) fn code() -> &'static [u8] {
        let start = &raw const rcuwalk_oracle_program;
        let end = &raw const rcuwalk_oracle_program_end;
        let len = end as usize - start as usize;
        // SAFETY: the `len` bytes from `start` to `end` are one piece of read-only data of this program.
        unsafe { std::slice::from_raw_parts(start, len) }
    }
}

/// Machine code that reports how it was executed.
pub(crate) fn program_code() -> &'static [u8] {
    program::code()
}

/// The functions of the C interface that take pointers, for arguments that Rust vouches for.
#[cfg(feature = "engine")]
pub(crate) mod c {
    use rcuwalk_capi::door::{
        self, rcuwalk_cred, rcuwalk_event, rcuwalk_exec_info, rcuwalk_extent, rcuwalk_options,
    };

    /// A file system.
    pub(crate) fn create(options: &rcuwalk_options) -> i64 {
        // SAFETY: nothing is written through the pointer.
        unsafe { door::rcuwalk_create(options) }
    }

    /// Changes a setting of a file system.
    pub(crate) fn set_sysctl(vfs: i64, name: &str, value: u64) -> i32 {
        let name = [name.as_bytes(), &[0]].concat();
        // SAFETY: nothing is written through the pointer.
        unsafe { door::rcuwalk_sysctl_set(vfs, name.as_ptr().cast(), value) }
    }

    /// A task of root's.
    pub(crate) fn root_task(vfs: i64) -> i64 {
        // SAFETY: a null pointer stands for root.
        unsafe { door::rcuwalk_task_create(vfs, std::ptr::null()) }
    }

    /// Gives a task this credential and these groups.
    pub(crate) fn set_cred(task: i64, cred: rcuwalk_cred, groups: &[u32]) -> i64 {
        let cred = rcuwalk_cred { groups: groups.as_ptr(), ngroups: groups.len(), ..cred };
        // SAFETY: nothing is written through the pointers.
        unsafe { door::rcuwalk_task_set_cred(task, &cred) }.into()
    }

    /// The credential of a task, without its groups.
    pub(crate) fn cred(task: i64) -> Result<rcuwalk_cred, i64> {
        let mut cred = rcuwalk_cred {
            uid: 0,
            euid: 0,
            suid: 0,
            fsuid: 0,
            gid: 0,
            egid: 0,
            sgid: 0,
            fsgid: 0,
            effective: 0,
            permitted: 0,
            inheritable: 0,
            ambient: 0,
            bounding: 0,
            securebits: 0,
            no_new_privs: 0,
            groups: std::ptr::null(),
            ngroups: 0,
        };
        // SAFETY: demand 1: `cred` is ours; there is room for no groups.
        match unsafe { door::rcuwalk_task_get_cred(task, &mut cred) } {
            0 => Ok(cred),
            error => Err(error.into()),
        }
    }

    /// What the last call of a task has left.
    pub(crate) fn event(task: i64) -> Result<rcuwalk_event, i64> {
        let mut event = rcuwalk_event { kind: 0, status: 0, handle: 0, flags: 0 };
        // SAFETY: demand 1: `event` is ours.
        match unsafe { door::rcuwalk_task_event(task, &mut event) } {
            0 => Ok(event),
            error => Err(error.into()),
        }
    }

    /// What is known of a program.
    pub(crate) fn exec_info(exec: i64) -> Result<rcuwalk_exec_info, i64> {
        let mut info = rcuwalk_exec_info { argc: 0, envc: 0, secure: 0, dumpable: 0, size: 0, ino: 0 };
        // SAFETY: demand 1: `info` is ours.
        match unsafe { door::rcuwalk_exec_get_info(exec, &mut info) } {
            0 => Ok(info),
            error => Err(error.into()),
        }
    }

    /// A string of a program.
    pub(crate) fn exec_string(exec: i64, what: u32, index: u32) -> Result<Vec<u8>, i64> {
        // SAFETY: there is no room to write to.
        let len = unsafe { door::rcuwalk_exec_string(exec, what, index, std::ptr::null_mut(), 0) };
        let mut string = vec![0_u8; usize::try_from(len).map_err(|_| len)?];
        // SAFETY: demand 1: `string` is ours, and as large as told.
        let again =
            unsafe { door::rcuwalk_exec_string(exec, what, index, string.as_mut_ptr().cast(), string.len()) };
        if again == len { Ok(string) } else { Err(again) }
    }

    /// Writes the maps of a task's user namespace, or with `open` makes one and opens it.
    pub(crate) fn user_ns(task: i64, open: bool, uids: &[rcuwalk_extent], gids: &[rcuwalk_extent]) -> i64 {
        let function = if open { door::rcuwalk_task_open_user_ns } else { door::rcuwalk_task_map_ids };
        // SAFETY: nothing is written through the pointers.
        unsafe { function(task, uids.as_ptr(), uids.len(), gids.as_ptr(), gids.len()) }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_answers_as_the_kernel_does() {
        let mut frame = Frame::new();
        frame.string(b"/nowhere/at/all");
        frame.int(0);
        assert_eq!(frame.call(nr::access), Err(libc::ENOENT));
        let mut frame = Frame::new();
        frame.bad();
        frame.int(0);
        assert_eq!(frame.call(nr::access), Err(libc::EFAULT));
    }

    #[test]
    fn a_room_receives_the_result() {
        let mut frame = Frame::new();
        frame.room(4096);
        frame.int(4096);
        let len = frame.call(nr::getcwd).expect("there is a working directory");
        let cwd = std::env::current_dir().expect("there is a working directory");
        assert_eq!(&frame.out()[..len as usize - 1], cwd.as_os_str().as_encoded_bytes());
    }

    #[test]
    fn an_unterminated_string_faults_at_its_end() {
        let mut frame = Frame::new();
        frame.unterminated(&[b'x'; 4095]);
        frame.int(0);
        assert_eq!(frame.call(nr::access), Err(libc::EFAULT));
        let mut frame = Frame::new();
        frame.unterminated(&[b'x'; 4096]);
        frame.int(0);
        assert_eq!(frame.call(nr::access), Err(libc::ENAMETOOLONG));
    }
}
