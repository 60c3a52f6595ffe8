//! The one call on `/dev/fuse` that no crate has a safe function for.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Result;
use rustix::ioctl::{Setter, ioctl, opcode};

/// Makes `new`, a fresh `/dev/fuse`, one more queue for the requests of the mount that `device` serves.
///
/// Kernel: fs/fuse/dev.c `FUSE_DEV_IOC_CLONE`.
pub(crate) fn clone_device(new: &OwnedFd, device: &OwnedFd) -> Result<()> {
    const FUSE_DEV_IOC_CLONE: u32 = opcode::read::<u32>(229, 0);
    // SAFETY: the kernel reads one u32 from the address, a descriptor number, and writes nothing.
    unsafe {
        let which = Setter::<FUSE_DEV_IOC_CLONE, u32>::new(device.as_raw_fd() as u32);
        ioctl(new, which)
    }
}
