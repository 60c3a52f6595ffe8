//! The host calls that have no safe wrapper.
#![allow(unsafe_code)]

use rustix::io;
use rustix::process::WaitOptions;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Gives the calling thread its own working directory, root and umask.
///
/// # Errors
///
/// What `unshare(2)` answers: `ENOMEM`, or `EPERM` under a filter.
pub(crate) fn own_working_directory() -> io::Result<()> {
    // SAFETY: the call is unsafe because of UnshareFlags::FILES, which would let a thread hold descriptors that mean
    // nothing to it; FS alone does not touch the descriptor table.
    unsafe { unshare_unsafe(UnshareFlags::FS) }
}

/// Gives free heap pages back to the system, so that resident memory counts live data only.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: malloc_trim has no demands; it takes the allocator's own locks.
        unsafe { libc::malloc_trim(0) };
    }
}

/// Asks the kernel to execute a file that is not there, with no more than its name as argument. The error it answers with;
/// a success does not return, since then there is another program.
pub(crate) fn exec_missing(path: &CStr) -> Option<io::Errno> {
    let (arguments, environment) = ([path.as_ptr(), ptr::null()], [ptr::null()]);
    // SAFETY: three pointers that the call reads from: a string, and two arrays of strings, which end with null.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    std::io::Error::last_os_error().raw_os_error().map(io::Errno::from_raw_os_error)
}

/// Makes a process, which tries to execute `candidates` in turn with one argument and an empty environment, and waits for its
/// end. The exit code, or none after a signal; 127 if nothing could be executed.
///
/// # Errors
///
/// What `fork(2)` and `waitpid(2)` answer.
pub fn fork_exec_wait(candidates: &[&CStr], argument: &CStr) -> io::Result<Option<i32>> {
    let environment = [ptr::null()];
    // SAFETY: the child, which has a copy of this thread only, makes nothing but async-signal-safe calls: execve and _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        for candidate in candidates {
            let arguments = [candidate.as_ptr(), argument.as_ptr(), ptr::null()];
            // SAFETY: as in `exec_missing`.
            unsafe { libc::execve(candidate.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        }
        // SAFETY: _exit has no demands.
        unsafe { libc::_exit(127) }
    }
    let Some(child) = rustix::process::Pid::from_raw(child).filter(|_| child > 0) else {
        let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN);
        return Err(io::Errno::from_raw_os_error(error));
    };
    let status = io::retry_on_intr(|| rustix::process::waitpid(Some(child), WaitOptions::empty()))?;
    Ok(status.and_then(|(_, status)| status.exit_status()))
}

/// Asks the kernel whether it would execute a file, without executing it: execveat(2) with `AT_EXECVE_CHECK`.
///
/// # Errors
///
/// What execve(2) would answer of the path; `EINVAL` before Linux 6.14.
pub(crate) fn may_execute(dir: BorrowedFd<'_>, path: &CStr, flags: i32) -> io::Result<()> {
    const AT_EXECVE_CHECK: libc::c_int = 0x10000;
    let (arguments, environment) = ([path.as_ptr(), ptr::null()], [ptr::null::<libc::c_char>()]);
    // SAFETY: three pointers that the call reads from: a string, and two arrays of strings, which end with null. A kernel
    // that does not know the flag refuses it before it looks for the file, so nothing is ever executed.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_execveat,
            dir.as_raw_fd(),
            path.as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            flags | AT_EXECVE_CHECK,
        )
    };
    if answer == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    Err(io::Errno::from_raw_os_error(error))
}
