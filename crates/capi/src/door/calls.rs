//! The calls by name. Each returns what the system call returns, an error as a negated number, with the memory of this
//! process for its pointers. What the names mean is in section 2 of the manual; what `task` is, in the module above.
//!
//! # Safety
//!
//! The first demand of the module above: what a call writes to is the caller's.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

use libc::{iovec, mount_attr, open_how, rlimit, stat, statfs, statx, timespec};
use rcuwalk::syscall::nr;

use super::{call, rcuwalk_handle};

/// open(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_open(
    task: rcuwalk_handle,
    path: *const c_char,
    flags: c_int,
    mode: u32,
) -> c_int {
    call(task, nr::OPEN, [path as u64, flags as u64, u64::from(mode), 0, 0, 0]) as c_int
}

/// openat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_openat(
    task: rcuwalk_handle,
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: u32,
) -> c_int {
    call(task, nr::OPENAT, [dirfd as u64, path as u64, flags as u64, u64::from(mode), 0, 0]) as c_int
}

/// openat2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_openat2(
    task: rcuwalk_handle,
    dirfd: c_int,
    path: *const c_char,
    how: *const open_how,
    size: usize,
) -> c_int {
    call(task, nr::OPENAT2, [dirfd as u64, path as u64, how as u64, size as u64, 0, 0]) as c_int
}

/// creat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_creat(task: rcuwalk_handle, path: *const c_char, mode: u32) -> c_int {
    call(task, nr::CREAT, [path as u64, u64::from(mode), 0, 0, 0, 0]) as c_int
}

/// close(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_close(task: rcuwalk_handle, fd: c_int) -> c_int {
    call(task, nr::CLOSE, [fd as u64, 0, 0, 0, 0, 0]) as c_int
}

/// close_range(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_close_range(
    task: rcuwalk_handle,
    first: c_uint,
    last: c_uint,
    flags: c_uint,
) -> c_int {
    call(task, nr::CLOSE_RANGE, [u64::from(first), u64::from(last), u64::from(flags), 0, 0, 0]) as c_int
}

/// read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_read(
    task: rcuwalk_handle,
    fd: c_int,
    buffer: *mut c_void,
    count: usize,
) -> i64 {
    call(task, nr::READ, [fd as u64, buffer as u64, count as u64, 0, 0, 0])
}

/// write(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_write(
    task: rcuwalk_handle,
    fd: c_int,
    buffer: *const c_void,
    count: usize,
) -> i64 {
    call(task, nr::WRITE, [fd as u64, buffer as u64, count as u64, 0, 0, 0])
}

/// pread(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_pread(
    task: rcuwalk_handle,
    fd: c_int,
    buffer: *mut c_void,
    count: usize,
    offset: i64,
) -> i64 {
    call(task, nr::PREAD64, [fd as u64, buffer as u64, count as u64, offset as u64, 0, 0])
}

/// pwrite(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_pwrite(
    task: rcuwalk_handle,
    fd: c_int,
    buffer: *const c_void,
    count: usize,
    offset: i64,
) -> i64 {
    call(task, nr::PWRITE64, [fd as u64, buffer as u64, count as u64, offset as u64, 0, 0])
}

/// readv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_readv(
    task: rcuwalk_handle,
    fd: c_int,
    iov: *const iovec,
    iovcnt: c_int,
) -> i64 {
    call(task, nr::READV, [fd as u64, iov as u64, iovcnt as u64, 0, 0, 0])
}

/// writev(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_writev(
    task: rcuwalk_handle,
    fd: c_int,
    iov: *const iovec,
    iovcnt: c_int,
) -> i64 {
    call(task, nr::WRITEV, [fd as u64, iov as u64, iovcnt as u64, 0, 0, 0])
}

/// preadv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_preadv(
    task: rcuwalk_handle,
    fd: c_int,
    iov: *const iovec,
    iovcnt: c_int,
    offset: i64,
) -> i64 {
    call(task, nr::PREADV, [fd as u64, iov as u64, iovcnt as u64, offset as u64, 0, 0])
}

/// pwritev(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_pwritev(
    task: rcuwalk_handle,
    fd: c_int,
    iov: *const iovec,
    iovcnt: c_int,
    offset: i64,
) -> i64 {
    call(task, nr::PWRITEV, [fd as u64, iov as u64, iovcnt as u64, offset as u64, 0, 0])
}

/// lseek(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_lseek(task: rcuwalk_handle, fd: c_int, offset: i64, whence: c_int) -> i64 {
    call(task, nr::LSEEK, [fd as u64, offset as u64, whence as u64, 0, 0, 0])
}

/// getdents64(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_getdents64(
    task: rcuwalk_handle,
    fd: c_int,
    buffer: *mut c_void,
    count: usize,
) -> i64 {
    call(task, nr::GETDENTS64, [fd as u64, buffer as u64, count as u64, 0, 0, 0])
}

/// truncate(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_truncate(task: rcuwalk_handle, path: *const c_char, length: i64) -> c_int {
    call(task, nr::TRUNCATE, [path as u64, length as u64, 0, 0, 0, 0]) as c_int
}

/// ftruncate(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_ftruncate(task: rcuwalk_handle, fd: c_int, length: i64) -> c_int {
    call(task, nr::FTRUNCATE, [fd as u64, length as u64, 0, 0, 0, 0]) as c_int
}

/// fallocate(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_fallocate(
    task: rcuwalk_handle,
    fd: c_int,
    mode: c_int,
    offset: i64,
    length: i64,
) -> c_int {
    call(task, nr::FALLOCATE, [fd as u64, mode as u64, offset as u64, length as u64, 0, 0]) as c_int
}

/// copy_file_range(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_copy_file_range(
    task: rcuwalk_handle,
    fd_in: c_int,
    off_in: *mut i64,
    fd_out: c_int,
    off_out: *mut i64,
    length: usize,
    flags: c_uint,
) -> i64 {
    call(
        task,
        nr::COPY_FILE_RANGE,
        [fd_in as u64, off_in as u64, fd_out as u64, off_out as u64, length as u64, u64::from(flags)],
    )
}

/// fsync(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_fsync(task: rcuwalk_handle, fd: c_int) -> c_int {
    call(task, nr::FSYNC, [fd as u64, 0, 0, 0, 0, 0]) as c_int
}

/// fdatasync(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_fdatasync(task: rcuwalk_handle, fd: c_int) -> c_int {
    call(task, nr::FDATASYNC, [fd as u64, 0, 0, 0, 0, 0]) as c_int
}

/// syncfs(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_syncfs(task: rcuwalk_handle, fd: c_int) -> c_int {
    call(task, nr::SYNCFS, [fd as u64, 0, 0, 0, 0, 0]) as c_int
}

/// dup(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_dup(task: rcuwalk_handle, fd: c_int) -> c_int {
    call(task, nr::DUP, [fd as u64, 0, 0, 0, 0, 0]) as c_int
}

/// dup2(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_dup2(task: rcuwalk_handle, oldfd: c_int, newfd: c_int) -> c_int {
    call(task, nr::DUP2, [oldfd as u64, newfd as u64, 0, 0, 0, 0]) as c_int
}

/// dup3(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_dup3(task: rcuwalk_handle, oldfd: c_int, newfd: c_int, flags: c_int) -> c_int {
    call(task, nr::DUP3, [oldfd as u64, newfd as u64, flags as u64, 0, 0, 0]) as c_int
}

/// fcntl(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_fcntl(task: rcuwalk_handle, fd: c_int, command: c_int, argument: c_long) -> c_int {
    call(task, nr::FCNTL, [fd as u64, command as u64, argument as u64, 0, 0, 0]) as c_int
}

/// ioctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_ioctl(
    task: rcuwalk_handle,
    fd: c_int,
    request: c_ulong,
    argument: *mut c_void,
) -> c_int {
    call(task, nr::IOCTL, [fd as u64, request, argument as u64, 0, 0, 0]) as c_int
}

/// stat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_stat(task: rcuwalk_handle, path: *const c_char, buffer: *mut stat) -> c_int {
    call(task, nr::STAT, [path as u64, buffer as u64, 0, 0, 0, 0]) as c_int
}

/// lstat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_lstat(
    task: rcuwalk_handle,
    path: *const c_char,
    buffer: *mut stat,
) -> c_int {
    call(task, nr::LSTAT, [path as u64, buffer as u64, 0, 0, 0, 0]) as c_int
}

/// fstat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_fstat(task: rcuwalk_handle, fd: c_int, buffer: *mut stat) -> c_int {
    call(task, nr::FSTAT, [fd as u64, buffer as u64, 0, 0, 0, 0]) as c_int
}

/// newfstatat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_fstatat(
    task: rcuwalk_handle,
    dirfd: c_int,
    path: *const c_char,
    buffer: *mut stat,
    flags: c_int,
) -> c_int {
    call(task, nr::NEWFSTATAT, [dirfd as u64, path as u64, buffer as u64, flags as u64, 0, 0]) as c_int
}

/// statx(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_statx(
    task: rcuwalk_handle,
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    buffer: *mut statx,
) -> c_int {
    call(task, nr::STATX, [dirfd as u64, path as u64, flags as u64, u64::from(mask), buffer as u64, 0])
        as c_int
}

/// access(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_access(task: rcuwalk_handle, path: *const c_char, mode: c_int) -> c_int {
    call(task, nr::ACCESS, [path as u64, mode as u64, 0, 0, 0, 0]) as c_int
}

/// faccessat2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_faccessat(
    task: rcuwalk_handle,
    dirfd: c_int,
    path: *const c_char,
    mode: c_int,
    flags: c_int,
) -> c_int {
    call(task, nr::FACCESSAT2, [dirfd as u64, path as u64, mode as u64, flags as u64, 0, 0]) as c_int
}

/// readlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_readlink(
    task: rcuwalk_handle,
    path: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    call(task, nr::READLINK, [path as u64, buffer as u64, size as u64, 0, 0, 0])
}

/// readlinkat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_readlinkat(
    task: rcuwalk_handle,
    dirfd: c_int,
    path: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    call(task, nr::READLINKAT, [dirfd as u64, path as u64, buffer as u64, size as u64, 0, 0])
}

/// chdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_chdir(task: rcuwalk_handle, path: *const c_char) -> c_int {
    call(task, nr::CHDIR, [path as u64, 0, 0, 0, 0, 0]) as c_int
}

/// fchdir(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_fchdir(task: rcuwalk_handle, fd: c_int) -> c_int {
    call(task, nr::FCHDIR, [fd as u64, 0, 0, 0, 0, 0]) as c_int
}

/// chroot(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_chroot(task: rcuwalk_handle, path: *const c_char) -> c_int {
    call(task, nr::CHROOT, [path as u64, 0, 0, 0, 0, 0]) as c_int
}

/// getcwd(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_getcwd(task: rcuwalk_handle, buffer: *mut c_char, size: usize) -> i64 {
    call(task, nr::GETCWD, [buffer as u64, size as u64, 0, 0, 0, 0])
}

/// umask(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_umask(task: rcuwalk_handle, mask: u32) -> c_int {
    call(task, nr::UMASK, [u64::from(mask), 0, 0, 0, 0, 0]) as c_int
}

/// mkdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_mkdir(task: rcuwalk_handle, path: *const c_char, mode: u32) -> c_int {
    call(task, nr::MKDIR, [path as u64, u64::from(mode), 0, 0, 0, 0]) as c_int
}

/// mkdirat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_mkdirat(
    task: rcuwalk_handle,
    dirfd: c_int,
    path: *const c_char,
    mode: u32,
) -> c_int {
    call(task, nr::MKDIRAT, [dirfd as u64, path as u64, u64::from(mode), 0, 0, 0]) as c_int
}

/// mknod(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_mknod(
    task: rcuwalk_handle,
    path: *const c_char,
    mode: u32,
    device: u32,
) -> c_int {
    call(task, nr::MKNOD, [path as u64, u64::from(mode), u64::from(device), 0, 0, 0]) as c_int
}

/// mknodat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_mknodat(
    task: rcuwalk_handle,
    dirfd: c_int,
    path: *const c_char,
    mode: u32,
    device: u32,
) -> c_int {
    call(task, nr::MKNODAT, [dirfd as u64, path as u64, u64::from(mode), u64::from(device), 0, 0]) as c_int
}

/// symlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_symlink(
    task: rcuwalk_handle,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    call(task, nr::SYMLINK, [target as u64, path as u64, 0, 0, 0, 0]) as c_int
}

/// symlinkat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_symlinkat(
    task: rcuwalk_handle,
    target: *const c_char,
    dirfd: c_int,
    path: *const c_char,
) -> c_int {
    call(task, nr::SYMLINKAT, [target as u64, dirfd as u64, path as u64, 0, 0, 0]) as c_int
}

/// link(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_link(
    task: rcuwalk_handle,
    oldpath: *const c_char,
    newpath: *const c_char,
) -> c_int {
    call(task, nr::LINK, [oldpath as u64, newpath as u64, 0, 0, 0, 0]) as c_int
}

/// linkat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_linkat(
    task: rcuwalk_handle,
    olddirfd: c_int,
    oldpath: *const c_char,
    newdirfd: c_int,
    newpath: *const c_char,
    flags: c_int,
) -> c_int {
    call(
        task,
        nr::LINKAT,
        [olddirfd as u64, oldpath as u64, newdirfd as u64, newpath as u64, flags as u64, 0],
    ) as c_int
}

/// unlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_unlink(task: rcuwalk_handle, path: *const c_char) -> c_int {
    call(task, nr::UNLINK, [path as u64, 0, 0, 0, 0, 0]) as c_int
}

/// unlinkat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_unlinkat(
    task: rcuwalk_handle,
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
) -> c_int {
    call(task, nr::UNLINKAT, [dirfd as u64, path as u64, flags as u64, 0, 0, 0]) as c_int
}

/// rmdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_rmdir(task: rcuwalk_handle, path: *const c_char) -> c_int {
    call(task, nr::RMDIR, [path as u64, 0, 0, 0, 0, 0]) as c_int
}

/// rename(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_rename(
    task: rcuwalk_handle,
    oldpath: *const c_char,
    newpath: *const c_char,
) -> c_int {
    call(task, nr::RENAME, [oldpath as u64, newpath as u64, 0, 0, 0, 0]) as c_int
}

/// renameat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_renameat(
    task: rcuwalk_handle,
    olddirfd: c_int,
    oldpath: *const c_char,
    newdirfd: c_int,
    newpath: *const c_char,
) -> c_int {
    call(task, nr::RENAMEAT, [olddirfd as u64, oldpath as u64, newdirfd as u64, newpath as u64, 0, 0])
        as c_int
}

/// renameat2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_renameat2(
    task: rcuwalk_handle,
    olddirfd: c_int,
    oldpath: *const c_char,
    newdirfd: c_int,
    newpath: *const c_char,
    flags: c_uint,
) -> c_int {
    call(
        task,
        nr::RENAMEAT2,
        [olddirfd as u64, oldpath as u64, newdirfd as u64, newpath as u64, u64::from(flags), 0],
    ) as c_int
}

/// chmod(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_chmod(task: rcuwalk_handle, path: *const c_char, mode: u32) -> c_int {
    call(task, nr::CHMOD, [path as u64, u64::from(mode), 0, 0, 0, 0]) as c_int
}

/// fchmod(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_fchmod(task: rcuwalk_handle, fd: c_int, mode: u32) -> c_int {
    call(task, nr::FCHMOD, [fd as u64, u64::from(mode), 0, 0, 0, 0]) as c_int
}

/// fchmodat2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_fchmodat(
    task: rcuwalk_handle,
    dirfd: c_int,
    path: *const c_char,
    mode: u32,
    flags: c_int,
) -> c_int {
    call(task, nr::FCHMODAT2, [dirfd as u64, path as u64, u64::from(mode), flags as u64, 0, 0]) as c_int
}

/// chown(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_chown(
    task: rcuwalk_handle,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    call(task, nr::CHOWN, [path as u64, u64::from(uid), u64::from(gid), 0, 0, 0]) as c_int
}

/// lchown(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_lchown(
    task: rcuwalk_handle,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    call(task, nr::LCHOWN, [path as u64, u64::from(uid), u64::from(gid), 0, 0, 0]) as c_int
}

/// fchown(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_fchown(task: rcuwalk_handle, fd: c_int, uid: u32, gid: u32) -> c_int {
    call(task, nr::FCHOWN, [fd as u64, u64::from(uid), u64::from(gid), 0, 0, 0]) as c_int
}

/// fchownat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_fchownat(
    task: rcuwalk_handle,
    dirfd: c_int,
    path: *const c_char,
    uid: u32,
    gid: u32,
    flags: c_int,
) -> c_int {
    call(task, nr::FCHOWNAT, [dirfd as u64, path as u64, u64::from(uid), u64::from(gid), flags as u64, 0])
        as c_int
}

/// utimensat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_utimensat(
    task: rcuwalk_handle,
    dirfd: c_int,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> c_int {
    call(task, nr::UTIMENSAT, [dirfd as u64, path as u64, times as u64, flags as u64, 0, 0]) as c_int
}

/// setxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_setxattr(
    task: rcuwalk_handle,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    call(task, nr::SETXATTR, [path as u64, name as u64, value as u64, size as u64, flags as u64, 0]) as c_int
}

/// lsetxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_lsetxattr(
    task: rcuwalk_handle,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    call(task, nr::LSETXATTR, [path as u64, name as u64, value as u64, size as u64, flags as u64, 0]) as c_int
}

/// fsetxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_fsetxattr(
    task: rcuwalk_handle,
    fd: c_int,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    call(task, nr::FSETXATTR, [fd as u64, name as u64, value as u64, size as u64, flags as u64, 0]) as c_int
}

/// getxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_getxattr(
    task: rcuwalk_handle,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> i64 {
    call(task, nr::GETXATTR, [path as u64, name as u64, value as u64, size as u64, 0, 0])
}

/// lgetxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_lgetxattr(
    task: rcuwalk_handle,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> i64 {
    call(task, nr::LGETXATTR, [path as u64, name as u64, value as u64, size as u64, 0, 0])
}

/// fgetxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_fgetxattr(
    task: rcuwalk_handle,
    fd: c_int,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> i64 {
    call(task, nr::FGETXATTR, [fd as u64, name as u64, value as u64, size as u64, 0, 0])
}

/// listxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_listxattr(
    task: rcuwalk_handle,
    path: *const c_char,
    list: *mut c_char,
    size: usize,
) -> i64 {
    call(task, nr::LISTXATTR, [path as u64, list as u64, size as u64, 0, 0, 0])
}

/// llistxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_llistxattr(
    task: rcuwalk_handle,
    path: *const c_char,
    list: *mut c_char,
    size: usize,
) -> i64 {
    call(task, nr::LLISTXATTR, [path as u64, list as u64, size as u64, 0, 0, 0])
}

/// flistxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_flistxattr(
    task: rcuwalk_handle,
    fd: c_int,
    list: *mut c_char,
    size: usize,
) -> i64 {
    call(task, nr::FLISTXATTR, [fd as u64, list as u64, size as u64, 0, 0, 0])
}

/// removexattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_removexattr(
    task: rcuwalk_handle,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    call(task, nr::REMOVEXATTR, [path as u64, name as u64, 0, 0, 0, 0]) as c_int
}

/// lremovexattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_lremovexattr(
    task: rcuwalk_handle,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    call(task, nr::LREMOVEXATTR, [path as u64, name as u64, 0, 0, 0, 0]) as c_int
}

/// fremovexattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_fremovexattr(task: rcuwalk_handle, fd: c_int, name: *const c_char) -> c_int {
    call(task, nr::FREMOVEXATTR, [fd as u64, name as u64, 0, 0, 0, 0]) as c_int
}

/// mount(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_mount(
    task: rcuwalk_handle,
    source: *const c_char,
    target: *const c_char,
    fstype: *const c_char,
    flags: c_ulong,
    data: *const c_void,
) -> c_int {
    call(task, nr::MOUNT, [source as u64, target as u64, fstype as u64, flags, data as u64, 0]) as c_int
}

/// umount2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_umount2(task: rcuwalk_handle, target: *const c_char, flags: c_int) -> c_int {
    call(task, nr::UMOUNT2, [target as u64, flags as u64, 0, 0, 0, 0]) as c_int
}

/// mount_setattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_mount_setattr(
    task: rcuwalk_handle,
    dirfd: c_int,
    path: *const c_char,
    flags: c_uint,
    attr: *mut mount_attr,
    size: usize,
) -> c_int {
    call(task, nr::MOUNT_SETATTR, [dirfd as u64, path as u64, u64::from(flags), attr as u64, size as u64, 0])
        as c_int
}

/// open_tree(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_open_tree(
    task: rcuwalk_handle,
    dirfd: c_int,
    path: *const c_char,
    flags: c_uint,
) -> c_int {
    call(task, nr::OPEN_TREE, [dirfd as u64, path as u64, u64::from(flags), 0, 0, 0]) as c_int
}

/// move_mount(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_move_mount(
    task: rcuwalk_handle,
    from_dirfd: c_int,
    from: *const c_char,
    to_dirfd: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    call(
        task,
        nr::MOVE_MOUNT,
        [from_dirfd as u64, from as u64, to_dirfd as u64, to as u64, u64::from(flags), 0],
    ) as c_int
}

/// unshare(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_unshare(task: rcuwalk_handle, flags: c_int) -> c_int {
    call(task, nr::UNSHARE, [flags as u64, 0, 0, 0, 0, 0]) as c_int
}

/// setns(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_setns(task: rcuwalk_handle, fd: c_int, nstype: c_int) -> c_int {
    call(task, nr::SETNS, [fd as u64, nstype as u64, 0, 0, 0, 0]) as c_int
}

/// getuid(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_getuid(task: rcuwalk_handle) -> i64 {
    call(task, nr::GETUID, [0, 0, 0, 0, 0, 0])
}

/// geteuid(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_geteuid(task: rcuwalk_handle) -> i64 {
    call(task, nr::GETEUID, [0, 0, 0, 0, 0, 0])
}

/// getgid(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_getgid(task: rcuwalk_handle) -> i64 {
    call(task, nr::GETGID, [0, 0, 0, 0, 0, 0])
}

/// getegid(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_getegid(task: rcuwalk_handle) -> i64 {
    call(task, nr::GETEGID, [0, 0, 0, 0, 0, 0])
}

/// setuid(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_setuid(task: rcuwalk_handle, uid: u32) -> c_int {
    call(task, nr::SETUID, [u64::from(uid), 0, 0, 0, 0, 0]) as c_int
}

/// setgid(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_setgid(task: rcuwalk_handle, gid: u32) -> c_int {
    call(task, nr::SETGID, [u64::from(gid), 0, 0, 0, 0, 0]) as c_int
}

/// setreuid(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_setreuid(task: rcuwalk_handle, ruid: u32, euid: u32) -> c_int {
    call(task, nr::SETREUID, [u64::from(ruid), u64::from(euid), 0, 0, 0, 0]) as c_int
}

/// setregid(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_setregid(task: rcuwalk_handle, rgid: u32, egid: u32) -> c_int {
    call(task, nr::SETREGID, [u64::from(rgid), u64::from(egid), 0, 0, 0, 0]) as c_int
}

/// setresuid(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_setresuid(task: rcuwalk_handle, ruid: u32, euid: u32, suid: u32) -> c_int {
    call(task, nr::SETRESUID, [u64::from(ruid), u64::from(euid), u64::from(suid), 0, 0, 0]) as c_int
}

/// setresgid(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_setresgid(task: rcuwalk_handle, rgid: u32, egid: u32, sgid: u32) -> c_int {
    call(task, nr::SETRESGID, [u64::from(rgid), u64::from(egid), u64::from(sgid), 0, 0, 0]) as c_int
}

/// setfsuid(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_setfsuid(task: rcuwalk_handle, uid: u32) -> i64 {
    call(task, nr::SETFSUID, [u64::from(uid), 0, 0, 0, 0, 0])
}

/// setfsgid(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_setfsgid(task: rcuwalk_handle, gid: u32) -> i64 {
    call(task, nr::SETFSGID, [u64::from(gid), 0, 0, 0, 0, 0])
}

/// getresuid(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_getresuid(
    task: rcuwalk_handle,
    ruid: *mut u32,
    euid: *mut u32,
    suid: *mut u32,
) -> c_int {
    call(task, nr::GETRESUID, [ruid as u64, euid as u64, suid as u64, 0, 0, 0]) as c_int
}

/// getresgid(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_getresgid(
    task: rcuwalk_handle,
    rgid: *mut u32,
    egid: *mut u32,
    sgid: *mut u32,
) -> c_int {
    call(task, nr::GETRESGID, [rgid as u64, egid as u64, sgid as u64, 0, 0, 0]) as c_int
}

/// getgroups(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_getgroups(task: rcuwalk_handle, size: c_int, list: *mut u32) -> c_int {
    call(task, nr::GETGROUPS, [size as u64, list as u64, 0, 0, 0, 0]) as c_int
}

/// setgroups(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_setgroups(task: rcuwalk_handle, size: usize, list: *const u32) -> c_int {
    call(task, nr::SETGROUPS, [size as u64, list as u64, 0, 0, 0, 0]) as c_int
}

/// capget(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_capget(
    task: rcuwalk_handle,
    header: *mut c_void,
    data: *mut c_void,
) -> c_int {
    call(task, nr::CAPGET, [header as u64, data as u64, 0, 0, 0, 0]) as c_int
}

/// capset(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_capset(
    task: rcuwalk_handle,
    header: *mut c_void,
    data: *const c_void,
) -> c_int {
    call(task, nr::CAPSET, [header as u64, data as u64, 0, 0, 0, 0]) as c_int
}

/// prctl(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_prctl(
    task: rcuwalk_handle,
    option: c_int,
    arg2: c_ulong,
    arg3: c_ulong,
    arg4: c_ulong,
    arg5: c_ulong,
) -> c_int {
    call(task, nr::PRCTL, [option as u64, arg2, arg3, arg4, arg5, 0]) as c_int
}

/// prlimit(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_prlimit(
    task: rcuwalk_handle,
    pid: c_int,
    resource: c_uint,
    new_limit: *const rlimit,
    old_limit: *mut rlimit,
) -> c_int {
    call(task, nr::PRLIMIT64, [pid as u64, u64::from(resource), new_limit as u64, old_limit as u64, 0, 0])
        as c_int
}

/// execve(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_execve(
    task: rcuwalk_handle,
    path: *const c_char,
    argv: *const *mut c_char,
    envp: *const *mut c_char,
) -> c_int {
    call(task, nr::EXECVE, [path as u64, argv as u64, envp as u64, 0, 0, 0]) as c_int
}

/// execveat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_execveat(
    task: rcuwalk_handle,
    dirfd: c_int,
    path: *const c_char,
    argv: *const *mut c_char,
    envp: *const *mut c_char,
    flags: c_int,
) -> c_int {
    call(task, nr::EXECVEAT, [dirfd as u64, path as u64, argv as u64, envp as u64, flags as u64, 0]) as c_int
}

/// exit(2).
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_exit(task: rcuwalk_handle, status: c_int) -> c_int {
    call(task, nr::EXIT, [status as u64, 0, 0, 0, 0, 0]) as c_int
}

/// flock(2), without waiting.
#[unsafe(no_mangle)]
pub extern "C" fn rcuwalk_flock(task: rcuwalk_handle, fd: c_int, operation: c_int) -> c_int {
    call(task, nr::FLOCK, [fd as u64, operation as u64, 0, 0, 0, 0]) as c_int
}

/// statfs(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_statfs(
    task: rcuwalk_handle,
    path: *const c_char,
    buffer: *mut statfs,
) -> c_int {
    call(task, nr::STATFS, [path as u64, buffer as u64, 0, 0, 0, 0]) as c_int
}

/// fstatfs(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_fstatfs(task: rcuwalk_handle, fd: c_int, buffer: *mut statfs) -> c_int {
    call(task, nr::FSTATFS, [fd as u64, buffer as u64, 0, 0, 0, 0]) as c_int
}

/// pivot_root(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rcuwalk_pivot_root(
    task: rcuwalk_handle,
    new_root: *const c_char,
    put_old: *const c_char,
) -> c_int {
    call(task, nr::PIVOT_ROOT, [new_root as u64, put_old as u64, 0, 0, 0, 0]) as c_int
}
