//! The memory of a process of the running machine, for the engine's raw door.
#![allow(unsafe_code)]

use std::io::{IoSlice, IoSliceMut};

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;
use rcuwalk::syscall::UserMemory;
use rcuwalk::{Errno, Result};

/// The memory of a process: another one, which the caller may trace, or its own. Addresses that are not mapped are
/// `EFAULT`, never a fault.
///
/// Besides `EFAULT`, copies fail with what process_vm_readv(2) answers: `ESRCH` (there is no such process), `EPERM` (it may
/// not be traced; a sandbox forbids the call), `ENOSYS`.
///
/// ```
/// use rcuwalk::syscall::nr;
/// use rcuwalk::{Cred, Vfs};
/// use rcuwalk_host::ProcessMemory;
///
/// let mut task = Vfs::new()?.task(Cred::root());
/// // SAFETY:
/// // 1. The calls below read constants, and write nothing.
/// // 2. This process does not end before its memory is used.
/// let mut own = unsafe { ProcessMemory::of(std::process::id()) };
/// assert_eq!(task.syscall(&mut own, nr::MKDIR, [c"/srv".as_ptr() as u64, 0o755, 0, 0, 0, 0]), 0);
/// assert_eq!(task.syscall(&mut own, nr::MKDIR, [8, 0o755, 0, 0, 0, 0]), -14, "EFAULT");
/// # Ok::<(), rcuwalk::Errno>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessMemory {
    pid: Pid,
}

impl ProcessMemory {
    /// The memory of the process, or of the process of the thread, with this number. Nothing is looked at yet.
    ///
    /// # Safety
    ///
    /// 1. Is it the calling process, or one that shares memory with it, this goes for each later copy, from when it begins until
    ///    it ends, and so for each address that a [call](rcuwalk::Task::syscall) with this memory is given or finds in it. What
    ///    is written is memory that nothing else reads or writes meanwhile, to which there is no reference but one that the copy
    ///    may use, and where any bytes are valid: of cells or atomics, for example, or behind a pointer that the caller got for
    ///    this. What is read nothing else writes meanwhile. Memory that is not mapped, or may not be accessed, is free to use: that
    ///    is `EFAULT`.
    /// 2. As long as this is used, the number stays that of the process that is meant: numbers are used again.
    pub unsafe fn of(pid: u32) -> ProcessMemory {
        // A number beyond what process ids can be names no process, as any other that is not in use.
        ProcessMemory { pid: Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX)) }
    }
}

/// A copy is whole or it is none.
fn whole(copied: nix::Result<usize>, wanted: usize) -> Result<()> {
    match copied {
        Ok(n) if n == wanted => Ok(()),
        Ok(_) => Err(Errno::EFAULT),
        Err(errno) => Err(Errno::from_raw(errno as i32).unwrap_or(Errno::EFAULT)),
    }
}

impl UserMemory for ProcessMemory {
    fn copy_from_user(&mut self, to: &mut [u8], from: u64) -> Result<()> {
        let (base, len) = (usize::try_from(from).map_err(|_| Errno::EFAULT)?, to.len());
        let copied = process_vm_readv(self.pid, &mut [IoSliceMut::new(to)], &[RemoteIoVec { base, len }]);
        whole(copied, len)
    }

    fn copy_to_user(&mut self, to: u64, from: &[u8]) -> Result<()> {
        let (base, len) = (usize::try_from(to).map_err(|_| Errno::EFAULT)?, from.len());
        let copied = process_vm_writev(self.pid, &[IoSlice::new(from)], &[RemoteIoVec { base, len }]);
        whole(copied, len)
    }

    fn strncpy_from_user(&mut self, to: &mut [u8], from: u64) -> Result<usize> {
        /// Most names are short, and one system call costs more than this many bytes.
        const FIRST: usize = 256;
        const PAGE: u64 = 4096;
        let mut done = 0;
        while done < to.len() {
            let at = from.checked_add(done as u64).ok_or(Errno::EFAULT)?;
            let most = if done == 0 { FIRST } else { PAGE as usize };
            let piece = (to.len() - done).min(most).min((PAGE - at % PAGE) as usize);
            let room = &mut to[done..done + piece];
            self.copy_from_user(room, at)?;
            match room.iter().position(|&byte| byte == 0) {
                Some(nul) => return Ok(done + nul),
                None => done += piece,
            }
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_read_and_written_and_its_ends_are_found() {
        // SAFETY:
        // 1. What is written is `to`, through its own pointer, and only this thread uses it and `bytes`.
        // 2. This process is there as long as it runs.
        let mut own = unsafe { ProcessMemory::of(std::process::id()) };
        let mut bytes = vec![b'x'; 10_000];
        bytes[9000] = 0;
        let address = bytes.as_ptr() as u64;
        let mut to = vec![0; 9500];
        assert_eq!(own.strncpy_from_user(&mut to, address), Ok(9000));
        assert_eq!(own.strncpy_from_user(&mut to[..100], address), Ok(100), "no NUL within it");
        assert_eq!(own.copy_from_user(&mut to[..4], address + 8998), Ok(()));
        assert_eq!(&to[..4], b"xx\0x");
        for bad in [0, 8, u64::MAX - 4, 1 << 63] {
            assert_eq!(own.copy_from_user(&mut to[..1], bad), Err(Errno::EFAULT), "{bad:#x}");
            assert_eq!(own.copy_to_user(bad, b"x"), Err(Errno::EFAULT), "{bad:#x}");
            assert_eq!(own.strncpy_from_user(&mut to, bad), Err(Errno::EFAULT), "{bad:#x}");
        }
        assert_eq!(own.copy_to_user(to.as_mut_ptr() as u64, b"abcd"), Ok(()));
        assert_eq!(&to[..4], b"abcd");
        // SAFETY: 1 and 2: there is no such process.
        let mut nobody = unsafe { ProcessMemory::of(u32::MAX) };
        assert_eq!(nobody.copy_to_user(8, b"x"), Err(Errno::ESRCH));
    }
}
