//! May this credential do that to this inode?
//!
//! Everything here is a function of values: an [`InodeAttr`], an ACL and a [`Cred`]. The engine calls it on attributes
//! that it sampled under a sequence count, and discards the answer when the sample turns out to be torn; so no function
//! here may panic on, or remember, what it is given.
//!
//! The checks themselves stand in `perm/watched.rs`, where they can be made to tell how they come to an answer.
//!
//! **Order.** The order of the tests decides which error a caller sees. It is the kernel's, and stands in each function.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::{
    CAP_FOWNER, CAP_FSETID, INVALID_ID, S_IFIFO, S_IFMT, S_IFREG, S_ISVTX, S_IWGRP, S_IWOTH, S_IXUGO,
};
use crate::cred::Cred;
use crate::perm::acl::AclEntry;
use crate::perm::fact::Unwatched;

pub mod acl;
pub(crate) mod fact;
pub(crate) mod setattr;
pub(crate) mod watched;

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
pub(crate) const IFLAG_DEAD: u32 = 8;
/// Inode flag: backups leave it out; no check asks for it.
pub const IFLAG_NODUMP: u32 = 1 << 8;
/// The inode flags that an inode can be made with.
pub const IFLAGS_KEPT: u32 = IFLAG_IMMUTABLE | IFLAG_APPEND | IFLAG_NOATIME | IFLAG_NODUMP;

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
pub(crate) trait AclSource {
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
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoAcl;

#[cfg(test)]
impl AclSource for NoAcl {
    type Entries = std::iter::Empty<AclEntry>;

    #[inline]
    fn access_acl(&self) -> Option<Self::Entries> {
        None
    }
}

/// May `cred` access the inode as `mask` (`MAY_*`) says?
///
/// `sb_rdonly`: the superblock is read-only. A read-only mount is tested for elsewhere, by the calls that write to it.
///
/// # Errors
///
/// In this order: `EROFS` (write, read-only superblock, regular file, directory or link), `EPERM` (write, immutable),
/// `EACCES` (write, owner or group without an id in the mount), `EACCES` (permission bits, ACL and capabilities),
/// `EIO` (malformed ACL).
///
/// Kernel: `inode_permission()`. Differs: no device cgroup, no security hook.
#[inline]
pub(crate) fn inode_permission(
    sb_rdonly: bool,
    attr: &InodeAttr,
    acl: &impl AclSource,
    cred: &Cred,
    mask: u32,
) -> Result<()> {
    watched::inode_permission(sb_rdonly, attr, acl, cred, mask, &mut Unwatched)
}

/// May every credential search a directory of this mode? If so, no search of it can fail, through any mount.
///
/// Kernel: the shortcut of `lookup_inode_permission_may_exec()`.
#[inline]
pub(crate) fn everyone_may_search(mode: u32, has_acl: bool) -> bool {
    everyone_may(mode, has_acl, MAY_EXEC)
}

/// May every credential do `mask` to what has this mode? Never true of writing, which more than the mode can forbid.
#[inline]
pub(crate) fn everyone_may(mode: u32, has_acl: bool, mask: u32) -> bool {
    let want = mask & (MAY_READ | MAY_WRITE | MAY_EXEC);
    (want * 0o111) & !mode == 0 && mask & MAY_WRITE == 0 && !has_acl
}

/// Has `cred` this capability in its own namespace, and are owner and group of the inode mapped there?
///
/// Kernel: `capable_wrt_inode_uidgid()`.
#[inline]
pub(crate) fn capable_wrt_inode_uidgid(cred: &Cred, attr: &InodeAttr, cap: u32) -> bool {
    cred.capable_here(cap) && cred.user_ns().has_uid(attr.uid) && cred.user_ns().has_gid(attr.gid)
}

/// Does `cred` own the inode, or have `CAP_FOWNER` with the owner mapped in its namespace?
///
/// Kernel: `inode_owner_or_capable()`.
#[inline]
pub(crate) fn owner_or_capable(cred: &Cred, attr: &InodeAttr) -> bool {
    attr.uid == cred.fsuid() || cred.capable_here(CAP_FOWNER) && cred.user_ns().has_uid(attr.uid)
}

/// Is `cred` in the group, or has it `CAP_FSETID` with respect to the inode?
///
/// Kernel: `in_group_or_capable()`.
#[inline]
pub(crate) fn in_group_or_capable(cred: &Cred, attr: &InodeAttr, gid: u32) -> bool {
    cred.in_group(gid) || capable_wrt_inode_uidgid(cred, attr, CAP_FSETID)
}

/// The directory that an entry is added to or removed from.
#[derive(Debug)]
pub(crate) struct Parent<'a, A> {
    /// The superblock is read-only.
    pub sb_rdonly: bool,
    /// The directory.
    pub attr: &'a InodeAttr,
    /// Its access ACL.
    pub acl: &'a A,
}

/// What the caller of [`may_delete`] is prepared to remove.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Victim {
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
pub(crate) fn may_delete(
    dir: &Parent<'_, impl AclSource>,
    victim: &InodeAttr,
    victim_is_root: bool,
    want: Victim,
    cred: &Cred,
) -> Result<()> {
    watched::may_delete(dir, victim, victim_is_root, want, cred, [&mut Unwatched, &mut Unwatched])
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
pub(crate) fn may_follow_link(
    protected: Protected,
    dir: &InodeAttr,
    link: &InodeAttr,
    cred: &Cred,
) -> Result<()> {
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

/// May `cred` open this existing inode, found in `dir`, with `O_CREAT`?
///
/// # Errors
///
/// `EACCES` for another's inode in a sticky directory that is not its owner's and that all may write to; at setting 2,
/// also when only the group may. No capability passes. The settings apply to regular files and fifos; for sockets and
/// devices in a world-writable directory the rule is always on.
///
/// Kernel: `may_create_in_sticky()`.
pub(crate) fn may_create_in_sticky(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::uapi::{
        CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_MKNOD, S_IFCHR, S_IFDIR, S_IFLNK, S_IFSOCK,
    };
    use crate::cred::CapSet;
    use crate::cred::userns::{IdExtent, UserNamespace};
    use crate::perm::acl::tests::{XorShift, model_acl, random_acl};
    use crate::perm::acl::{
        ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER_OBJ, Acl, UncheckedAcl,
        posix_acl_permission as check_acl,
    };
    use std::sync::Arc;

    const R: u32 = MAY_READ;
    const W: u32 = MAY_WRITE;
    const X: u32 = MAY_EXEC;

    struct Stored<'a>(Option<&'a Acl>);

    impl<'a> AclSource for Stored<'a> {
        type Entries = std::iter::Copied<std::slice::Iter<'a, AclEntry>>;

        fn access_acl(&self) -> Option<Self::Entries> {
            self.0.map(|acl| acl.entries().iter().copied())
        }
    }

    fn attr(mode: u32, uid: u32, gid: u32) -> InodeAttr {
        InodeAttr { mode, uid, gid, iflags: 0 }
    }

    fn flagged(mode: u32, iflags: u32) -> InodeAttr {
        InodeAttr { mode, uid: 0, gid: 0, iflags }
    }

    fn with_caps(uid: u32, caps: &[u32]) -> Cred {
        let caps = CapSet::of(caps);
        Cred::user(uid, uid, &[]).to_builder().permitted(caps).effective(caps).build().unwrap()
    }

    fn user() -> Cred {
        Cred::user(1000, 1000, &[])
    }

    fn may(attr: &InodeAttr, cred: &Cred, mask: u32) -> Result<()> {
        inode_permission(false, attr, &NoAcl, cred, mask)
    }

    /// The specification once more, as a list of questions without any shortcut.
    fn model(sb_rdonly: bool, attr: &InodeAttr, acl: Option<&Acl>, cred: &Cred, mask: u32) -> Result<()> {
        let kind = attr.mode & S_IFMT;
        let writes = mask & W != 0;
        if writes && sb_rdonly && [S_IFREG, S_IFDIR, S_IFLNK].contains(&kind) {
            return Err(Errno::EROFS);
        }
        if writes && attr.iflags & IFLAG_IMMUTABLE != 0 {
            return Err(Errno::EPERM);
        }
        if writes && (attr.uid == INVALID_ID || attr.gid == INVALID_ID) {
            return Err(Errno::EACCES);
        }
        let want = mask & 7;
        let in_group = cred.fsgid() == attr.gid || cred.groups().contains(&attr.gid);
        let bits = |shift: u32| (attr.mode >> shift) & 7 & want == want;
        let dac = match acl {
            _ if cred.fsuid() == attr.uid => bits(6),
            Some(acl) if attr.mode & 0o070 != 0 => model_acl(acl.entries(), attr.uid, attr.gid, cred, want),
            _ if in_group => bits(3),
            _ => bits(0),
        };
        let ns = cred.user_ns();
        let mapped = ns.from_kuid(attr.uid) != INVALID_ID && ns.from_kgid(attr.gid) != INVALID_ID;
        let has = |cap: u32| mapped && cred.effective().contains(cap);
        let search = has(CAP_DAC_READ_SEARCH) && if kind == S_IFDIR { !writes } else { want == R };
        let override_ = has(CAP_DAC_OVERRIDE) && (kind == S_IFDIR || want & X == 0 || attr.mode & 0o111 != 0);
        if dac || search || override_ { Ok(()) } else { Err(Errno::EACCES) }
    }

    fn some_namespace() -> Arc<UserNamespace> {
        let ns = UserNamespace::new_child(&UserNamespace::init(), 0, 0, true).unwrap();
        ns.set_uid_map(&[IdExtent { first: 0, lower: 0, count: 1001 }]).unwrap();
        ns.set_gid_map(&[IdExtent { first: 0, lower: 0, count: 55 }]).unwrap();
        ns
    }

    #[test]
    fn random_questions_agree_with_the_model() {
        let mut rng = XorShift(7);
        let ids = [0, 50, 60, 1000, 1001];
        let namespaces = [UserNamespace::init(), some_namespace()];
        let caps = [CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID];
        let mut answers = [0; 4];
        for _ in 0..500_000 {
            let set = (0..rng.below(3))
                .map(|_| rng.pick(&caps))
                .fold(CapSet::EMPTY, |set, cap| set | CapSet::of(&[cap]));
            let groups: Vec<u32> = (0..rng.below(3)).map(|_| rng.pick(&ids)).collect();
            let (fsuid, fsgid) = (rng.pick(&ids), rng.pick(&ids));
            let builder = Cred::builder().uids(1, 1, 1, fsuid).gids(2, 2, 2, fsgid).groups(&groups);
            let builder =
                builder.permitted(set).effective(set).user_ns(Arc::clone(&namespaces[rng.below(2) as usize]));
            let cred = builder.build().unwrap();
            let kind = rng.pick(&[S_IFREG, S_IFREG, S_IFDIR, S_IFLNK, S_IFCHR, S_IFIFO]);
            let inode = InodeAttr {
                mode: kind | rng.below(0o10_000),
                uid: rng.pick(&[0, 1000, 1001, INVALID_ID]),
                gid: rng.pick(&[0, 50, 60, INVALID_ID]),
                iflags: rng.pick(&[0, 0, 0, 0, IFLAG_IMMUTABLE, IFLAG_APPEND | IFLAG_NOATIME]),
            };
            let acl = (rng.below(2) == 0).then(|| random_acl(&mut rng, &ids));
            let (rdonly, mask) = (rng.below(8) == 0, rng.below(0x100));
            let expected = model(rdonly, &inode, acl.as_ref(), &cred, mask);
            assert_eq!(
                inode_permission(rdonly, &inode, &Stored(acl.as_ref()), &cred, mask),
                expected,
                "{inode:?} {acl:?} {cred:?}"
            );
            let kinds = [Ok(()), Err(Errno::EACCES), Err(Errno::EPERM), Err(Errno::EROFS)];
            answers[kinds.iter().position(|kind| *kind == expected).unwrap()] += 1;
        }
        assert!(answers.iter().all(|&n| n > 5_000), "{answers:?}");
    }

    /// Every mode, every relation of caller and inode, every request.
    #[test]
    fn every_mode_agrees_with_the_model() {
        let creds =
            [user(), Cred::user(1001, 50, &[]), Cred::user(1001, 60, &[50]), Cred::user(1001, 60, &[])];
        for kind in [S_IFREG, S_IFDIR] {
            for bits in 0..0o1000 {
                let inode = attr(kind | bits, 1000, 50);
                for cred in creds.iter().chain([&Cred::root()]) {
                    for mask in 0..8 {
                        assert_eq!(may(&inode, cred, mask), model(false, &inode, None, cred, mask));
                    }
                }
                if everyone_may_search(bits, false) {
                    assert!(creds.iter().all(|cred| may(&inode, cred, X).is_ok()));
                }
                assert!(!everyone_may_search(bits, true), "an ACL could refuse");
            }
        }
    }

    #[test]
    fn capabilities_pass_permission_bits() {
        let (file, dir) = (attr(S_IFREG, 0, 0), attr(S_IFDIR, 0, 0));
        let root = Cred::root();
        // q01, q04: root cannot execute what nobody can, but searches anything
        assert_eq!(may(&file, &root, X), Err(Errno::EACCES));
        assert_eq!(may(&attr(S_IFREG | 0o001, 0, 0), &root, R | W | X), Ok(()));
        assert_eq!(may(&dir, &root, R | W | X), Ok(()));
        // q02: classes are exclusive
        assert_eq!(may(&attr(S_IFREG | 0o077, 1000, 0), &user(), R), Err(Errno::EACCES));
        assert_eq!(may(&attr(S_IFREG | 0o707, 0, 1000), &user(), R), Err(Errno::EACCES));
        // q03: CAP_DAC_READ_SEARCH grants reading alone, and searching
        let reader = with_caps(1000, &[CAP_DAC_READ_SEARCH]);
        assert_eq!(may(&file, &reader, R), Ok(()));
        assert_eq!(may(&file, &reader, R | MAY_OPEN | MAY_ACCESS), Ok(()));
        assert_eq!(may(&file, &reader, R | W), Err(Errno::EACCES));
        assert_eq!(may(&file, &reader, 0), Ok(()));
        assert_eq!(may(&dir, &reader, R | X), Ok(()));
        assert_eq!(may(&dir, &reader, W | X), Err(Errno::EACCES));
        // q16: access on a link itself
        assert_eq!(may(&attr(S_IFLNK | 0o777, 0, 0), &user(), R | W | X), Ok(()));
        // k13: fsgid counts, egid does not
        let grouped = Cred::builder().uids(1000, 1000, 1000, 1000).gids(0, 0, 0, 555).build().unwrap();
        let switched = Cred::builder().uids(1000, 1000, 1000, 1000).gids(0, 555, 0, 0).build().unwrap();
        let file = attr(S_IFREG | 0o040, 0, 555);
        assert_eq!((may(&file, &grouped, R), may(&file, &switched, R)), (Ok(()), Err(Errno::EACCES)));
    }

    #[test]
    fn what_forbids_writing_comes_in_order() {
        let unmapped = InodeAttr { mode: S_IFREG, uid: INVALID_ID, gid: 0, iflags: IFLAG_IMMUTABLE };
        let root = Cred::root();
        assert_eq!(inode_permission(true, &unmapped, &NoAcl, &root, W), Err(Errno::EROFS));
        assert_eq!(inode_permission(false, &unmapped, &NoAcl, &root, W), Err(Errno::EPERM));
        let unmapped = InodeAttr { iflags: 0, mode: S_IFREG | 0o777, ..unmapped };
        assert_eq!(may(&unmapped, &root, W), Err(Errno::EACCES));
        assert_eq!(may(&unmapped, &root, R), Ok(()), "only writing");
        // Devices and fifos can be written on a read-only filesystem.
        for (kind, expected) in
            [(S_IFCHR, Ok(())), (S_IFIFO, Ok(())), (S_IFSOCK, Ok(())), (S_IFLNK, Err(Errno::EROFS))]
        {
            assert_eq!(inode_permission(true, &attr(kind | 0o666, 0, 0), &NoAcl, &user(), W), expected);
        }
        // q08: EPERM of an immutable inode beats the permission bits; q12: EROFS beats both
        let immutable = flagged(S_IFDIR | 0o755, IFLAG_IMMUTABLE);
        assert_eq!(may(&immutable, &user(), W | X), Err(Errno::EPERM));
        assert_eq!(
            inode_permission(true, &flagged(S_IFREG | 0o600, 0), &NoAcl, &user(), W),
            Err(Errno::EROFS)
        );
    }

    fn acl(entries: &[AclEntry]) -> Acl {
        UncheckedAcl::new(entries.iter().copied()).validate(&UserNamespace::init()).unwrap()
    }

    fn named(owner: u16, user: u16, group: u16, mask: u16, other: u16) -> Acl {
        acl(&[
            AclEntry::new(ACL_USER_OBJ, owner),
            AclEntry::user(1000, user),
            AclEntry::new(ACL_GROUP_OBJ, group),
            AclEntry::new(ACL_MASK, mask),
            AclEntry::new(ACL_OTHER, other),
        ])
    }

    fn may_acl(acl: &Acl, cred: &Cred, mask: u32) -> Result<()> {
        let (bits, _) = acl.equiv_mode();
        inode_permission(false, &attr(S_IFREG | bits, 0, 0), &Stored(Some(acl)), cred, mask)
    }

    #[test]
    fn verified_acl_cases() {
        let stranger = Cred::user(1001, 1001, &[]);
        // a01
        let mut one = named(6, 4, 0, 4, 0);
        assert_eq!(one.equiv_mode(), (0o640, true));
        let answers = [may_acl(&one, &user(), R), may_acl(&one, &user(), R | W), may_acl(&one, &stranger, R)];
        assert_eq!(answers, [Ok(()), Err(Errno::EACCES), Err(Errno::EACCES)]);
        one.chmod_masq(0o600);
        assert_eq!(may_acl(&one, &user(), R), Err(Errno::EACCES));
        // a02: with an empty mask the ACL is not looked at, and the named user is one of the others
        assert_eq!(may_acl(&named(7, 0, 0, 0, 7), &user(), R), Ok(()));
        let member = Cred::user(1001, 0, &[]);
        assert_eq!(may_acl(&named(7, 0, 0, 0, 7), &member, R), Err(Errno::EACCES), "the group has no bits");
        // a03: denied despite mode 0777
        let denied = named(7, 0, 7, 7, 7);
        assert_eq!(denied.equiv_mode(), (0o777, true));
        assert_eq!(
            (may_acl(&denied, &user(), R), may_acl(&denied, &stranger, R)),
            (Err(Errno::EACCES), Ok(()))
        );
        // a04: two groups that grant r and w do not grant rw
        let groups = acl(&[
            AclEntry::new(ACL_USER_OBJ, 7),
            AclEntry::new(ACL_GROUP_OBJ, 0),
            AclEntry::group(50, 4),
            AclEntry::group(60, 2),
            AclEntry::new(ACL_MASK, 7),
            AclEntry::new(ACL_OTHER, 7),
        ]);
        let both = Cred::user(1001, 50, &[60]);
        let answers = [R, W, R | W].map(|mask| may_acl(&groups, &both, mask));
        assert_eq!(answers, [Ok(()), Ok(()), Err(Errno::EACCES)]);
        // a05: the mask takes a bit away although others have it; the owner ignores the mask
        let masked = acl(&[
            AclEntry::new(ACL_USER_OBJ, 6),
            AclEntry::new(ACL_GROUP_OBJ, 6),
            AclEntry::new(ACL_MASK, 4),
            AclEntry::new(ACL_OTHER, 6),
        ]);
        assert_eq!(may_acl(&masked, &Cred::user(1001, 0, &[]), W), Err(Errno::EACCES));
        assert_eq!(may_acl(&masked, &with_caps(0, &[]), W), Ok(()));
        // a12: an x bit counts only where the mode has it
        let hidden_x = named(6, 1, 1, 0, 0);
        assert_eq!(may_acl(&hidden_x, &Cred::root(), X), Err(Errno::EACCES));
        // A malformed ACL is an error that no capability passes.
        struct Garbage;
        impl AclSource for Garbage {
            type Entries = std::option::IntoIter<AclEntry>;
            fn access_acl(&self) -> Option<Self::Entries> {
                Some(Some(AclEntry::new(0x40, 7)).into_iter())
            }
        }
        let file = attr(S_IFREG | 0o770, 5, 5);
        assert_eq!(inode_permission(false, &file, &Garbage, &Cred::root(), R), Err(Errno::EIO));
        assert_eq!(check_acl(std::iter::empty(), 5, 5, &user(), R), Err(Errno::EIO));
    }

    #[test]
    fn capabilities_end_at_unmapped_ids() {
        // u02, u03: owner and group must be mapped, for CAP_FOWNER only the owner
        let ns = some_namespace();
        let root = Cred::root().to_builder().user_ns(ns).build().unwrap();
        assert_eq!(may(&attr(S_IFREG | 0o600, 2000, 0), &root, R), Err(Errno::EACCES));
        assert_eq!(may(&attr(S_IFREG, 1000, 0), &root, R), Ok(()));
        assert_eq!(may(&attr(S_IFREG, 1000, 60), &root, R), Err(Errno::EACCES));
        assert!(owner_or_capable(&root, &attr(S_IFREG, 1000, 60)));
        assert!(!owner_or_capable(&root, &attr(S_IFREG, 2000, 0)));
        assert!(!in_group_or_capable(&root, &attr(S_IFREG, 1000, 60), 60));
        assert!(in_group_or_capable(&root, &attr(S_IFREG, 1000, 50), 50));
        let nobodys = attr(S_IFREG | 0o700, INVALID_ID, INVALID_ID);
        assert_eq!(may(&nobodys, &Cred::root(), R), Err(Errno::EACCES), "no owner, no capability");
        assert!(!owner_or_capable(&Cred::root(), &nobodys));
    }

    #[test]
    fn sticky_directories_protect_entries() {
        let sticky = attr(S_IFDIR | 0o1777, 0, 0);
        let (own, other) = (attr(S_IFREG | 0o644, 1000, 1000), attr(S_IFREG | 0o666, 1001, 1001));
        let check = |dir: &InodeAttr, victim: &InodeAttr, cred: &Cred| {
            let parent = Parent { sb_rdonly: false, attr: dir, acl: &NoAcl };
            may_delete(&parent, victim, false, Victim::NonDirectory, cred)
        };
        // o22, o23, o34, w26
        assert_eq!(check(&sticky, &other, &user()), Err(Errno::EPERM));
        assert_eq!(check(&sticky, &own, &user()), Ok(()));
        assert_eq!(
            check(&attr(S_IFDIR | 0o1777, 1000, 0), &other, &user()),
            Ok(()),
            "owner of the directory"
        );
        assert_eq!(check(&attr(S_IFDIR | 0o777, 0, 0), &other, &user()), Ok(()), "not sticky");
        assert_eq!(check(&sticky, &other, &with_caps(1000, &[CAP_FOWNER])), Ok(()));
        assert_eq!(check(&sticky, &other, &with_caps(1000, &[CAP_DAC_OVERRIDE])), Err(Errno::EPERM));
        assert_eq!(
            watched::check_sticky(
                &attr(S_IFDIR | 0o1777, 7, 0),
                &attr(S_IFREG, INVALID_ID, 0),
                &Cred::root(),
                &mut Unwatched
            ),
            Err(Errno::EPERM)
        );
    }

    #[test]
    fn deletion_errors_come_in_order() {
        let all_flags = IFLAG_APPEND | IFLAG_IMMUTABLE;
        let mut dir = InodeAttr { mode: S_IFDIR | 0o1755, uid: 0, gid: 0, iflags: IFLAG_APPEND | IFLAG_DEAD };
        let mut victim = InodeAttr { mode: S_IFDIR, uid: INVALID_ID, gid: 5, iflags: all_flags };
        let ask = |dir: &InodeAttr, victim: &InodeAttr, is_root, want, cred: &Cred| {
            may_delete(&Parent { sb_rdonly: false, attr: dir, acl: &NoAcl }, victim, is_root, want, cred)
        };
        let unlink = |dir: &InodeAttr, victim: &InodeAttr, cred: &Cred| {
            ask(dir, victim, false, Victim::NonDirectory, cred)
        };
        assert_eq!(unlink(&dir, &victim, &user()), Err(Errno::EOVERFLOW));
        victim.uid = 5;
        assert_eq!(unlink(&dir, &victim, &user()), Err(Errno::EACCES), "o24: before the type");
        dir.mode = S_IFDIR | 0o1777;
        assert_eq!(unlink(&dir, &victim, &user()), Err(Errno::EPERM), "append-only directory");
        dir.iflags = IFLAG_DEAD;
        assert_eq!(unlink(&dir, &victim, &user()), Err(Errno::EPERM), "sticky");
        dir.mode = S_IFDIR | 0o777;
        assert_eq!(unlink(&dir, &victim, &user()), Err(Errno::EPERM), "o25: immutable victim");
        victim.iflags = IFLAG_APPEND;
        assert_eq!(unlink(&dir, &victim, &user()), Err(Errno::EPERM), "q06: append-only victim");
        victim.iflags = 0;
        assert_eq!(unlink(&dir, &victim, &user()), Err(Errno::EISDIR));
        assert_eq!(ask(&dir, &victim, true, Victim::Directory, &user()), Err(Errno::EBUSY));
        assert_eq!(
            ask(&dir, &victim, false, Victim::Directory, &user()),
            Err(Errno::ENOENT),
            "removed directory"
        );
        assert_eq!(ask(&dir, &attr(S_IFREG, 5, 5), true, Victim::Directory, &user()), Err(Errno::ENOTDIR));
        dir.iflags = 0;
        assert_eq!(ask(&dir, &victim, false, Victim::Directory, &user()), Ok(()));
        assert_eq!(unlink(&dir, &attr(S_IFREG, 5, 5), &user()), Ok(()));
    }

    #[test]
    fn creation_errors_come_in_order() {
        let ask = |dir: &InodeAttr, can_store, cred: &Cred| {
            let parent = Parent { sb_rdonly: false, attr: dir, acl: &NoAcl };
            watched::may_create(&parent, can_store, cred, &mut Unwatched)
        };
        assert_eq!(ask(&flagged(S_IFDIR | 0o755, IFLAG_DEAD), false, &user()), Err(Errno::ENOENT));
        assert_eq!(ask(&flagged(S_IFDIR | 0o755, 0), false, &user()), Err(Errno::EOVERFLOW), "i03, i04");
        assert_eq!(ask(&flagged(S_IFDIR | 0o755, 0), true, &user()), Err(Errno::EACCES));
        assert_eq!(
            ask(&flagged(S_IFDIR | 0o755, IFLAG_IMMUTABLE), true, &Cred::root()),
            Err(Errno::EPERM),
            "q07"
        );
        assert_eq!(ask(&flagged(S_IFDIR | 0o755, IFLAG_APPEND), true, &Cred::root()), Ok(()), "q07");
        assert_eq!(
            ask(&flagged(S_IFDIR | 0o666, 0), true, &user()),
            Err(Errno::EACCES),
            "no search permission"
        );
    }

    /// p39 and p40.
    #[test]
    fn links_of_others_in_sticky_directories() {
        let on = Protected { symlinks: true, ..Protected::default() };
        let (tmp, link) = (attr(S_IFDIR | 0o1777, 0, 0), attr(S_IFLNK | 0o777, 1001, 1001));
        assert_eq!(may_follow_link(on, &tmp, &link, &user()), Err(Errno::EACCES));
        assert_eq!(may_follow_link(on, &tmp, &link, &Cred::root()), Err(Errno::EACCES));
        assert_eq!(may_follow_link(Protected::default(), &tmp, &link, &user()), Ok(()));
        assert_eq!(
            may_follow_link(on, &tmp, &attr(S_IFLNK | 0o777, 0, 0), &user()),
            Ok(()),
            "directory's owner"
        );
        assert_eq!(may_follow_link(on, &tmp, &attr(S_IFLNK | 0o777, 1000, 0), &user()), Ok(()), "own");
        assert_eq!(may_follow_link(on, &attr(S_IFDIR | 0o1775, 0, 0), &link, &user()), Ok(()));
        assert_eq!(may_follow_link(on, &attr(S_IFDIR | 0o777, 0, 0), &link, &user()), Ok(()));
        let nobodys = |mode| attr(mode, INVALID_ID, 0);
        let answer = may_follow_link(on, &nobodys(S_IFDIR | 0o1777), &nobodys(S_IFLNK), &user());
        assert_eq!(answer, Err(Errno::EACCES), "two unmapped owners are not the same");
    }

    /// o18.
    #[test]
    fn hard_links_to_files_of_others() {
        let on = Protected { hardlinks: true, ..Protected::default() };
        let may_linkat = |protected, attr: &InodeAttr, cred: &Cred| {
            watched::may_linkat(protected, false, attr, &NoAcl, cred, &mut Unwatched)
        };
        let ask = |mode, uid| may_linkat(on, &attr(mode, uid, 0), &user());
        let expected = [
            (S_IFREG | 0o644, Err(Errno::EPERM)),
            (S_IFREG | 0o666, Ok(())),
            (S_IFREG | 0o4666, Err(Errno::EPERM)),
            (S_IFREG | 0o2676, Err(Errno::EPERM)),
            (S_IFREG | 0o2666, Ok(())),
            (S_IFIFO | 0o666, Err(Errno::EPERM)),
            (S_IFLNK | 0o777, Err(Errno::EPERM)),
        ];
        for (mode, answer) in expected {
            assert_eq!(ask(mode, 0), answer, "{mode:o}");
        }
        assert_eq!(ask(S_IFREG, 1000), Ok(()), "own");
        let unmapped = attr(S_IFREG | 0o666, 0, INVALID_ID);
        let off = Protected::default();
        assert_eq!(may_linkat(off, &unmapped, &user()), Err(Errno::EOVERFLOW));
        assert_eq!(may_linkat(off, &attr(S_IFIFO, 0, 0), &user()), Ok(()));
        let fowner = with_caps(1000, &[CAP_FOWNER]);
        assert_eq!(may_linkat(on, &attr(S_IFREG | 0o4600, 0, 0), &fowner), Ok(()));
        let other_cap = with_caps(1000, &[CAP_CHOWN, CAP_MKNOD]);
        assert_eq!(may_linkat(on, &attr(S_IFREG | 0o600, 0, 0), &other_cap), Err(Errno::EPERM));
    }

    /// n17, and the same for sockets and devices as a running kernel answers.
    #[test]
    fn o_creat_on_files_of_others_in_sticky_directories() {
        let level = |regular, fifos| Protected { regular, fifos, ..Protected::default() };
        let ask = |protected, dir_mode, kind: u32, uid| {
            may_create_in_sticky(
                protected,
                &attr(S_IFDIR | dir_mode, 0, 0),
                &attr(kind | 0o666, uid, uid),
                &user(),
            )
        };
        let denied = Err(Errno::EACCES);
        assert_eq!(ask(level(1, 0), 0o1777, S_IFREG, 1001), denied);
        assert_eq!(ask(level(1, 0), 0o1777, S_IFREG, 0), Ok(()), "owner of the directory");
        assert_eq!(ask(level(1, 0), 0o1777, S_IFREG, 1000), Ok(()), "own");
        assert_eq!(ask(level(1, 0), 0o777, S_IFREG, 1001), Ok(()), "not sticky");
        assert_eq!(ask(level(0, 1), 0o1777, S_IFIFO, 1001), denied);
        assert_eq!(ask(level(0, 2), 0o1777, S_IFREG, 1001), Ok(()), "off for regular files");
        assert_eq!(ask(level(1, 1), 0o1770, S_IFREG, 1001), Ok(()), "group-writable at level 1");
        assert_eq!(ask(level(2, 1), 0o1770, S_IFREG, 1001), denied);
        assert_eq!(ask(level(2, 1), 0o1770, S_IFIFO, 1001), Ok(()));
        assert_eq!(ask(level(2, 2), 0o1700, S_IFREG, 1001), Ok(()));
        for kind in [S_IFSOCK, S_IFCHR] {
            assert_eq!(ask(level(0, 0), 0o1777, kind, 1001), denied, "whatever the settings");
            assert_eq!(ask(level(2, 2), 0o1770, kind, 1001), Ok(()));
        }
    }
}
