//! What a check says on its way to an answer, and to whom.
//!
//! The checks take a [`Watch`]. Only a recording ([`crate::kernel::trace`]) listens; for all other callers it is [`Unwatched`],
//! which leaves no code behind.

use crate::base::errno::{Errno, Result};
use crate::perm::InodeAttr;

/// What a check says on its way to an answer. `Asked` begins a question; what follows, up to the next `Asked`, answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fact {
    /// May this be done to an inode of these attributes?
    Asked {
        /// `MAY_*`.
        mask: u32,
        /// As the mount shows them.
        attr: InodeAttr,
    },
    /// The class of the mode, or the entry of the ACL, that speaks for the caller, and whether it grants what was asked.
    Class {
        /// Which.
        class: Class,
        /// Read 4, write 2, execute 1.
        bits: u32,
        /// The mask of the ACL, where it bounds them.
        mask: Option<u32>,
        /// Whether that is enough.
        granted: bool,
    },
    /// Whether a capability helps, asked where it would.
    Capability {
        /// `CAP_*`.
        cap: u32,
        /// The answer.
        held: Held,
    },
    /// This rule says no, and with this error the call ends, or a question within it.
    Refused {
        /// The rule.
        rule: Rule,
        /// The error.
        errno: Errno,
    },
}

/// Who a credential is to an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// It does not matter: owner, group and others are all granted what was asked, and there is no ACL.
    Everyone,
    /// The owner.
    Owner,
    /// A user or group that the ACL names, by this id.
    NamedUser(u32),
    /// A member of the inode's group.
    Group,
    /// A member of a group that the ACL names, by this id.
    NamedGroup(u32),
    /// A member of groups that the ACL knows, none of which is granted all that was asked.
    NoGroupEntry,
    /// Anybody else.
    Other,
}

/// Whether a credential has a capability over an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Held {
    /// It has.
    Yes,
    /// It has not.
    No,
    /// It has, but its user namespace has no id for the inode's owner or group, so that it does not count.
    Unmapped,
}

/// A rule that can end a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// The superblock is read-only; this is tested before permissions.
    ReadOnlySuperblock,
    /// The mount is read-only; for access(2) this is tested after permissions.
    ReadOnlyMount,
    /// The inode is immutable.
    Immutable,
    /// The inode is append-only.
    AppendOnly,
    /// Owner or group have no id in the mount.
    UnmappedOwner,
    /// Permission bits or ACL, and no capability passes them.
    Permission,
    /// The ACL makes no sense.
    MalformedAcl,
    /// Another's entry in a sticky directory.
    Sticky,
    /// Neither owner nor capable.
    NotOwner,
    /// Another owner, or a group that the caller is not in, needs `CAP_CHOWN`.
    Chown,
    /// The mount is `noexec`.
    NoExec,
    /// Not a regular file, so not a program.
    NotAProgram,
    /// The mount is `nodev`.
    NoDev,
    /// The mount is `nosymfollow`.
    NoSymFollow,
    /// `fs.protected_symlinks`.
    ProtectedSymlinks,
    /// `fs.protected_hardlinks`.
    ProtectedHardlinks,
    /// `fs.protected_regular`, `fs.protected_fifos`, or the like for sockets and devices.
    ProtectedCreate,
    /// The file system cannot store the caller's ids.
    CannotStore,
    /// More links than are followed.
    TooManyLinks,
    /// `RESOLVE_NO_SYMLINKS`.
    NoSymlinks,
}

/// Is told what a check does.
pub(crate) trait Watch {
    /// Takes a fact, or does not even ask for it.
    fn see(&mut self, fact: impl FnOnce() -> Fact);

    /// Says which rule refuses.
    fn refuse<T>(&mut self, rule: Rule, errno: Errno) -> Result<T> {
        self.see(|| Fact::Refused { rule, errno });
        Err(errno)
    }
}

/// Nobody listens.
pub(crate) struct Unwatched;

impl Watch for Unwatched {
    #[inline(always)]
    fn see(&mut self, _: impl FnOnce() -> Fact) {}
}
