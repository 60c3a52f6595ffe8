//! The functions of the interface. Those for the calls by name are written by build.rs, from `calls.txt`.
//!
//! # Safety
//!
//! No pointer is dereferenced here, so reading from anywhere is safe. What remains are demands on the caller, the same for
//! all functions:
//!
//! 1. Memory that a call is to write to may be written to: it is the caller's, and no other thread is using it.
//! 2. Callbacks ([`rcuwalk_memory`]) are functions of the types that the header gives them, and return.
//! 3. With `RCUWALK_TRUSTED` as memory, every address is right.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

/// The calls by name. Each returns what the system call returns, an error as a negated number, with the memory of this
/// process for its pointers. What the names mean is in section 2 of the manual; what `task` is, in the module above.
///
/// # Safety
///
/// The first demand of the module above: what a call writes to is the caller's.
// One way to make a word of an argument does for all types.
#[allow(clippy::unnecessary_cast)]
mod calls {
    use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

    use libc::{iovec, mount_attr, open_how, rlimit, stat, statfs, statx, timespec};
    use rcuwalk::syscall::nr;

    use super::{call, rcuwalk_handle};

    include!(concat!(env!("OUT_DIR"), "/calls.rs"));
}

pub use calls::*;

use std::cell::RefCell;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fs::File;
use std::io::BufWriter;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rcuwalk::cred::{CapSet, Cred};
use rcuwalk::perm::Protected;
use rcuwalk::syscall::{Event, UserMemory};
use rcuwalk::uapi::{NGROUPS_MAX, PATH_MAX};
use rcuwalk::userns::{IdExtent, UserNamespace};
use rcuwalk::{Errno, Exec, ProcFile, Result, Sysctl, Vfs};
use rcuwalk_host::{ImportError, ImportOptions, Progress};

use crate::gate::{enter, lock};
use crate::handle::{self, Object};
use crate::sys::{Callbacks, Trusted, own_memory};

/// Names a file system, a task or a program. Positive; a function that makes one returns it, or a negated error number.
pub type rcuwalk_handle = i64;

/// Settings of a file system. Zero in all of them is what a null pointer means.
#[repr(C)]
pub struct rcuwalk_options {
    /// Most objects (inodes, and names) it can hold; 0 for 16,777,216, which only reserves addresses.
    pub capacity: u32,
    /// fs.protected_symlinks: 0 or 1. rcuwalk_sysctl_set changes this and the next three later.
    pub protected_symlinks: u8,
    /// fs.protected_hardlinks: 0 or 1.
    pub protected_hardlinks: u8,
    /// fs.protected_regular: 0, 1 or 2.
    pub protected_regular: u8,
    /// fs.protected_fifos: 0, 1 or 2.
    pub protected_fifos: u8,
    /// Most bytes of file contents; 0 for no limit.
    pub size_limit: u64,
}

/// Who a task is. rcuwalk_cred_init fills one.
#[repr(C)]
pub struct rcuwalk_cred {
    /// Real user id.
    pub uid: u32,
    /// Effective user id.
    pub euid: u32,
    /// Saved user id.
    pub suid: u32,
    /// Filesystem user id.
    pub fsuid: u32,
    /// Real group id.
    pub gid: u32,
    /// Effective group id.
    pub egid: u32,
    /// Saved group id.
    pub sgid: u32,
    /// Filesystem group id.
    pub fsgid: u32,
    /// Effective capabilities, bit n for capability n.
    pub effective: u64,
    /// Permitted capabilities.
    pub permitted: u64,
    /// Inheritable capabilities.
    pub inheritable: u64,
    /// Ambient capabilities.
    pub ambient: u64,
    /// Bounding set.
    pub bounding: u64,
    /// SECBIT_*.
    pub securebits: u32,
    /// Whether PR_SET_NO_NEW_PRIVS is on: 0 or 1. It cannot be taken off a task.
    pub no_new_privs: u32,
    /// Supplementary groups.
    pub groups: *const u32,
    /// How many there are.
    pub ngroups: usize,
}

/// A range of an id map: ids from `first` on inside are ids from `lower` on outside.
#[repr(C)]
pub struct rcuwalk_extent {
    /// First id inside.
    pub first: u32,
    /// First id outside.
    pub lower: u32,
    /// How many.
    pub count: u32,
}

/// Memory of a program, for rcuwalk_syscall. Both functions return 0, or anything else for a fault, and may call the
/// interface again, though not with the same task (-EBUSY).
#[repr(C)]
pub struct rcuwalk_memory {
    /// Passed to the functions.
    pub user: *mut c_void,
    /// Copies `len` bytes at the program's address `from` to `to`.
    pub read: Option<extern "C" fn(user: *mut c_void, to: *mut c_void, from: u64, len: usize) -> c_int>,
    /// Copies `len` bytes at `from` to the program's address `to`.
    pub write: Option<extern "C" fn(user: *mut c_void, to: u64, from: *const c_void, len: usize) -> c_int>,
}

/// What a call leaves to the program that runs the task.
#[repr(C)]
pub struct rcuwalk_event {
    /// RCUWALK_EVENT_*.
    pub kind: u32,
    /// RCUWALK_EVENT_EXITED: the status.
    pub status: i32,
    /// RCUWALK_EVENT_CLONED: the new task. RCUWALK_EVENT_EXECUTED: the program. The caller's, to be destroyed.
    pub handle: rcuwalk_handle,
    /// RCUWALK_EVENT_CLONED: CLONE_* flags. RCUWALK_EVENT_EXITED: 1 if all threads of the process end.
    pub flags: u64,
}

/// The last call has left nothing.
pub const RCUWALK_EVENT_NONE: u32 = 0;
/// fork, vfork, clone or clone3 made a task. In it the call returns 0.
pub const RCUWALK_EVENT_CLONED: u32 = 1;
/// execve or execveat found a program to run.
pub const RCUWALK_EVENT_EXECUTED: u32 = 2;
/// The task has ended; its calls are -ESRCH from now on.
pub const RCUWALK_EVENT_EXITED: u32 = 3;

/// What a task is about to run.
#[repr(C)]
pub struct rcuwalk_exec_info {
    /// How many arguments, at least one.
    pub argc: u32,
    /// How many strings the environment has.
    pub envc: u32,
    /// AT_SECURE: 1 if the program has privileges that who started it has not.
    pub secure: u32,
    /// Whether others of the same user may look into the process.
    pub dumpable: u32,
    /// Bytes of the file.
    pub size: u64,
    /// Its inode number.
    pub ino: u64,
}

/// rcuwalk_exec_string: the path as given (AT_EXECFN).
pub const RCUWALK_EXEC_FILENAME: u32 = 0;
/// rcuwalk_exec_string: the path of the file to load: the last interpreter of a chain of scripts.
pub const RCUWALK_EXEC_INTERP: u32 = 1;
/// rcuwalk_exec_string: the dynamic loader that the file asks for; -ENOENT if it asks for none.
pub const RCUWALK_EXEC_LOADER: u32 = 2;
/// rcuwalk_exec_string: an argument.
pub const RCUWALK_EXEC_ARGV: u32 = 3;
/// rcuwalk_exec_string: a string of the environment.
pub const RCUWALK_EXEC_ENVP: u32 = 4;

/// rcuwalk_import: keep the contents of files, not only their sizes.
pub const RCUWALK_IMPORT_CONTENTS: u32 = 1;
/// rcuwalk_import: stay within one file system.
pub const RCUWALK_IMPORT_ONE_FILE_SYSTEM: u32 = 2;
/// rcuwalk_import: leave out extended attributes, and with them ACLs and file capabilities.
pub const RCUWALK_IMPORT_NO_XATTRS: u32 = 4;

thread_local! {
    /// What rcuwalk_error_text tells.
    static ERROR_TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Notes what went wrong, for rcuwalk_error_text.
fn explained(text: String, errno: Errno) -> Errno {
    ERROR_TEXT.set(text);
    errno
}

/// Memory of the caller, checked.
fn read<const N: usize>(address: u64) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    own_memory().copy_from_user(&mut bytes, address)?;
    Ok(bytes)
}

fn write(address: u64, bytes: &[u8]) -> Result<()> {
    own_memory().copy_to_user(address, bytes)
}

/// The 32-bit word at byte `at`.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].first_chunk().copied().map_or(0, u32::from_ne_bytes)
}

/// The 64-bit word at byte `at`.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].first_chunk().copied().map_or(0, u64::from_ne_bytes)
}

/// A path of the running machine.
fn path(address: *const c_char) -> Result<PathBuf> {
    let mut bytes = vec![0; PATH_MAX];
    let len = own_memory().strncpy_from_user(&mut bytes, address as u64)?;
    match len {
        0 => Err(Errno::ENOENT),
        PATH_MAX => Err(Errno::ENAMETOOLONG),
        len => Ok(PathBuf::from(OsStr::from_bytes(&bytes[..len]))),
    }
}

/// Puts as much of `bytes` as there is room for; tells how many there are.
fn put(bytes: &[u8], to: *mut c_void, room: usize) -> Result<i64> {
    write(to as u64, &bytes[..bytes.len().min(room)])?;
    Ok(bytes.len() as i64)
}

/// The version of the library, as "1.2.3".
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no NUL in it"),
        };
    VERSION.as_ptr()
}

/// Makes a file system: an empty root directory, of root, mode 0755. `options` may be null.
///
/// Errors: -EFAULT, -ENOMEM, -EMFILE (too many handles), -EINVAL (options).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_create(options: *const rcuwalk_options) -> rcuwalk_handle {
    enter(|| {
        let options: [u8; size_of::<rcuwalk_options>()] =
            if options.is_null() { [0; size_of::<rcuwalk_options>()] } else { read(options as u64)? };
        let [symlinks, hardlinks, regular, fifos] = [options[4], options[5], options[6], options[7]];
        if symlinks > 1 || hardlinks > 1 || regular > 2 || fifos > 2 {
            return Err(Errno::EINVAL);
        }
        let protected = Protected { symlinks: symlinks == 1, hardlinks: hardlinks == 1, regular, fifos };
        let mut builder = Vfs::builder().protected(protected);
        if u32_at(&options, 0) != 0 {
            builder = builder.capacity(u32_at(&options, 0));
        }
        if u64_at(&options, 8) != 0 {
            builder = builder.size_limit(u64_at(&options, 8));
        }
        handle::insert(Object::Vfs(builder.build()?))
    })
}

/// Gives up a file system, task or program. A call on it in another thread goes on until it returns; a file
/// system lasts as long as its last task.
///
/// Errors: -ESRCH (no such handle, or not any more).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_destroy(object: rcuwalk_handle) -> c_int {
    enter(|| handle::remove(object).map(|_| 0)) as c_int
}

/// The setting of this name, as sysctl(8) writes it.
fn sysctl(name: *const c_char) -> Result<Sysctl> {
    let mut bytes = [0; 64];
    let len = own_memory().strncpy_from_user(&mut bytes, name as u64)?;
    std::str::from_utf8(&bytes[..len]).ok().and_then(Sysctl::named).ok_or(Errno::ENOENT)
}

/// The value of a setting of the file system `vfs`, named as sysctl(8) writes it: fs.protected_symlinks,
/// fs.protected_hardlinks, fs.protected_regular, fs.protected_fifos, fs.file-max, fs.nr_open, fs.mount-max,
/// user.max_user_namespaces, user.max_mnt_namespaces.
///
/// Errors: -ESRCH, -EINVAL (another handle), -EFAULT, -ENOENT (no such setting).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_sysctl_get(vfs: rcuwalk_handle, name: *const c_char) -> i64 {
    enter(|| Ok(handle::vfs(vfs)?.sysctl(sysctl(name)?) as i64))
}

/// Changes a setting, for all tasks of the file system from now on.
///
/// Errors: as rcuwalk_sysctl_get; -EINVAL (a value out of range).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_sysctl_set(vfs: rcuwalk_handle, name: *const c_char, value: u64) -> c_int {
    enter(|| handle::vfs(vfs)?.set_sysctl(sysctl(name)?, value).map(|()| 0)) as c_int
}

/// Imports a directory of the running machine, or a tar archive (plain, gzip or zstd), into the empty file system `vfs`.
/// `flags`: RCUWALK_IMPORT_*. Returns how many entries are not as in the source.
///
/// Errors: -ESRCH, -EINVAL (another handle, flags, neither directory nor archive), -EFAULT, -ENOENT, -EACCES and what
/// else opening the source answers, -EBADMSG (a damaged archive), -EFBIG (an archive that unpacks to more than is sane),
/// -ENOSPC (the file system is full), -ENOMEM. rcuwalk_error_text says more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_import(vfs: rcuwalk_handle, source: *const c_char, flags: u32) -> i64 {
    const KNOWN: u32 = RCUWALK_IMPORT_CONTENTS | RCUWALK_IMPORT_ONE_FILE_SYSTEM | RCUWALK_IMPORT_NO_XATTRS;
    enter(|| {
        let vfs = handle::vfs(vfs)?;
        let source = path(source)?;
        if flags & !KNOWN != 0 {
            return Err(Errno::EINVAL);
        }
        let options = ImportOptions {
            contents: flags & RCUWALK_IMPORT_CONTENTS != 0,
            one_file_system: flags & RCUWALK_IMPORT_ONE_FILE_SYSTEM != 0,
            xattrs: flags & RCUWALK_IMPORT_NO_XATTRS == 0,
            ..ImportOptions::default()
        };
        let imported =
            rcuwalk_host::open(&source).and_then(|source| source.import(&vfs, &options, &Progress::new()));
        imported
            .map(|report| report.problem_count as i64)
            .map_err(|error| explained(error.to_string(), errno_of(&error)))
    })
}

/// The error number that tells most about a failed import.
fn errno_of(error: &ImportError) -> Errno {
    let os = |error: &std::io::Error| error.raw_os_error().and_then(Errno::from_raw).unwrap_or(Errno::EIO);
    match error {
        ImportError::Open { source, .. } | ImportError::Thread(source) => os(source),
        ImportError::NotADirectory { .. } => Errno::ENOTDIR,
        ImportError::NotATree { .. } => Errno::EINVAL,
        ImportError::Archive { .. } => Errno::EBADMSG,
        ImportError::Limit { .. } => Errno::EFBIG,
        ImportError::Insert { errno, .. } => *errno,
        ImportError::Cancelled => Errno::ECANCELED,
        _ => Errno::EIO,
    }
}

/// Saves a file system as a tar archive (PAX), which rcuwalk_import reads back: contents and holes, ids, times, extended
/// attributes, ACLs, flags, devices, hard links. The file `target` of the running machine appears when it is whole; one that
/// was there is replaced. Returns how many objects are not in it as they are, such as sockets.
///
/// Errors: -ESRCH, -EINVAL (another handle), -EFAULT, -ENOENT, -EACCES, -ENOSPC and what else writing answers.
/// rcuwalk_error_text says more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_save(vfs: rcuwalk_handle, target: *const c_char) -> i64 {
    enter(|| {
        let vfs = handle::vfs(vfs)?;
        let target = path(target)?;
        save(&vfs, &target).map_err(|error| {
            let errno = error.raw_os_error().and_then(Errno::from_raw).unwrap_or(Errno::EIO);
            explained(format!("cannot save to {}: {error}", target.display()), errno)
        })
    })
}

/// Writes the archive beside its place, and then puts it there.
fn save(vfs: &Vfs, target: &Path) -> std::io::Result<i64> {
    let mut beside = target.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let saved = File::create_new(&beside).and_then(|file| {
        let mut output = BufWriter::with_capacity(1 << 16, file);
        let saved = rcuwalk_host::save_tar(vfs, &mut output)?;
        output.into_inner().map_err(|error| error.into_error())?;
        std::fs::rename(&beside, target)?;
        Ok(saved)
    });
    if saved.is_err() {
        // It may not have come to be; the error that is told is the first one.
        let _ = std::fs::remove_file(&beside);
    }
    saved.map(|saved| saved.problem_count as i64)
}

/// What the last rcuwalk_import or rcuwalk_save of this thread that failed has to say, with a NUL, as far as there is room.
/// Returns its length without the NUL; 0 if none failed.
///
/// Errors: -EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_error_text(buffer: *mut c_char, size: usize) -> i64 {
    enter(|| {
        ERROR_TEXT.with_borrow(|text| {
            if size == 0 {
                return Ok(text.len() as i64);
            }
            let shown = &text.as_bytes()[..text.len().min(size - 1)];
            write(buffer as u64, &[shown, b"\0"].concat())?;
            Ok(text.len() as i64)
        })
    })
}

/// Fills `cred` with a user who has just logged in: all user ids `uid`, all group ids `gid`, no supplementary groups, every
/// capability for user 0 and none for any other user.
///
/// Errors: -EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_cred_init(cred: *mut rcuwalk_cred, uid: u32, gid: u32) -> c_int {
    enter(|| {
        let caps = if uid == 0 { CapSet::FULL.0 } else { 0 };
        let mut bytes = Vec::with_capacity(size_of::<rcuwalk_cred>());
        for id in [uid, uid, uid, uid, gid, gid, gid, gid] {
            bytes.extend_from_slice(&id.to_ne_bytes());
        }
        for set in [caps, caps, 0, 0, CapSet::FULL.0] {
            bytes.extend_from_slice(&set.to_ne_bytes());
        }
        bytes.resize(size_of::<rcuwalk_cred>(), 0);
        write(cred as u64, &bytes)?;
        Ok(0)
    }) as c_int
}

const _: () = {
    assert!(size_of::<rcuwalk_cred>() == 96 && std::mem::offset_of!(rcuwalk_cred, effective) == 32);
    assert!(
        std::mem::offset_of!(rcuwalk_cred, securebits) == 72
            && std::mem::offset_of!(rcuwalk_cred, groups) == 80
    );
    assert!(size_of::<rcuwalk_options>() == 16 && size_of::<rcuwalk_extent>() == 12);
    assert!(size_of::<rcuwalk_memory>() == 24 && size_of::<rcuwalk_event>() == 24);
    assert!(size_of::<rcuwalk_exec_info>() == 32);
};

/// Reads a credential, and whether it has no_new_privs.
fn cred_at(cred: *const rcuwalk_cred) -> Result<(Cred, bool)> {
    if cred.is_null() {
        return Ok((Cred::root(), false));
    }
    let bytes: [u8; size_of::<rcuwalk_cred>()] = read(cred as u64)?;
    let id = |i: usize| u32_at(&bytes, 4 * i);
    let caps = |i: usize| CapSet(u64_at(&bytes, 32 + 8 * i)) & CapSet::FULL;
    let ngroups = u64_at(&bytes, 88);
    if ngroups > NGROUPS_MAX as u64 || u32_at(&bytes, 76) > 1 {
        return Err(Errno::EINVAL);
    }
    let mut groups = vec![0; 4 * ngroups as usize];
    own_memory().copy_from_user(&mut groups, u64_at(&bytes, 80))?;
    let groups: Vec<u32> = groups.as_chunks().0.iter().map(|&word| u32::from_ne_bytes(word)).collect();
    let cred = Cred::builder()
        .uids(id(0), id(1), id(2), id(3))
        .gids(id(4), id(5), id(6), id(7))
        .groups(&groups)
        .effective(caps(0))
        .permitted(caps(1))
        .inheritable(caps(2))
        .ambient(caps(3))
        .bounding(caps(4))
        .securebits(u32_at(&bytes, 72))
        .build()?;
    Ok((cred, u32_at(&bytes, 76) == 1))
}

/// Makes a task in `vfs`: root and current directory `/`, umask 022, no open files. A null `cred` is root's.
///
/// A task makes one call at a time: calls on one task from several threads wait for each other. Threads that are to run side
/// by side have a task each (rcuwalk_task_fork, rcuwalk_task_thread).
///
/// Errors: -ESRCH, -EINVAL (another handle; a credential that cannot be), -EFAULT, -EMFILE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_task_create(
    vfs: rcuwalk_handle,
    cred: *const rcuwalk_cred,
) -> rcuwalk_handle {
    enter(|| {
        let vfs = handle::vfs(vfs)?;
        let (cred, no_new_privs) = cred_at(cred)?;
        let mut task = vfs.task(cred);
        if no_new_privs {
            task.set_no_new_privs();
        }
        handle::insert(Object::Task(Arc::new(Mutex::new(task))))
    })
}

/// Replaces the credential of a task without asking what the task may do: no system call does this.
///
/// Errors: -ESRCH, -EINVAL, -EFAULT, -EBUSY (from a callback of the same task).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_task_set_cred(task: rcuwalk_handle, cred: *const rcuwalk_cred) -> c_int {
    enter(|| {
        let task = handle::task(task)?;
        let (cred, no_new_privs) = cred_at(cred)?;
        let mut task = lock(&task)?;
        task.set_cred(cred);
        if no_new_privs {
            task.set_no_new_privs();
        }
        Ok(0)
    }) as c_int
}

/// Who a task is. Of the groups, as many are stored as the `ngroups` of `cred` leaves room for; `ngroups` becomes their
/// number.
///
/// Errors: -ESRCH, -EINVAL, -EFAULT, -EBUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_task_get_cred(task: rcuwalk_handle, cred: *mut rcuwalk_cred) -> c_int {
    enter(|| {
        let task = handle::task(task)?;
        let task = lock(&task)?;
        let old: [u8; size_of::<rcuwalk_cred>()] = read(cred as u64)?;
        let who = task.cred();
        let mut bytes = Vec::with_capacity(old.len());
        for id in
            [who.uid(), who.euid(), who.suid(), who.fsuid(), who.gid(), who.egid(), who.sgid(), who.fsgid()]
        {
            bytes.extend_from_slice(&id.to_ne_bytes());
        }
        for set in [who.effective(), who.permitted(), who.inheritable(), who.ambient(), who.bounding()] {
            bytes.extend_from_slice(&set.0.to_ne_bytes());
        }
        bytes.extend_from_slice(&who.securebits().to_ne_bytes());
        bytes.extend_from_slice(&u32::from(task.no_new_privs()).to_ne_bytes());
        let (groups, room) = (u64_at(&old, 80), usize::try_from(u64_at(&old, 88)).unwrap_or(usize::MAX));
        bytes.extend_from_slice(&groups.to_ne_bytes());
        bytes.extend_from_slice(&who.groups().len().to_ne_bytes());
        let stored: Vec<u8> = who.groups().iter().take(room).flat_map(|gid| gid.to_ne_bytes()).collect();
        write(groups, &stored)?;
        write(cred as u64, &bytes)?;
        Ok(0)
    }) as c_int
}

/// A child process of a task, as fork(2) makes one: open files are shared, the descriptor table is its own.
///
/// Errors: -ESRCH, -EINVAL, -EMFILE, -EBUSY.
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_task_fork(task: rcuwalk_handle) -> rcuwalk_handle {
    enter(|| {
        let parent = handle::task(task)?;
        let child = lock(&parent)?.fork();
        handle::insert(Object::Task(Arc::new(Mutex::new(child))))
    })
}

/// Another thread of a task's process: root, current directory, umask and descriptor table are shared.
///
/// Errors: as rcuwalk_task_fork.
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_task_thread(task: rcuwalk_handle) -> rcuwalk_handle {
    enter(|| {
        let process = handle::task(task)?;
        let thread = lock(&process)?.thread();
        handle::insert(Object::Task(Arc::new(Mutex::new(thread))))
    })
}

/// `ns/user`, for setns and mount_setattr.
pub const RCUWALK_PROC_NS_USER: c_int = 0;
/// `ns/mnt`, for setns.
pub const RCUWALK_PROC_NS_MNT: c_int = 1;
/// `uid_map`, to be written once.
pub const RCUWALK_PROC_UID_MAP: c_int = 2;
/// `gid_map`, to be written once.
pub const RCUWALK_PROC_GID_MAP: c_int = 3;
/// `setgroups`: `allow` or `deny` is to be written.
pub const RCUWALK_PROC_SETGROUPS: c_int = 4;

/// The ranges of an id map.
fn extents(address: *const rcuwalk_extent, count: usize) -> Result<Vec<IdExtent>> {
    /// The kernel takes no more.
    const MOST: usize = 340;
    if count > MOST {
        return Err(Errno::EINVAL);
    }
    let mut bytes = vec![0; count * size_of::<rcuwalk_extent>()];
    own_memory().copy_from_user(&mut bytes, address as u64)?;
    let extent =
        |bytes: &[u8]| IdExtent { first: u32_at(bytes, 0), lower: u32_at(bytes, 4), count: u32_at(bytes, 8) };
    Ok(bytes.chunks_exact(size_of::<rcuwalk_extent>()).map(extent).collect())
}

/// Writes the id maps of a task's user namespace (after unshare(CLONE_NEWUSER)), as root outside would.
///
/// Errors: -ESRCH, -EINVAL (maps), -EPERM (there are maps already), -EFAULT, -EBUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_task_map_ids(
    task: rcuwalk_handle,
    uids: *const rcuwalk_extent,
    nuids: usize,
    gids: *const rcuwalk_extent,
    ngids: usize,
) -> c_int {
    enter(|| {
        let task = handle::task(task)?;
        let (uids, gids) = (extents(uids, nuids)?, extents(gids, ngids)?);
        let task = lock(&task)?;
        let ns = task.cred().user_ns();
        ns.set_uid_map(&uids)?;
        ns.set_gid_map(&gids)?;
        Ok(0)
    }) as c_int
}

/// Opens a file of /proc/PID of the task `of` in the table of `task`: RCUWALK_PROC_NS_USER and RCUWALK_PROC_NS_MNT for setns,
/// RCUWALK_PROC_UID_MAP, RCUWALK_PROC_GID_MAP and RCUWALK_PROC_SETGROUPS for write. Each caller with the handle of a task may.
///
/// Errors: -ESRCH, -EINVAL (no such file), -EACCES (RCUWALK_PROC_SETGROUPS without CAP_SYS_ADMIN over the user namespace),
/// -EMFILE, -EBUSY.
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_task_open_proc(task: rcuwalk_handle, of: rcuwalk_handle, file: c_int) -> c_int {
    enter(|| {
        let file = match file {
            RCUWALK_PROC_NS_USER => ProcFile::UserNs,
            RCUWALK_PROC_NS_MNT => ProcFile::MntNs,
            RCUWALK_PROC_UID_MAP => ProcFile::UidMap,
            RCUWALK_PROC_GID_MAP => ProcFile::GidMap,
            RCUWALK_PROC_SETGROUPS => ProcFile::Setgroups,
            _ => return Err(Errno::EINVAL),
        };
        let (opener, of) = (handle::task(task)?, handle::task(of)?);
        if Arc::ptr_eq(&opener, &of) {
            let task = lock(&opener)?;
            return task.open_proc(&task, file).map(i64::from);
        }
        // A child of it is in the same namespaces; two tasks are never locked at once.
        let of = lock(&of)?.fork();
        lock(&opener)?.open_proc(&of, file).map(i64::from)
    }) as c_int
}

/// A descriptor of a new user namespace with these maps, in the table of `task`: for mount_setattr with MOUNT_ATTR_IDMAP.
///
/// Errors: -ESRCH, -EINVAL (maps), -EFAULT, -EMFILE, -EBUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_task_open_user_ns(
    task: rcuwalk_handle,
    uids: *const rcuwalk_extent,
    nuids: usize,
    gids: *const rcuwalk_extent,
    ngids: usize,
) -> c_int {
    enter(|| {
        let task = handle::task(task)?;
        let (uids, gids) = (extents(uids, nuids)?, extents(gids, ngids)?);
        let ns = UserNamespace::new_child(&UserNamespace::init(), 0, 0, true)?;
        ns.set_uid_map(&uids)?;
        ns.set_gid_map(&gids)?;
        lock(&task)?.open_user_ns(&ns).map(i64::from)
    }) as c_int
}

/// Makes the system call `number` of x86-64 with these arguments: what the kernel would return, an error as a negated
/// number.
///
/// `memory` is where pointers among the arguments lead: null for the memory of this process, where a bad address is
/// -EFAULT; RCUWALK_TRUSTED for the same without any check, which is faster; or callbacks. Checked memory needs
/// process_vm_readv(2); where a sandbox forbids that, calls with pointers are -EPERM or -ENOSYS.
///
/// What the call leaves to the caller, such as a new task, rcuwalk_task_event tells.
///
/// Errors: the call's; -ESRCH (no such task, or it has exited), -EINVAL (another handle), -ENOSYS (no such call), -EBUSY
/// (from a callback, with a task that is in use), -EIO (a mistake of the library).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_syscall(
    task: rcuwalk_handle,
    memory: *const rcuwalk_memory,
    number: u64,
    a0: u64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    a5: u64,
) -> i64 {
    enter(|| {
        let task = handle::task(task)?;
        let args = [a0, a1, a2, a3, a4, a5];
        match memory as usize {
            0 => Ok(lock(&task)?.syscall(&mut own_memory(), number, args)),
            usize::MAX => {
                // SAFETY: the caller vouches for its addresses: demand 3 of this module answers all of `Trusted`.
                let mut trusted = unsafe { Trusted::new() };
                Ok(lock(&task)?.syscall(&mut trusted, number, args))
            }
            address => {
                let bytes: [u8; size_of::<rcuwalk_memory>()] = read(address as u64)?;
                // SAFETY: demand 2 of this module answers all of `Callbacks::new`.
                let mut callbacks =
                    unsafe { Callbacks::new(u64_at(&bytes, 0), u64_at(&bytes, 8), u64_at(&bytes, 16)) };
                Ok(lock(&task)?.syscall(&mut callbacks, number, args))
            }
        }
    })
}

/// A named call: memory is that of this process, checked.
fn call(task: rcuwalk_handle, number: u64, args: [u64; 6]) -> i64 {
    enter(|| {
        let task = handle::task(task)?;
        Ok(lock(&task)?.syscall(&mut own_memory(), number, args))
    })
}

/// What the last call of a task has left; asking again tells of nothing.
///
/// Errors: -ESRCH, -EINVAL, -EFAULT, -EMFILE, -EBUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_task_event(task: rcuwalk_handle, event: *mut rcuwalk_event) -> c_int {
    enter(|| {
        let task = handle::task(task)?;
        // Nothing is taken that cannot be told.
        write(event as u64, &[0; size_of::<rcuwalk_event>()])?;
        let (kind, status, handle, flags) = match lock(&task)?.take_event() {
            None => (RCUWALK_EVENT_NONE, 0, 0, 0),
            Some(Event::Cloned { child, flags }) => {
                let child = handle::insert(Object::Task(Arc::new(Mutex::new(child))))?;
                (RCUWALK_EVENT_CLONED, 0, child, flags)
            }
            Some(Event::Executed(exec)) => {
                (RCUWALK_EVENT_EXECUTED, 0, handle::insert(Object::Exec(Arc::new(exec)))?, 0)
            }
            Some(Event::Exited { status, group }) => (RCUWALK_EVENT_EXITED, status, 0, u64::from(group)),
            Some(_) => return Err(Errno::EIO),
        };
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&status.to_ne_bytes());
        bytes.extend_from_slice(&handle.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        write(event as u64, &bytes)?;
        Ok(0)
    }) as c_int
}

/// What is known of a program.
///
/// Errors: -ESRCH, -EINVAL, -EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_exec_get_info(exec: rcuwalk_handle, info: *mut rcuwalk_exec_info) -> c_int {
    enter(|| {
        let exec = handle::exec(exec)?;
        let mut bytes = Vec::with_capacity(size_of::<rcuwalk_exec_info>());
        for word in
            [exec.argv.len() as u32, exec.envp.len() as u32, exec.secureexec.into(), exec.dumpable.into()]
        {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(&exec.file.size().to_ne_bytes());
        bytes.extend_from_slice(&exec.file.ino().to_ne_bytes());
        write(info as u64, &bytes)?;
        Ok(0)
    }) as c_int
}

/// A string of a program, without a NUL, as far as there is room. `what`: RCUWALK_EXEC_*; `index` chooses among arguments
/// and environment. Returns its length.
///
/// Errors: -ESRCH, -EINVAL (`what`, another handle), -ENOENT (no such string), -EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_exec_string(
    exec: rcuwalk_handle,
    what: u32,
    index: u32,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    enter(|| {
        let exec = handle::exec(exec)?;
        let string = string_of(&exec, what, index as usize)?.ok_or(Errno::ENOENT)?;
        put(string, buffer.cast(), size)
    })
}

fn string_of(exec: &Exec, what: u32, index: usize) -> Result<Option<&[u8]>> {
    Ok(match what {
        RCUWALK_EXEC_FILENAME => Some(&exec.filename),
        RCUWALK_EXEC_INTERP => Some(&exec.interp),
        RCUWALK_EXEC_LOADER => exec.interpreter.as_ref().map(|loader| loader.path.as_slice()),
        RCUWALK_EXEC_ARGV => exec.argv.get(index).map(Vec::as_slice),
        RCUWALK_EXEC_ENVP => exec.envp.get(index).map(Vec::as_slice),
        _ => return Err(Errno::EINVAL),
    })
}

/// Reads the file of a program at byte `offset`, without a check of its permissions; returns the number of bytes, fewer than `size` at
/// the end.
///
/// Errors: -ESRCH, -EINVAL, -EFAULT, -ENODATA (imported without contents).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_exec_read(
    exec: rcuwalk_handle,
    buffer: *mut c_void,
    size: usize,
    offset: u64,
) -> i64 {
    /// Bytes moved at a time.
    const PIECE: usize = 1 << 16;
    enter(|| {
        let exec = handle::exec(exec)?;
        let mut piece = vec![0; size.min(PIECE)];
        let mut done = 0;
        while done < size {
            let room = piece.len().min(size - done);
            let n = exec.file.read_at(&mut piece[..room], offset.saturating_add(done as u64))?;
            write((buffer as u64).wrapping_add(done as u64), &piece[..n])?;
            done += n;
            if n < room {
                break;
            }
        }
        Ok(done as i64)
    })
}
