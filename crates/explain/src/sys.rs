//! Asking the host as another user: the only module of this crate with `unsafe` code.
//!
//! A child takes on the identity and makes the calls. It is forked from a program that may have other threads, so between
//! fork and exit it makes system calls and nothing else: no allocation, no lock, no library function. Everything it needs
//! is laid out before, in [`Plan`].
#![allow(unsafe_code)]

use std::ffi::{CString, c_int, c_long};
use std::io::{self, PipeReader, Read};
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A system call with at most six arguments, each a number or a string.
#[derive(Debug, Default)]
pub(crate) struct RawCall {
    pub(crate) nr: c_long,
    pub(crate) args: Vec<Arg>,
    /// Made without `CAP_MKNOD` in force.
    pub(crate) without_mknod: bool,
    /// An execve, which is to end at its first instruction.
    pub(crate) executes: bool,
}

/// An argument.
#[derive(Debug)]
pub(crate) enum Arg {
    Number(i64),
    Text(CString),
    /// Bytes that the kernel reads.
    Bytes(Vec<u8>),
    /// So many bytes that the kernel writes.
    Room(Vec<u8>),
    /// An array of this one string.
    Vector(CString),
    /// An array of nothing.
    Empty,
}

/// Who the child is to be, and from where it asks.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Mount namespace, user namespace: each entered if it is given.
    pub(crate) mnt_ns: Option<OwnedFd>,
    pub(crate) user_ns: Option<OwnedFd>,
    pub(crate) root: Option<OwnedFd>,
    pub(crate) cwd: Option<OwnedFd>,
    /// Real, effective, saved and file system ids; `None` leaves all ids and capabilities as they are.
    pub(crate) ids: Option<Ids>,
    pub(crate) no_new_privs: bool,
    pub(crate) umask: u32,
}

/// Ids and capabilities.
#[derive(Debug)]
pub(crate) struct Ids {
    pub(crate) uids: [u32; 4],
    pub(crate) gids: [u32; 4],
    pub(crate) groups: Vec<u32>,
    /// Inheritable, permitted, effective, bounding, ambient.
    pub(crate) caps: [u64; 5],
    pub(crate) securebits: u32,
}

/// A call as the kernel takes it.
struct Laid {
    nr: c_long,
    args: [u64; 6],
    without_mknod: bool,
    executes: bool,
}

/// What the child writes for each call: 0, or an error number; [`BECAME`] first, if it has its identity.
const BECAME: i32 = -1;

/// The version of capset(2) that takes 64 capabilities.
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;
const CAP_MKNOD: u64 = 1 << 27;

/// Makes the calls, each as the identity of the plan: nothing, or an error number.
///
/// # Errors
///
/// A message: no process could be made, or it could not take on the identity.
pub(crate) fn perform(plan: &Plan, calls: &mut [RawCall]) -> Result<Vec<Result<(), i32>>, String> {
    let mut vectors: Vec<[u64; 2]> = Vec::with_capacity(calls.len() * 2);
    let laid: Vec<Laid> = calls.iter_mut().map(|call| lay(call, &mut vectors)).collect();
    let mut answers = Vec::new();
    // An execve ends its process, so each has one of its own; the others share one.
    let mut rest = laid.as_slice();
    while !rest.is_empty() {
        let run = rest.iter().position(|call| call.executes).unwrap_or(rest.len()).max(1);
        let (now, later) = rest.split_at(run);
        answers.extend(perform_some(plan, now)?);
        rest = later;
    }
    Ok(answers)
}

/// Turns the arguments into registers. `vectors` has room for all arrays, so that none of them moves.
fn lay(call: &mut RawCall, vectors: &mut Vec<[u64; 2]>) -> Laid {
    let mut args = [0; 6];
    for (register, arg) in args.iter_mut().zip(&mut call.args) {
        *register = match arg {
            Arg::Number(number) => *number as u64,
            Arg::Text(text) => text.as_ptr() as u64,
            Arg::Bytes(bytes) => bytes.as_ptr() as u64,
            Arg::Room(room) => room.as_mut_ptr() as u64,
            Arg::Vector(_) | Arg::Empty => {
                assert!(vectors.len() < vectors.capacity(), "an array would move");
                let first = if let Arg::Vector(text) = arg { text.as_ptr() as u64 } else { 0 };
                vectors.push([first, 0]);
                vectors.last().map_or(0, |vector| vector.as_ptr() as u64)
            }
        };
    }
    Laid { nr: call.nr, args, without_mknod: call.without_mknod, executes: call.executes }
}

/// Forks one child for these calls.
fn perform_some(plan: &Plan, calls: &[Laid]) -> Result<Vec<Result<(), i32>>, String> {
    let (reader, writer) = io::pipe().map_err(|e| format!("pipe: {e}"))?;
    // SAFETY: the child makes nothing but system calls (see the module), so locks that other threads held while it was
    // forked do not concern it, and it ends with _exit.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(format!("fork: {}", io::Error::last_os_error())),
        0 => child(plan, calls, writer.as_raw_fd()),
        _ => drop(writer),
    }
    let executed = if calls.iter().any(|call| call.executes) { Some(end_traced(pid)) } else { None };
    let answers = read_answers(reader);
    if executed.is_none() {
        reap(pid);
    }
    let mut answers = answers.map_err(|e| format!("the child's answers: {e}"))?.into_iter();
    match answers.next() {
        Some(BECAME) => {}
        Some(step) => return Err(format!("taking on the identity: {}", step_name(step))),
        None => return Err("the child ended before it had its identity".to_owned()),
    }
    let mut results: Vec<Result<(), i32>> =
        answers.map(|errno| if errno == 0 { Ok(()) } else { Err(errno) }).collect();
    if executed == Some(true) {
        results.push(Ok(()));
    }
    if results.len() == calls.len() { Ok(results) } else { Err("the child ended too early".to_owned()) }
}

fn read_answers(mut reader: PipeReader) -> io::Result<Vec<i32>> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    let (words, _) = bytes.as_chunks::<4>();
    Ok(words.iter().map(|word| i32::from_ne_bytes(*word)).collect())
}

/// Waits for a traced child; says whether it stopped at a new program, which then is killed before it ran.
fn end_traced(pid: c_int) -> bool {
    let mut status = 0;
    // SAFETY: `status` is a place for the result.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    if waited != pid || !libc::WIFSTOPPED(status) {
        return false;
    }
    // SAFETY: the process is our child, which has stopped and was not waited for to its end.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    reap(pid);
    libc::WSTOPSIG(status) == libc::SIGTRAP
}

fn reap(pid: c_int) {
    let mut status = 0;
    // SAFETY: `status` is a place for the result.
    while unsafe { libc::waitpid(pid, &mut status, 0) } == -1
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// Steps of [`become_identity`], by number.
const STEPS: [&str; 14] = [
    "entering the mount namespace",
    "changing the root",
    "the root directory",
    "the current directory",
    "securebits",
    "groups",
    "group ids",
    "user ids",
    "the bounding set",
    "entering the user namespace",
    "securebits in force",
    "capabilities",
    "ambient capabilities",
    "no_new_privs",
];

/// What a failed step reports: its number in the upper half, its error in the lower.
fn step_name(report: i32) -> String {
    let (step, errno) = ((report >> 16) as usize, report & 0xffff);
    let step = STEPS.get(step).copied().unwrap_or("a step");
    format!("{step}: {}", io::Error::from_raw_os_error(errno))
}

/// The child: becomes the other user, makes the calls, reports, and ends.
fn child(plan: &Plan, calls: &[Laid], report: RawFd) -> ! {
    let tell = |word: i32| {
        let bytes = word.to_ne_bytes();
        // SAFETY: four bytes of a local array.
        unsafe { libc::write(report, bytes.as_ptr().cast(), bytes.len()) };
    };
    if let Err((step, errno)) = become_identity(plan) {
        tell((step as i32) << 16 | errno);
    } else {
        tell(BECAME);
        for call in calls {
            tell(make(call));
        }
    }
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// Makes one call; 0, or the error number.
fn make(call: &Laid) -> i32 {
    if call.without_mknod && lose_mknod().is_err() {
        return libc::ENOSYS;
    }
    if call.executes {
        // SAFETY: PTRACE_TRACEME takes no pointers.
        unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
    }
    let [a, b, c, d, e, f] = call.args;
    // SAFETY: the registers were laid out by `lay`: numbers, or addresses of strings, structures and rooms that the caller
    // of `perform` keeps, with the sizes that the call expects; the child has a copy of all of them.
    let answer = unsafe { libc::syscall(call.nr, a, b, c, d, e, f) };
    if answer >= 0 && [libc::SYS_openat, libc::SYS_openat2].contains(&call.nr) {
        // SAFETY: the descriptor was just made, and nobody else knows it.
        unsafe { libc::close(answer as RawFd) };
    }
    if answer >= 0 { 0 } else { errno() }
}

fn errno() -> i32 {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() }
}

type Step = Result<(), (usize, i32)>;

/// Turns the return value of a system call into the result of a step.
fn step(number: usize, answer: c_long) -> Step {
    if answer >= 0 { Ok(()) } else { Err((number, errno())) }
}

/// Raw calls: those of the C library would try to change all threads.
fn become_identity(plan: &Plan) -> Step {
    enter(plan)?;
    if let Some(ids) = &plan.ids {
        take_ids(ids)?;
        if let Some(ns) = &plan.user_ns {
            // SAFETY: an open descriptor and a flag.
            step(9, unsafe { libc::syscall(libc::SYS_setns, ns.as_raw_fd(), libc::CLONE_NEWUSER) })?;
        }
        take_caps(ids)?;
    }
    // SAFETY: umask takes a number.
    unsafe { libc::umask(plan.umask) };
    if plan.no_new_privs {
        prctl(13, libc::PR_SET_NO_NEW_PRIVS, 1, 0)?;
    }
    Ok(())
}

/// Mount namespace, root and current directory.
fn enter(plan: &Plan) -> Step {
    if let Some(ns) = &plan.mnt_ns {
        // SAFETY: an open descriptor and a flag.
        step(0, unsafe { libc::syscall(libc::SYS_setns, ns.as_raw_fd(), libc::CLONE_NEWNS) })?;
    }
    if let Some(root) = &plan.root {
        // SAFETY: an open descriptor.
        step(2, unsafe { libc::syscall(libc::SYS_fchdir, root.as_raw_fd()) })?;
        // SAFETY: a constant string.
        step(1, unsafe { libc::syscall(libc::SYS_chroot, c".".as_ptr()) })?;
    }
    if let Some(cwd) = &plan.cwd {
        // SAFETY: an open descriptor.
        step(3, unsafe { libc::syscall(libc::SYS_fchdir, cwd.as_raw_fd()) })?;
    }
    Ok(())
}

fn prctl(number: usize, option: c_int, a: u64, b: u64) -> Step {
    // SAFETY: the options used here take numbers.
    step(number, unsafe { libc::syscall(libc::SYS_prctl, option, a, b, 0, 0) })
}

/// With fixups off, capabilities survive the change of ids until they are set.
const SECBIT_NO_SETUID_FIXUP: u64 = 1 << 2;

fn take_ids(ids: &Ids) -> Step {
    prctl(4, libc::PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0)?;
    // SAFETY: the length is that of the list.
    step(5, unsafe { libc::syscall(libc::SYS_setgroups, ids.groups.len(), ids.groups.as_ptr()) })?;
    let [gid, egid, sgid, fsgid] = ids.gids;
    // SAFETY: numbers.
    step(6, unsafe { libc::syscall(libc::SYS_setresgid, gid, egid, sgid) })?;
    // SAFETY: a number. It answers the old id, whatever happens.
    unsafe { libc::syscall(libc::SYS_setfsgid, fsgid) };
    let [uid, euid, suid, fsuid] = ids.uids;
    // SAFETY: numbers.
    step(7, unsafe { libc::syscall(libc::SYS_setresuid, uid, euid, suid) })?;
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_setfsuid, fsuid) };
    Ok(())
}

fn take_caps(ids: &Ids) -> Step {
    let [inheritable, permitted, effective, bounding, ambient] = ids.caps;
    for cap in (0..64).filter(|cap| bounding >> cap & 1 == 0) {
        // SAFETY: numbers. Capabilities that do not exist cannot be dropped, and need not be.
        if unsafe { libc::syscall(libc::SYS_prctl, libc::PR_CAPBSET_READ, cap, 0, 0, 0) } == 1 {
            prctl(8, libc::PR_CAPBSET_DROP, cap, 0)?;
        }
    }
    prctl(10, libc::PR_SET_SECUREBITS, u64::from(ids.securebits), 0)?;
    capset(effective, permitted, inheritable)?;
    for cap in (0..64).filter(|cap| ambient >> cap & 1 != 0) {
        prctl(12, libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE as u64, cap)?;
    }
    Ok(())
}

const HEADER: [u32; 2] = [CAPABILITY_VERSION_3, 0];

fn capset(effective: u64, permitted: u64, inheritable: u64) -> Step {
    let data = [
        [effective as u32, permitted as u32, inheritable as u32],
        [(effective >> 32) as u32, (permitted >> 32) as u32, (inheritable >> 32) as u32],
    ];
    // SAFETY: header and data have the layout of version 3.
    step(11, unsafe { libc::syscall(libc::SYS_capset, HEADER.as_ptr(), data.as_ptr()) })
}

/// Takes `CAP_MKNOD` out of what is in force.
fn lose_mknod() -> Step {
    let mut data = [[0_u32; 3]; 2];
    // SAFETY: header and data have the layout of version 3.
    step(11, unsafe { libc::syscall(libc::SYS_capget, HEADER.as_ptr(), data.as_mut_ptr()) })?;
    data[0][0] &= !(CAP_MKNOD as u32);
    // SAFETY: as above.
    step(11, unsafe { libc::syscall(libc::SYS_capset, HEADER.as_ptr(), data.as_ptr()) })
}

/// The numbers of the active security modules (`LSM_ID_*`); `None` if the kernel is older than lsm_list_modules(2).
pub(crate) fn security_modules() -> Option<Vec<u64>> {
    const LSM_LIST_MODULES: c_long = 461;
    let mut ids = [0_u64; 64];
    let mut size = size_of_val(&ids) as u32;
    // SAFETY: a room for numbers, and its size in bytes.
    let count = unsafe { libc::syscall(LSM_LIST_MODULES, ids.as_mut_ptr(), &raw mut size, 0) };
    usize::try_from(count).ok().and_then(|count| ids.get(..count)).map(<[u64]>::to_vec)
}

/// Bytes of `struct stat`.
pub(crate) const STAT_SIZE: usize = size_of::<libc::stat>();

/// The numbers of the calls that are made.
pub(crate) mod nr {
    use std::ffi::c_long;
    pub(crate) const FACCESSAT2: c_long = libc::SYS_faccessat2;
    pub(crate) const NEWFSTATAT: c_long = libc::SYS_newfstatat;
    pub(crate) const READLINKAT: c_long = libc::SYS_readlinkat;
    pub(crate) const OPENAT: c_long = libc::SYS_openat;
    pub(crate) const OPENAT2: c_long = libc::SYS_openat2;
    pub(crate) const MKNODAT: c_long = libc::SYS_mknodat;
    pub(crate) const UNLINKAT: c_long = libc::SYS_unlinkat;
    pub(crate) const SETXATTR: c_long = libc::SYS_setxattr;
    pub(crate) const CHDIR: c_long = libc::SYS_chdir;
    pub(crate) const EXECVE: c_long = libc::SYS_execve;
}
