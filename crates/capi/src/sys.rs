//! What no crate wraps: the handlers that fork(2) runs, and memory that the caller vouches for.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use rcuwalk::syscall::UserMemory;
use rcuwalk::{Errno, Result};
use rcuwalk_host::ProcessMemory;

use crate::gate;

/// The number of this process; zero before it was asked for.
static PID: AtomicU32 = AtomicU32::new(0);

/// The number of this process, without a system call.
fn pid() -> u32 {
    match PID.load(Ordering::Relaxed) {
        0 => renew_pid(),
        pid => pid,
    }
}

/// Asks for the number of this process.
pub(crate) fn renew_pid() -> u32 {
    let pid = std::process::id();
    PID.store(pid, Ordering::Relaxed);
    pid
}

/// The memory of this process, in which a bad address is `EFAULT`.
///
/// All addresses that are used with it come from C: the arguments of the exported functions, and what lies there.
pub(crate) fn own_memory() -> ProcessMemory {
    // SAFETY:
    // 1. The exported functions are `unsafe` and demand it of their callers, as the system calls of the same names do: an
    //    address is the caller's to use as the call uses it, until the call returns. No reference of this library leads there.
    // 2. `pid` is asked for again in the child of a fork; this process is there as long as it runs.
    unsafe { ProcessMemory::of(pid()) }
}

extern "C" fn before_fork() {
    gate::before_fork();
}

extern "C" fn in_parent() {
    gate::in_parent();
}

extern "C" fn in_child() {
    gate::in_child();
}

/// Has fork(2) wait until no call is under way.
pub(crate) fn watch_forks() {
    // SAFETY: the handlers are functions of this library, which is never unloaded while they could run: dlclose leaves
    // libraries with thread-local destructors in place.
    // Without memory for the handlers fork is not watched, which matters only to programs that fork during a call.
    let _ = unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
}

/// Memory of this process that is not checked: an address is an address.
///
/// To make one is to demand of the caller:
///
/// 1. Each address that the call is given leads to memory of at least the size that the call states, readable or writable as
///    the call needs it; strings end with a NUL.
/// 2. No other thread changes it during the call.
/// 3. It is no memory of this library.
pub(crate) struct Trusted(());

impl Trusted {
    /// # Safety
    ///
    /// The three demands on [`Trusted`].
    pub(crate) unsafe fn new() -> Trusted {
        Trusted(())
    }
}

impl UserMemory for Trusted {
    fn copy_from_user(&mut self, to: &mut [u8], from: u64) -> Result<()> {
        if from == 0 && !to.is_empty() {
            return Err(Errno::EFAULT);
        }
        // SAFETY: demands 1 and 2 of `Trusted`: as many bytes can be read there; demand 3: it is not `to`.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn copy_to_user(&mut self, to: u64, from: &[u8]) -> Result<()> {
        if to == 0 && !from.is_empty() {
            return Err(Errno::EFAULT);
        }
        // SAFETY: demands 1 and 2 of `Trusted`: as many bytes can be written there; demand 3: it is not `from`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, from.len()) };
        Ok(())
    }

    fn strncpy_from_user(&mut self, to: &mut [u8], from: u64) -> Result<usize> {
        if from == 0 {
            return Err(Errno::EFAULT);
        }
        // SAFETY: demand 1 of `Trusted`: a NUL ends the string, and strnlen looks no further.
        let len = unsafe { libc::strnlen(from as *const libc::c_char, to.len()) };
        self.copy_from_user(&mut to[..len], from)?;
        Ok(len)
    }
}

/// Copies between the library and memory that only callbacks reach; not zero is a fault.
pub(crate) type CopyIn = extern "C" fn(user: *mut c_void, to: *mut c_void, from: u64, len: usize) -> c_int;
/// The other way round.
pub(crate) type CopyOut = extern "C" fn(user: *mut c_void, to: u64, from: *const c_void, len: usize) -> c_int;

/// Memory behind callbacks.
pub(crate) struct Callbacks {
    user: *mut c_void,
    read: Option<CopyIn>,
    write: Option<CopyOut>,
}

impl Callbacks {
    /// Memory behind the functions at these addresses, if they are not null.
    ///
    /// # Safety
    ///
    /// 1. `read` is zero or the address of a function of type [`CopyIn`] that fills no more than it is told.
    /// 2. `write` is zero or the address of a function of type [`CopyOut`] that reads no more than it is told.
    /// 3. Both return, rather than jump elsewhere, and may be called with `user` from this thread.
    pub(crate) unsafe fn new(user: u64, read: u64, write: u64) -> Callbacks {
        // SAFETY: demands 1 and 2: null, or a function of this type; `Option` of a function has null as `None`.
        let functions: (Option<CopyIn>, Option<CopyOut>) = unsafe {
            (
                std::mem::transmute::<usize, Option<CopyIn>>(read as usize),
                std::mem::transmute::<usize, Option<CopyOut>>(write as usize),
            )
        };
        Callbacks { user: user as *mut c_void, read: functions.0, write: functions.1 }
    }
}

impl UserMemory for Callbacks {
    fn copy_from_user(&mut self, to: &mut [u8], from: u64) -> Result<()> {
        let read = self.read.ok_or(Errno::EFAULT)?;
        if read(self.user, to.as_mut_ptr().cast(), from, to.len()) == 0 { Ok(()) } else { Err(Errno::EFAULT) }
    }

    fn copy_to_user(&mut self, to: u64, from: &[u8]) -> Result<()> {
        let write = self.write.ok_or(Errno::EFAULT)?;
        if write(self.user, to, from.as_ptr().cast(), from.len()) == 0 { Ok(()) } else { Err(Errno::EFAULT) }
    }
}
