//! May this credential do that to this inode?
//!
//! Everything here is a function of values: an [`InodeAttr`], an ACL and a [`Cred`]. The engine calls it on attributes
//! that it sampled under a sequence count, and discards the answer when the sample turns out to be torn; so no function
//! here may panic on, or remember, what it is given.
//!
//! **Order.** The order of the tests decides which error a caller sees. It is the kernel's, and stands in each function.

use crate::acl::{AclEntry, posix_acl_permission};
use crate::cred::Cred;
use crate::errno::{Errno, Result};
use crate::uapi::{
    CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID, INVALID_ID, S_IFIFO, S_IFMT, S_IFREG,
    S_IRWXG, S_ISGID, S_ISUID, S_ISVTX, S_IWGRP, S_IWOTH, S_IXGRP, S_IXUGO, s_isdir, s_islnk, s_isreg,
};

/// Permission to execute, or to search a directory.
pub const MAY_EXEC: u32 = 0x01;
/// Permission to write.
pub const MAY_WRITE: u32 = 0x02;
/// Permission to read.
pub const MAY_READ: u32 = 0x04;
/// The write is an append. Says nothing to the checks here.
pub const MAY_APPEND: u32 = 0x08;
/// The question comes from access(2).
pub const MAY_ACCESS: u32 = 0x10;
/// The question comes from open(2).
pub const MAY_OPEN: u32 = 0x20;
/// The question comes from chdir(2).
pub const MAY_CHDIR: u32 = 0x40;
/// The question comes from a walk that must not block.
pub const MAY_NOT_BLOCK: u32 = 0x80;

/// Inode flag: nothing about the inode may change.
pub const IFLAG_IMMUTABLE: u32 = 1;
/// Inode flag: contents may only be appended to, names only be added.
pub const IFLAG_APPEND: u32 = 2;
/// Inode flag: the access time does not change.
pub const IFLAG_NOATIME: u32 = 4;
/// Inode flag: a directory that was removed.
pub const IFLAG_DEAD: u32 = 8;

/// What a permission check needs to know of an inode, apart from its ACL.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct InodeAttr {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner, as the mount shows it (`vfsuid_t`); [`INVALID_ID`] when the mount has no id for it.
    pub uid: u32,
    /// Group, as the mount shows it (`vfsgid_t`); [`INVALID_ID`] when the mount has no id for it.
    pub gid: u32,
    /// `IFLAG_*`.
    pub iflags: u32,
}

impl InodeAttr {
    /// Has the inode an owner or a group that the mount has no id for? Kernel: `HAS_UNMAPPED_ID()`.
    #[inline]
    pub fn has_unmapped_id(&self) -> bool {
        self.uid == INVALID_ID || self.gid == INVALID_ID
    }

    #[inline]
    fn has_flag(&self, flags: u32) -> bool {
        self.iflags & flags != 0
    }
}

/// Where a check finds the access ACL of the inode it looks at.
pub trait AclSource {
    /// The entries, with ids as the mount shows them. Must end.
    type Entries: Iterator<Item = AclEntry>;

    /// The access ACL, if the inode has one (and the filesystem knows ACLs).
    fn access_acl(&self) -> Option<Self::Entries>;

    /// Has the inode an access ACL?
    #[inline]
    fn has_access_acl(&self) -> bool {
        self.access_acl().is_some()
    }
}

/// The inode has no access ACL.
#[derive(Clone, Copy, Debug)]
pub struct NoAcl;

impl AclSource for NoAcl {
    type Entries = std::iter::Empty<AclEntry>;

    #[inline]
    fn access_acl(&self) -> Option<Self::Entries> {
        None
    }
}

/// May `cred` access the inode as `mask` (`MAY_*`) says?
///
/// `sb_rdonly`: the superblock is read-only. That a mount is read-only is tested elsewhere, by who wants to write to it.
///
/// # Errors
///
/// In this order: `EROFS` (write, read-only superblock, regular file, directory or link), `EPERM` (write, immutable),
/// `EACCES` (write, owner or group without an id in the mount), `EACCES` (permission bits, ACL and capabilities),
/// `EIO` (malformed ACL).
///
/// Kernel: `inode_permission()`. Differs: no device cgroup, no security hook.
///
/// ```
/// use rcuwalk::perm::{InodeAttr, MAY_EXEC, MAY_READ, NoAcl, inode_permission};
/// use rcuwalk::{cred::Cred, errno::Errno, uapi::S_IFREG};
///
/// let file = InodeAttr { mode: S_IFREG | 0o640, uid: 0, gid: 27, iflags: 0 };
/// let member = Cred::user(1000, 1000, &[27]);
/// assert_eq!(inode_permission(false, &file, &NoAcl, &member, MAY_READ), Ok(()));
/// assert_eq!(inode_permission(false, &file, &NoAcl, &Cred::root(), MAY_EXEC), Err(Errno::EACCES));
/// ```
#[inline]
pub fn inode_permission(
    sb_rdonly: bool,
    attr: &InodeAttr,
    acl: &impl AclSource,
    cred: &Cred,
    mask: u32,
) -> Result<()> {
    if mask & MAY_WRITE != 0 {
        may_write_at_all(sb_rdonly, attr)?;
    }
    generic_permission(attr, acl, cred, mask)
}

/// What forbids writing whoever asks. Kernel: `sb_permission()` and the write half of `inode_permission()`.
fn may_write_at_all(sb_rdonly: bool, attr: &InodeAttr) -> Result<()> {
    if sb_rdonly && (s_isreg(attr.mode) || s_isdir(attr.mode) || s_islnk(attr.mode)) {
        return Err(Errno::EROFS);
    }
    if attr.has_flag(IFLAG_IMMUTABLE) {
        return Err(Errno::EPERM);
    }
    if attr.has_unmapped_id() {
        return Err(Errno::EACCES);
    }
    Ok(())
}

/// Permission bits and ACL, and the capabilities that pass them.
///
/// # Errors
///
/// `EACCES`; `EIO` for a malformed ACL, which no capability passes.
///
/// Kernel: `generic_permission()`.
#[inline]
pub fn generic_permission(attr: &InodeAttr, acl: &impl AclSource, cred: &Cred, mask: u32) -> Result<()> {
    match acl_permission_check(attr, acl, cred, mask) {
        Err(Errno::EACCES) => capability_permission(attr, cred, mask),
        answer => answer,
    }
}

/// The answer of the capabilities, once bits and ACL said no.
#[cold]
fn capability_permission(attr: &InodeAttr, cred: &Cred, mask: u32) -> Result<()> {
    let capable = |cap| capable_wrt_inode_uidgid(cred, attr, cap);
    let passes = if s_isdir(attr.mode) {
        mask & MAY_WRITE == 0 && capable(CAP_DAC_READ_SEARCH) || capable(CAP_DAC_OVERRIDE)
    } else {
        let executable = mask & MAY_EXEC == 0 || attr.mode & S_IXUGO != 0;
        mask & (MAY_READ | MAY_WRITE | MAY_EXEC) == MAY_READ && capable(CAP_DAC_READ_SEARCH)
            || executable && capable(CAP_DAC_OVERRIDE)
    };
    if passes { Ok(()) } else { Err(Errno::EACCES) }
}

/// Permission bits and ACL alone.
///
/// Exactly one class of the mode answers: the owner's, and then the ACL has no say; else the ACL, if the mode grants the
/// group class anything at all (the mask: so with an empty mask an ACL is *not* looked at, and a named user falls through
/// to "others"); else the group's or the others'.
///
/// # Errors
///
/// `EACCES`; `EIO` for a malformed ACL.
///
/// Kernel: `acl_permission_check()`.
#[inline]
pub fn acl_permission_check(attr: &InodeAttr, acl: &impl AclSource, cred: &Cred, mask: u32) -> Result<()> {
    let (mode, want) = (attr.mode, mask & (MAY_READ | MAY_WRITE | MAY_EXEC));
    // Every class grants it, and there is no ACL that could refuse: who asks does not matter.
    if (want * 0o111) & !mode == 0 && !acl.has_access_acl() {
        return Ok(());
    }
    if attr.uid == cred.fsuid() {
        return class_grants(mode >> 6, want);
    }
    if mode & S_IRWXG != 0
        && let Some(entries) = acl.access_acl()
    {
        return posix_acl_permission(entries, attr.uid, attr.gid, cred, want);
    }
    // Membership matters only where the two classes differ in something that is wanted.
    let differs = want & (mode ^ (mode >> 3)) != 0;
    class_grants(if differs && cred.in_group(attr.gid) { mode >> 3 } else { mode }, want)
}

#[inline]
fn class_grants(bits: u32, want: u32) -> Result<()> {
    if want & !bits == 0 { Ok(()) } else { Err(Errno::EACCES) }
}

/// May every credential search a directory of this mode? If so, no search of it can fail, through any mount.
///
/// Kernel: the shortcut of `lookup_inode_permission_may_exec()`.
#[inline]
pub fn everyone_may_search(mode: u32, has_acl: bool) -> bool {
    mode & S_IXUGO == S_IXUGO && !has_acl
}

/// Has `cred` this capability in its own namespace, and are owner and group of the inode mapped there?
///
/// Kernel: `capable_wrt_inode_uidgid()`.
#[inline]
pub fn capable_wrt_inode_uidgid(cred: &Cred, attr: &InodeAttr, cap: u32) -> bool {
    cred.capable_here(cap) && cred.user_ns().has_uid(attr.uid) && cred.user_ns().has_gid(attr.gid)
}

/// Does `cred` own the inode, or have `CAP_FOWNER` with the owner mapped in its namespace?
///
/// Kernel: `inode_owner_or_capable()`.
#[inline]
pub fn owner_or_capable(cred: &Cred, attr: &InodeAttr) -> bool {
    attr.uid == cred.fsuid() || cred.capable_here(CAP_FOWNER) && cred.user_ns().has_uid(attr.uid)
}

/// Is `cred` in the group, or has it `CAP_FSETID` with respect to the inode?
///
/// Kernel: `in_group_or_capable()`.
#[inline]
pub fn in_group_or_capable(cred: &Cred, attr: &InodeAttr, gid: u32) -> bool {
    cred.in_group(gid) || capable_wrt_inode_uidgid(cred, attr, CAP_FSETID)
}

/// The sticky bit of a directory: only the owner of the entry or of the directory may remove or rename the entry.
///
/// # Errors
///
/// `EPERM`. `CAP_FOWNER` with respect to the entry passes, `CAP_DAC_OVERRIDE` does not.
///
/// Kernel: `check_sticky()`.
pub fn check_sticky(dir: &InodeAttr, victim: &InodeAttr, cred: &Cred) -> Result<()> {
    let passes = dir.mode & S_ISVTX == 0
        || victim.uid == cred.fsuid()
        || dir.uid == cred.fsuid()
        || capable_wrt_inode_uidgid(cred, victim, CAP_FOWNER);
    if passes { Ok(()) } else { Err(Errno::EPERM) }
}

/// The directory that an entry is added to or removed from.
#[derive(Debug)]
pub struct Parent<'a, A> {
    /// The superblock is read-only.
    pub sb_rdonly: bool,
    /// The directory.
    pub attr: &'a InodeAttr,
    /// Its access ACL.
    pub acl: &'a A,
}

/// What the caller of [`may_delete`] is prepared to remove.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Victim {
    /// A directory: rmdir, and rename of or over one.
    Directory,
    /// Anything else: unlink, and rename of or over one.
    NonDirectory,
}

/// May `cred` remove the entry `victim` (which exists) from `dir`, or rename it or over it?
///
/// `victim_is_root`: the victim is the root of its filesystem.
///
/// # Errors
///
/// In this order: `EOVERFLOW` (the victim's owner or group has no id in the mount), those of [`inode_permission`] for
/// writing and searching `dir`, `EPERM` (append-only directory; sticky directory; append-only or immutable victim),
/// `ENOTDIR`, `EBUSY` or `EISDIR` (not what is wanted), `ENOENT` (the directory was removed).
///
/// Kernel: `may_delete()`.
pub fn may_delete(
    dir: &Parent<'_, impl AclSource>,
    victim: &InodeAttr,
    victim_is_root: bool,
    want: Victim,
    cred: &Cred,
) -> Result<()> {
    if victim.has_unmapped_id() {
        return Err(Errno::EOVERFLOW);
    }
    inode_permission(dir.sb_rdonly, dir.attr, dir.acl, cred, MAY_WRITE | MAY_EXEC)?;
    if dir.attr.has_flag(IFLAG_APPEND) {
        return Err(Errno::EPERM);
    }
    check_sticky(dir.attr, victim, cred)?;
    if victim.has_flag(IFLAG_APPEND | IFLAG_IMMUTABLE) {
        return Err(Errno::EPERM);
    }
    match (want, s_isdir(victim.mode)) {
        (Victim::Directory, false) => return Err(Errno::ENOTDIR),
        (Victim::Directory, true) if victim_is_root => return Err(Errno::EBUSY),
        (Victim::NonDirectory, true) => return Err(Errno::EISDIR),
        _ => {}
    }
    if dir.attr.has_flag(IFLAG_DEAD) { Err(Errno::ENOENT) } else { Ok(()) }
}

/// May `cred` add an entry (which does not exist yet) to `dir`?
///
/// `can_store`: the filesystem can store objects of this credential's filesystem ids
/// ([`crate::userns::IdView::can_store`]).
///
/// # Errors
///
/// In this order: `ENOENT` (the directory was removed), `EOVERFLOW` (not `can_store`), those of [`inode_permission`] for
/// writing and searching `dir`.
///
/// Kernel: `may_create()`. Differs: that the name exists is the caller's to report.
pub fn may_create(dir: &Parent<'_, impl AclSource>, can_store: bool, cred: &Cred) -> Result<()> {
    if dir.attr.has_flag(IFLAG_DEAD) {
        return Err(Errno::ENOENT);
    }
    if !can_store {
        return Err(Errno::EOVERFLOW);
    }
    inode_permission(dir.sb_rdonly, dir.attr, dir.acl, cred, MAY_WRITE | MAY_EXEC)
}

/// The `fs.protected_*` settings. The default is the kernel's: all off; most distributions turn them on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Protected {
    /// `fs.protected_symlinks`.
    pub symlinks: bool,
    /// `fs.protected_hardlinks`.
    pub hardlinks: bool,
    /// `fs.protected_regular`: 0, 1 or 2.
    pub regular: u8,
    /// `fs.protected_fifos`: 0, 1 or 2.
    pub fifos: u8,
}

/// May `cred` follow this link, the last component of a path, found in `dir`?
///
/// # Errors
///
/// `EACCES` for another's link in a sticky world-writable directory, unless the directory is the link owner's. No
/// capability passes.
///
/// Kernel: `may_follow_link()`.
pub fn may_follow_link(protected: Protected, dir: &InodeAttr, link: &InodeAttr, cred: &Cred) -> Result<()> {
    let trap = protected.symlinks
        && link.uid != cred.fsuid()
        && dir.mode & (S_ISVTX | S_IWOTH) == S_ISVTX | S_IWOTH
        && !same_owner(dir, link);
    if trap { Err(Errno::EACCES) } else { Ok(()) }
}

/// Have two inodes the same owner? Unmapped owners are nobody's.
#[inline]
fn same_owner(a: &InodeAttr, b: &InodeAttr) -> bool {
    a.uid == b.uid && a.uid != INVALID_ID
}

/// May `cred` make another link to this inode, as far as the inode has a say?
///
/// # Errors
///
/// `EOVERFLOW`: owner or group has no id in the mount. `EPERM`: the setting is on, and the inode is neither the
/// caller's nor harmless. Harmless is a regular file without set-user-id, without set-group-id on an executable one,
/// that the caller may read and write.
///
/// Kernel: `may_linkat()`, `safe_hardlink_source()`.
pub fn may_linkat(
    protected: Protected,
    sb_rdonly: bool,
    attr: &InodeAttr,
    acl: &impl AclSource,
    cred: &Cred,
) -> Result<()> {
    if attr.has_unmapped_id() {
        return Err(Errno::EOVERFLOW);
    }
    let harmless = || {
        s_isreg(attr.mode)
            && attr.mode & S_ISUID == 0
            && attr.mode & (S_ISGID | S_IXGRP) != S_ISGID | S_IXGRP
            && inode_permission(sb_rdonly, attr, acl, cred, MAY_READ | MAY_WRITE).is_ok()
    };
    if !protected.hardlinks || harmless() || owner_or_capable(cred, attr) {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// May `cred` open this existing inode, found in `dir`, with `O_CREAT`?
///
/// # Errors
///
/// `EACCES` for another's inode in a sticky directory that is not its owner's and that all may write to; at setting 2,
/// also when only the group may. No capability passes. The settings apply to regular files and fifos; for sockets and
/// devices in a world-writable directory the rule is always on.
///
/// Kernel: `may_create_in_sticky()`.
pub fn may_create_in_sticky(
    protected: Protected,
    dir: &InodeAttr,
    inode: &InodeAttr,
    cred: &Cred,
) -> Result<()> {
    let level = match inode.mode & S_IFMT {
        S_IFREG => protected.regular,
        S_IFIFO => protected.fifos,
        _ => 1,
    };
    let exempt = level == 0 || dir.mode & S_ISVTX == 0 || same_owner(dir, inode) || inode.uid == cred.fsuid();
    let exposed = dir.mode & S_IWOTH != 0 || level >= 2 && dir.mode & S_IWGRP != 0;
    if !exempt && exposed { Err(Errno::EACCES) } else { Ok(()) }
}
