//! The checks of [`super`], as they are made: each tells a [`Watch`] what it asks and what decides.
//!
//! For [`Unwatched`] nothing is left of the telling.

use super::*;
use crate::base::uapi::{
    CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, S_IRWXG, S_ISGID, S_ISUID, S_IXGRP, s_isdir, s_islnk, s_isreg,
};
use crate::perm::acl::watched_acl_permission;
use crate::perm::fact::{Class, Fact, Held, Rule, Watch};

/// [`super::inode_permission`].
#[inline]
pub(crate) fn inode_permission(
    sb_rdonly: bool,
    attr: &InodeAttr,
    acl: &impl AclSource,
    cred: &Cred,
    mask: u32,
    w: &mut impl Watch,
) -> Result<()> {
    w.see(|| Fact::Asked { mask, attr: *attr });
    if mask & MAY_WRITE != 0 {
        may_write_at_all(sb_rdonly, attr, w)?;
    }
    generic_permission(attr, acl, cred, mask, w)
}

/// What forbids writing to every user. Kernel: `sb_permission()` and the write half of `inode_permission()`.
fn may_write_at_all(sb_rdonly: bool, attr: &InodeAttr, w: &mut impl Watch) -> Result<()> {
    if sb_rdonly && (s_isreg(attr.mode) || s_isdir(attr.mode) || s_islnk(attr.mode)) {
        return w.refuse(Rule::ReadOnlySuperblock, Errno::EROFS);
    }
    if attr.has_flag(IFLAG_IMMUTABLE) {
        return w.refuse(Rule::Immutable, Errno::EPERM);
    }
    if attr.has_unmapped_id() {
        return w.refuse(Rule::UnmappedOwner, Errno::EACCES);
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
pub(crate) fn generic_permission(
    attr: &InodeAttr,
    acl: &impl AclSource,
    cred: &Cred,
    mask: u32,
    w: &mut impl Watch,
) -> Result<()> {
    match acl_permission_check(attr, acl, cred, mask, w) {
        Err(Errno::EACCES) => capability_permission(attr, cred, mask, w),
        Err(errno) => w.refuse(Rule::MalformedAcl, errno),
        Ok(()) => Ok(()),
    }
}

/// The answer of the capabilities, once bits and ACL said no.
#[cold]
fn capability_permission(attr: &InodeAttr, cred: &Cred, mask: u32, w: &mut impl Watch) -> Result<()> {
    let mut capable = |cap| capable_wrt_inode_uidgid(cred, attr, cap, w);
    let passes = if s_isdir(attr.mode) {
        mask & MAY_WRITE == 0 && capable(CAP_DAC_READ_SEARCH) || capable(CAP_DAC_OVERRIDE)
    } else {
        let executable = mask & MAY_EXEC == 0 || attr.mode & S_IXUGO != 0;
        mask & (MAY_READ | MAY_WRITE | MAY_EXEC) == MAY_READ && capable(CAP_DAC_READ_SEARCH)
            || executable && capable(CAP_DAC_OVERRIDE)
    };
    if passes { Ok(()) } else { w.refuse(Rule::Permission, Errno::EACCES) }
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
pub(crate) fn acl_permission_check(
    attr: &InodeAttr,
    acl: &impl AclSource,
    cred: &Cred,
    mask: u32,
    w: &mut impl Watch,
) -> Result<()> {
    let (mode, want) = (attr.mode, mask & (MAY_READ | MAY_WRITE | MAY_EXEC));
    // Every class grants it, and there is no ACL that could refuse: the credential does not matter.
    if (want * 0o111) & !mode == 0 && !acl.has_access_acl() {
        return class_grants(Class::Everyone, want, want, w);
    }
    if attr.uid == cred.fsuid() {
        return class_grants(Class::Owner, mode >> 6, want, w);
    }
    if mode & S_IRWXG != 0
        && let Some(entries) = acl.access_acl()
    {
        return watched_acl_permission(entries, attr.uid, attr.gid, cred, want, w);
    }
    // Membership matters only where the two classes differ in something that is wanted.
    let differs = want & (mode ^ (mode >> 3)) != 0;
    let (class, bits) =
        if differs && cred.in_group(attr.gid) { (Class::Group, mode >> 3) } else { (Class::Other, mode) };
    class_grants(class, bits, want, w)
}

#[inline]
fn class_grants(class: Class, bits: u32, want: u32, w: &mut impl Watch) -> Result<()> {
    let granted = want & !bits == 0;
    w.see(|| Fact::Class { class, bits: bits & 7, mask: None, granted });
    if granted { Ok(()) } else { Err(Errno::EACCES) }
}

/// [`super::capable_wrt_inode_uidgid`].
#[inline]
pub(crate) fn capable_wrt_inode_uidgid(cred: &Cred, attr: &InodeAttr, cap: u32, w: &mut impl Watch) -> bool {
    let mapped = || cred.user_ns().has_uid(attr.uid) && cred.user_ns().has_gid(attr.gid);
    capable_if(cred, cap, mapped, w)
}

/// Has `cred` the capability in its own namespace, and does it reach that far?
#[inline]
fn capable_if(cred: &Cred, cap: u32, reaches: impl FnOnce() -> bool, w: &mut impl Watch) -> bool {
    let held = match cred.capable_here(cap) {
        false => Held::No,
        true if reaches() => Held::Yes,
        true => Held::Unmapped,
    };
    w.see(|| Fact::Capability { cap, held });
    held == Held::Yes
}

/// [`super::owner_or_capable`].
#[inline]
fn owner_or_capable(cred: &Cred, attr: &InodeAttr, w: &mut impl Watch) -> bool {
    attr.uid == cred.fsuid() || capable_if(cred, CAP_FOWNER, || cred.user_ns().has_uid(attr.uid), w)
}

/// The sticky bit of a directory: only the owner of the entry or of the directory may remove or rename the entry.
/// `w` listens to what is said of the victim.
///
/// # Errors
///
/// `EPERM`. `CAP_FOWNER` with respect to the entry passes, `CAP_DAC_OVERRIDE` does not.
///
/// Kernel: `check_sticky()`.
pub(crate) fn check_sticky(
    dir: &InodeAttr,
    victim: &InodeAttr,
    cred: &Cred,
    w: &mut impl Watch,
) -> Result<()> {
    let passes = dir.mode & S_ISVTX == 0
        || victim.uid == cred.fsuid()
        || dir.uid == cred.fsuid()
        || capable_wrt_inode_uidgid(cred, victim, CAP_FOWNER, w);
    if passes { Ok(()) } else { w.refuse(Rule::Sticky, Errno::EPERM) }
}

/// [`super::may_delete`]; the first listens to what is said of the directory, the second to that of the victim.
pub(crate) fn may_delete(
    dir: &Parent<'_, impl AclSource>,
    victim: &InodeAttr,
    victim_is_root: bool,
    want: Victim,
    cred: &Cred,
    [w, of_victim]: [&mut impl Watch; 2],
) -> Result<()> {
    if victim.has_unmapped_id() {
        return of_victim.refuse(Rule::UnmappedOwner, Errno::EOVERFLOW);
    }
    inode_permission(dir.sb_rdonly, dir.attr, dir.acl, cred, MAY_WRITE | MAY_EXEC, w)?;
    if dir.attr.has_flag(IFLAG_APPEND) {
        return w.refuse(Rule::AppendOnly, Errno::EPERM);
    }
    check_sticky(dir.attr, victim, cred, of_victim)?;
    if victim.has_flag(IFLAG_APPEND) {
        return of_victim.refuse(Rule::AppendOnly, Errno::EPERM);
    }
    if victim.has_flag(IFLAG_IMMUTABLE) {
        return of_victim.refuse(Rule::Immutable, Errno::EPERM);
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
/// ([`crate::cred::userns::IdView::can_store`]).
///
/// # Errors
///
/// In this order: `ENOENT` (the directory was removed), `EOVERFLOW` (not `can_store`), those of [`inode_permission`] for
/// writing and searching `dir`.
///
/// Kernel: `may_create()`. Differs: that the name exists is the caller's to report.
pub(crate) fn may_create(
    dir: &Parent<'_, impl AclSource>,
    can_store: bool,
    cred: &Cred,
    w: &mut impl Watch,
) -> Result<()> {
    if dir.attr.has_flag(IFLAG_DEAD) {
        return Err(Errno::ENOENT);
    }
    if !can_store {
        return w.refuse(Rule::CannotStore, Errno::EOVERFLOW);
    }
    inode_permission(dir.sb_rdonly, dir.attr, dir.acl, cred, MAY_WRITE | MAY_EXEC, w)
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
pub(crate) fn may_linkat(
    protected: Protected,
    sb_rdonly: bool,
    attr: &InodeAttr,
    acl: &impl AclSource,
    cred: &Cred,
    w: &mut impl Watch,
) -> Result<()> {
    if attr.has_unmapped_id() {
        return w.refuse(Rule::UnmappedOwner, Errno::EOVERFLOW);
    }
    let mut harmless = || {
        s_isreg(attr.mode)
            && attr.mode & S_ISUID == 0
            && attr.mode & (S_ISGID | S_IXGRP) != S_ISGID | S_IXGRP
            && inode_permission(sb_rdonly, attr, acl, cred, MAY_READ | MAY_WRITE, w).is_ok()
    };
    if !protected.hardlinks || harmless() || owner_or_capable(cred, attr, w) {
        Ok(())
    } else {
        w.refuse(Rule::ProtectedHardlinks, Errno::EPERM)
    }
}
