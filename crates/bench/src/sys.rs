//! The two host calls that have no safe wrapper.
#![allow(unsafe_code)]

use rustix::io;
use rustix::thread::{UnshareFlags, unshare_unsafe};

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
pub(crate) fn trim_heap() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: malloc_trim has no demands; it takes the allocator's own locks.
        unsafe { libc::malloc_trim(0) };
    }
}
