//! What a walk is asked, and what it gives.

use crate::base::errno::Errno;
use crate::base::uapi::{RESOLVE_BENEATH, RESOLVE_IN_ROOT};
use crate::dcache::{Name, Seen};
use crate::file::File;
use crate::kernel::Bail;
use crate::mount::Path;
use rcuwalk_sync::Handle;

/// Why a walk ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Stop {
    /// Nothing is known; walk again, holding references.
    Retry(Bail),
    /// This is the answer.
    Fail(Errno),
}

/// What a step of a walk gives.
pub(crate) type Walk<T> = Result<T, Stop>;

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Fail(errno)
    }
}

/// How a path is to be looked up. The raw flags of the calls are parsed into this once, and travel no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lookup {
    /// Follow a link in the last component.
    pub(crate) follow: bool,
    /// The result must be a directory.
    pub(crate) directory: bool,
    /// An empty path means the start itself.
    pub(crate) empty: bool,
    /// `RESOLVE_*` bits.
    pub(crate) resolve: u64,
}

impl Lookup {
    /// `stat`, `access`, `chmod`, …: follow to the end.
    pub(crate) const FOLLOW: Lookup = Lookup { follow: true, directory: false, empty: false, resolve: 0 };

    /// `lstat`, `readlink`, …: the link itself.
    pub(crate) const NOFOLLOW: Lookup = Lookup { follow: false, ..Lookup::FOLLOW };

    /// `chdir`, `chroot`.
    pub(crate) const DIRECTORY: Lookup = Lookup { directory: true, ..Lookup::FOLLOW };

    pub(super) fn scoped(self) -> bool {
        self.resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT) != 0
    }
}

/// Where relative paths start.
#[derive(Debug, Clone, Copy)]
pub(crate) enum At<'a> {
    /// `AT_FDCWD`.
    Cwd,
    /// An open file, which must be a directory unless the path is empty.
    File(&'a File),
    /// A descriptor that is not open: `EBADF` if it turns out to be needed.
    Bad,
}

/// Where a walk stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    pub(crate) mnt: Handle,
    pub(crate) seen: Seen,
}

impl Position {
    pub(crate) fn path(self) -> Path {
        Path { mnt: self.mnt, dentry: self.seen.dentry }
    }
}

/// The last component of a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Last<'p> {
    pub(crate) kind: LastType,
    pub(crate) name: Name<'p>,
    /// Slashes follow it.
    pub(crate) slash: bool,
}

/// Kernel: include/linux/namei.h `LAST_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastType {
    /// A name.
    Norm,
    /// Nothing, or only slashes.
    Root,
    Dot,
    DotDot,
}

/// What the caller makes of the last component.
pub(crate) enum Step<R> {
    Done(R),
    /// It is a link, found in the directory the walk stands in, and is to be followed.
    Link(Seen),
}
