//! Rules that the engine does not have: it has no drivers, no device cgroups, and runs no programs.

use rcuwalk::errno::Errno;
use rcuwalk::perm::MAY_WRITE;
use rcuwalk::uapi::{S_IFBLK, S_IFCHR, S_IFREG, XATTR_REPLACE, makedev};

use crate::call::Call;
use crate::identity::Subject;
use crate::scene::{NodeIx, Scene, Swap};

/// /dev/tty.
pub(crate) const TTY: u64 = makedev(5, 0);

/// What refuses a call after the engine's walk and checks let it pass: the rule and its error. `target` is what one of
/// its paths leads to.
pub(crate) fn refusal(
    scene: &Scene,
    target: NodeIx,
    who: &Subject,
    call: &Call,
) -> Option<(&'static str, Errno)> {
    let object = &scene.nodes.get(target)?.object;
    let wants = call.wants();
    match object.kind() {
        // Kernel: security/device_cgroup.c, asked by inode_permission() when the modes have been.
        S_IFCHR | S_IFBLK
            if !who.other_cgroup && object.cgroup_refuses.is_some_and(|mask| mask & wants != 0) =>
        {
            Some(("device-cgroup", Errno::EPERM))
        }
        // Kernel: drivers/tty/tty_io.c tty_open_current_tty().
        S_IFCHR if object.rdev == TTY && call.opens() && who.terminal == Some(false) => {
            Some(("no-terminal", Errno::ENXIO))
        }
        S_IFREG if wants & MAY_WRITE != 0 && !matches!(call, Call::Access(..)) => {
            // Kernel: get_write_access(), and then what the file system does with an open file.
            if object.run_by.is_some() {
                Some(("running", Errno::ETXTBSY))
            } else if object.swap == Swap::Yes && call.cuts() {
                Some(("swap", Errno::ETXTBSY))
            } else if object.verity {
                Some(("verity", Errno::EPERM))
            } else {
                None
            }
        }
        // Kernel: may_delete().
        _ if object.swap == Swap::Yes
            && matches!(call, Call::Unlink(_) | Call::Rmdir(_) | Call::Rename(..)) =>
        {
            Some(("swap", Errno::EPERM))
        }
        _ if object.lacks_attribute && call.attribute().is_some() => {
            Some(("no-attributes", Errno::EOPNOTSUPP))
        }
        _ => None,
    }
}

/// Whether the engine let the call pass, though it did not carry it out.
pub(crate) fn passed(call: &Call, errno: Errno, kind: Option<u32>) -> bool {
    use rcuwalk::uapi::S_IFIFO;
    match (errno, kind) {
        // Permission was given; the engine has no drivers, and nobody is at the other end of a fifo.
        (Errno::ENXIO, Some(S_IFCHR | S_IFBLK)) | (Errno::EAGAIN, Some(S_IFIFO)) => true,
        // A stand-in for setting one that is there.
        (Errno::ENODATA, _) => matches!(call, Call::Setxattr(_, _, XATTR_REPLACE)),
        _ => false,
    }
}
