//! Changes of attributes: who may make them, and what they turn into.
//!
//! As in [`crate::perm`], everything is a function of values: a call looks at the attributes that the inode has and
//! answers with the ones to store, or with the error. Storing them, together with the new change time and under the
//! inode's lock, is the engine's part, and so is the check that the mount may be written to, which comes first in every
//! call here.
//!
//! In an [`InodeAttr`] ids are those that the mount shows; what a call says is to be *stored* is translated back.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::{
    CAP_CHOWN, CAP_FSETID, INVALID_ID, S_IALLUGO, S_IFDIR, S_IFLNK, S_IFMT, S_IRWXUGO, S_ISGID, S_ISUID,
    S_ISVTX, S_IXGRP, Timespec, UTIME_NOW, UTIME_OMIT, s_isdir, s_islnk, s_isreg,
};
use crate::cred::Cred;
use crate::cred::userns::{IdView, UserNamespace};
use crate::perm::acl::{Acl, UncheckedAcl};
use crate::perm::fact::Watch;
use crate::perm::{
    AclSource, IFLAG_APPEND, IFLAG_IMMUTABLE, InodeAttr, MAY_WRITE, capable_wrt_inode_uidgid,
    in_group_or_capable, owner_or_capable, watched,
};

fn is_immutable_or_append(attr: &InodeAttr) -> bool {
    attr.iflags & (IFLAG_IMMUTABLE | IFLAG_APPEND) != 0
}

/// chmod(2): the mode to store, type included, when `mode` is asked for.
///
/// The set-group-id bit is dropped silently unless the caller is in the inode's group (or has `CAP_FSETID`). If the
/// inode has an access ACL, [`Acl::chmod_masq`] makes it follow.
///
/// # Errors
///
/// In this order: `EPERM` (immutable or append-only), `EOPNOTSUPP` (symbolic link), `EOVERFLOW` (owner or group has no id
/// in the mount), `EPERM` (neither owner nor capable).
///
/// Kernel: `notify_change()`, `setattr_prepare()`.
pub(crate) fn chmod(attr: &InodeAttr, cred: &Cred, mode: u32) -> Result<u32> {
    if is_immutable_or_append(attr) {
        return Err(Errno::EPERM);
    }
    if s_islnk(attr.mode) {
        return Err(Errno::EOPNOTSUPP);
    }
    if attr.has_unmapped_id() {
        return Err(Errno::EOVERFLOW);
    }
    if !owner_or_capable(cred, attr) {
        return Err(Errno::EPERM);
    }
    Ok(keep_sgid_of_members(attr, cred, attr.mode & S_IFMT | mode & S_IALLUGO))
}

/// Drops the set-group-id bit from a mode that the inode is to get, unless the caller may set it.
fn keep_sgid_of_members(attr: &InodeAttr, cred: &Cred, mode: u32) -> u32 {
    if in_group_or_capable(cred, attr, attr.gid) { mode } else { mode & !S_ISGID }
}

/// What chown(2) changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Chown {
    /// User id to store, if it changes.
    pub uid: Option<u32>,
    /// Group id to store, if it changes.
    pub gid: Option<u32>,
    /// Mode to store.
    pub mode: u32,
    /// File capabilities are to be removed.
    pub kill_priv: bool,
}

/// chown(2): what to store when `uid` and `gid`, as the caller numbers them, are asked for; -1 keeps one.
///
/// Except on directories, set-user-id goes, and set-group-id as [`should_drop_sgid`] says, for every caller and even if no
/// id is given. That is a change of mode, which the caller must be allowed to make. Without one, `chown(-1, -1)` needs no
/// permission at all.
///
/// `view` is how ids look through the mount.
///
/// # Errors
///
/// In this order: `EINVAL` (an id has no mapping in the caller's namespace), `EPERM` (an id is given, and the inode is
/// immutable or append-only), `EOVERFLOW` (a given id cannot be stored; one that is not given has no id in the mount),
/// `EPERM` (the owner may be changed with `CAP_CHOWN` only, the group also by the owner, to a group that he is in),
/// `EPERM` (set-id bits must go, but the caller is neither owner nor has `CAP_FOWNER`).
///
/// Kernel: `chown_common()`, `notify_change()`, `setattr_prepare()`.
pub(crate) fn chown(attr: &InodeAttr, cred: &Cred, view: &IdView<'_>, uid: u32, gid: u32) -> Result<Chown> {
    let new_uid = given(uid, |uid| cred.user_ns().make_kuid(uid))?;
    let new_gid = given(gid, |gid| cred.user_ns().make_kgid(gid))?;
    if (new_uid.is_some() || new_gid.is_some()) && is_immutable_or_append(attr) {
        return Err(Errno::EPERM);
    }
    let stored_uid = storable(new_uid.map(|uid| view.from_vfsuid(uid)))?;
    let stored_gid = storable(new_gid.map(|gid| view.from_vfsgid(gid)))?;
    let after = InodeAttr { uid: new_uid.unwrap_or(attr.uid), gid: new_gid.unwrap_or(attr.gid), ..*attr };
    if after.has_unmapped_id() {
        return Err(Errno::EOVERFLOW);
    }
    if new_uid.is_some_and(|uid| !chown_ok(attr, cred, view, uid))
        || new_gid.is_some_and(|gid| !chgrp_ok(attr, cred, view, gid))
    {
        return Err(Errno::EPERM);
    }
    let chown = |mode| Chown { uid: stored_uid, gid: stored_gid, mode, kill_priv: !s_isdir(attr.mode) };
    let mode = without_set_id(attr, cred);
    if s_isdir(attr.mode) || mode == attr.mode {
        return Ok(chown(attr.mode));
    }
    if !owner_or_capable(cred, attr) {
        return Err(Errno::EPERM);
    }
    // A set-group-id bit that survived must also be the caller's to set for the group that the inode gets. The kernel asks for
    // the capabilities over the inode as it was, too: if they alone are missing, the bit is gone already.
    let keeps_sgid = in_group_or_capable(cred, &after, after.gid);
    Ok(chown(if keeps_sgid { mode } else { mode & !S_ISGID }))
}

/// An id argument in kernel terms, unless it is -1.
fn given(id: u32, make: impl Fn(u32) -> u32) -> Result<Option<u32>> {
    match id {
        INVALID_ID => Ok(None),
        id => match make(id) {
            INVALID_ID => Err(Errno::EINVAL),
            kernel_id => Ok(Some(kernel_id)),
        },
    }
}

fn storable(id: Option<u32>) -> Result<Option<u32>> {
    if id == Some(INVALID_ID) { Err(Errno::EOVERFLOW) } else { Ok(id) }
}

/// May the caller give the inode to this user? Kernel: `chown_ok()`.
fn chown_ok(attr: &InodeAttr, cred: &Cred, view: &IdView<'_>, uid: u32) -> bool {
    attr.uid == cred.fsuid() && uid == attr.uid
        || capable_wrt_inode_uidgid(cred, attr, CAP_CHOWN)
        || attr.uid == INVALID_ID && cred.ns_capable(view.sb_ns, CAP_CHOWN)
}

/// May the caller give the inode to this group? Kernel: `chgrp_ok()`.
fn chgrp_ok(attr: &InodeAttr, cred: &Cred, view: &IdView<'_>, gid: u32) -> bool {
    attr.uid == cred.fsuid() && (gid == attr.gid || cred.in_group(gid))
        || capable_wrt_inode_uidgid(cred, attr, CAP_CHOWN)
        || attr.gid == INVALID_ID && cred.ns_capable(view.sb_ns, CAP_CHOWN)
}

/// Must a write or a change of owner by `cred` take the set-group-id bit from the inode? On an executable of the group
/// it must; elsewhere (where the bit means something else) only if the caller could not set it himself.
///
/// Kernel: `setattr_should_drop_sgid()`.
pub(crate) fn should_drop_sgid(attr: &InodeAttr, cred: &Cred) -> bool {
    attr.mode & S_ISGID != 0 && (attr.mode & S_IXGRP != 0 || !in_group_or_capable(cred, attr, attr.gid))
}

/// The mode without set-user-id, and without set-group-id if that must go.
fn without_set_id(attr: &InodeAttr, cred: &Cred) -> u32 {
    let sgid = if should_drop_sgid(attr, cred) { S_ISGID } else { 0 };
    attr.mode & !(S_ISUID | sgid)
}

/// The mode to store when `cred` changes the contents of the inode: write of at least one byte, truncate, `O_TRUNC`,
/// fallocate. Set-id bits of regular files go, unless the caller has `CAP_FSETID` in the initial namespace. File
/// capabilities go in any case.
///
/// Kernel: `setattr_should_drop_suidgid()` in `file_remove_privs()`.
pub(crate) fn mode_after_write(attr: &InodeAttr, cred: &Cred) -> u32 {
    if !s_isreg(attr.mode) || cred.capable(CAP_FSETID) {
        return attr.mode;
    }
    without_set_id(attr, cred)
}

/// What utimensat(2) does to one of the two times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SetTime {
    /// Leaves it.
    Omit,
    /// Sets it to the current time.
    Now,
    /// Sets it to this time.
    To(Timespec),
}

impl SetTime {
    fn parse(time: Timespec) -> Result<SetTime> {
        match time.nsec {
            UTIME_NOW => Ok(SetTime::Now),
            UTIME_OMIT => Ok(SetTime::Omit),
            0..=999_999_999 => Ok(SetTime::To(time)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The time to store.
    pub(crate) fn apply(self, old: Timespec, now: Timespec) -> Timespec {
        match self {
            SetTime::Omit => old,
            SetTime::Now => now,
            SetTime::To(time) => time,
        }
    }
}

/// The times argument of utimensat(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Utimes {
    /// Access time.
    pub atime: SetTime,
    /// Modification time.
    pub mtime: SetTime,
}

impl Utimes {
    /// Does this argument ask for nothing at all? Then the call succeeds before it looks at any other argument.
    pub(crate) fn is_noop(times: Option<[Timespec; 2]>) -> bool {
        times.is_some_and(|times| times.iter().all(|time| time.nsec == UTIME_OMIT))
    }

    /// Reads the argument; `None` (a null pointer) means now for both. To be done after the path was walked.
    ///
    /// # Errors
    ///
    /// `EINVAL`: nanoseconds out of range.
    ///
    /// Kernel: `vfs_utimes()`.
    pub(crate) fn parse(times: Option<[Timespec; 2]>) -> Result<Utimes> {
        match times {
            None => Ok(Utimes { atime: SetTime::Now, mtime: SetTime::Now }),
            Some([atime, mtime]) => {
                Ok(Utimes { atime: SetTime::parse(atime)?, mtime: SetTime::parse(mtime)? })
            }
        }
    }

    /// Are both times set to now? Every user that may write to the file may do that.
    pub(crate) fn is_touch(&self) -> bool {
        self.atime == SetTime::Now && self.mtime == SetTime::Now
    }

    /// May `cred` set these times? `w` listens to the question for permission.
    ///
    /// # Errors
    ///
    /// Both now: `EPERM` (immutable), and unless owner or capable those of [`inode_permission`](crate::perm::inode_permission) for writing. Otherwise:
    /// `EPERM` (immutable or append-only). Then `EOVERFLOW` (owner or group has no id in the mount), and, unless both
    /// now, `EPERM` (neither owner nor capable).
    ///
    /// Kernel: `may_setattr()`, `notify_change()`, `setattr_prepare()`.
    pub(crate) fn may_set(
        &self,
        sb_rdonly: bool,
        attr: &InodeAttr,
        acl: &impl AclSource,
        cred: &Cred,
        w: &mut impl Watch,
    ) -> Result<()> {
        let owner = owner_or_capable(cred, attr);
        if self.is_touch() {
            if attr.iflags & IFLAG_IMMUTABLE != 0 {
                return Err(Errno::EPERM);
            }
            if !owner {
                watched::inode_permission(sb_rdonly, attr, acl, cred, MAY_WRITE, w)?;
            }
        } else if is_immutable_or_append(attr) {
            return Err(Errno::EPERM);
        }
        if attr.has_unmapped_id() {
            return Err(Errno::EOVERFLOW);
        }
        if owner || self.is_touch() { Ok(()) } else { Err(Errno::EPERM) }
    }
}

/// The directory in which an object is created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewIn<'a> {
    /// The directory, as the mount shows it.
    pub dir: &'a InodeAttr,
    /// The directory's group as it is stored.
    pub dir_gid: u32,
    /// The directory's default ACL.
    pub default_acl: Option<&'a Acl>,
    /// How ids look through the mount.
    pub view: IdView<'a>,
}

/// The attributes that a new object starts with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NewAttr {
    /// Type and permission bits.
    pub mode: u32,
    /// User id to store.
    pub uid: u32,
    /// Group id to store.
    pub gid: u32,
    /// Access ACL to store.
    pub access_acl: Option<Acl>,
    /// The object gets the directory's default ACL as its own.
    pub inherits_default: bool,
}

/// The attributes of an object that `cred` creates with `mode`, type included, under `umask`.
///
/// In a set-group-id directory the group is the directory's, else the caller's. A directory in such a directory gets the bit too;
/// another object keeps it only where it does not make an executable of a group that the caller is not in. A default ACL
/// of the directory replaces the umask. Symbolic links have mode 0777, whatever the rest says.
///
/// That the ids can be stored is [`watched::may_create`]'s question.
///
/// Kernel: `vfs_prepare_mode()`, `inode_init_owner()`, `posix_acl_create()`.
pub(crate) fn new_attr(place: &NewIn<'_>, cred: &Cred, mode: u32, umask: u32) -> NewAttr {
    let from_setgid = place.dir.mode & S_ISGID != 0;
    let gid = if from_setgid { place.dir_gid } else { place.view.from_vfsgid(cred.fsgid()) };
    let uid = place.view.from_vfsuid(cred.fsuid());
    let mut new = NewAttr { mode, uid, gid, access_acl: None, inherits_default: false };
    match mode & S_IFMT {
        S_IFLNK => {
            new.mode = S_IFLNK | S_IRWXUGO;
            return new;
        }
        S_IFDIR => {
            new.mode = mode & (S_IFMT | S_IRWXUGO | S_ISVTX) | place.dir.mode & S_ISGID;
        }
        _ => {
            let foreign_executable = mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP
                && from_setgid
                && !in_group_or_capable(cred, place.dir, place.dir.gid);
            new.mode = mode & (S_IFMT | S_IALLUGO) & !if foreign_executable { S_ISGID } else { 0 };
        }
    }
    match place.default_acl {
        None => new.mode &= !(umask & S_IRWXUGO),
        Some(default) => {
            let mut access = default.clone();
            let (mode, extended) = access.create_masq(new.mode);
            new.mode = mode;
            new.access_acl = extended.then_some(access);
            new.inherits_default = s_isdir(mode);
        }
    }
    new
}

/// Which of its two ACLs a call changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AclType {
    /// `system.posix_acl_access`: decides about access to the object.
    Access,
    /// `system.posix_acl_default`: what objects created in the directory start with.
    Default,
}

/// What a change of an ACL stores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SetAcl {
    /// Mode to store.
    pub mode: u32,
    /// The ACL to store in place of the one of that type; `None` removes it.
    pub acl: Option<Acl>,
}

/// Sets (or, with `None`, removes) an ACL of an inode. Ids in `acl` are already those of the filesystem.
///
/// The answer is `None` for the removal of a default ACL from something that cannot have one: success without effect.
///
/// An access ACL changes the mode to the bits that it stands for, is not stored if it says no more than they do, and
/// drops set-group-id as chmod does, even when it is removed.
///
/// # Errors
///
/// In this order: `EPERM` (immutable, append-only, or owner or group has no id in the mount), `EOPNOTSUPP` (symbolic
/// link), `EACCES` (default ACL for something that is not a directory), `EPERM` (neither owner nor capable), `EINVAL`
/// (not a valid ACL, or ids that the filesystem's namespace `sb_ns` does not map).
///
/// Kernel: `vfs_set_acl()`, `set_posix_acl()`, `simple_set_acl()`.
pub(crate) fn set_acl(
    attr: &InodeAttr,
    cred: &Cred,
    sb_ns: &UserNamespace,
    ty: AclType,
    acl: Option<UncheckedAcl>,
) -> Result<Option<SetAcl>> {
    if is_immutable_or_append(attr) || attr.has_unmapped_id() {
        return Err(Errno::EPERM);
    }
    if s_islnk(attr.mode) {
        return Err(Errno::EOPNOTSUPP);
    }
    if ty == AclType::Default && !s_isdir(attr.mode) {
        return if acl.is_some() { Err(Errno::EACCES) } else { Ok(None) };
    }
    if !owner_or_capable(cred, attr) {
        return Err(Errno::EPERM);
    }
    let acl = acl.map(|acl| acl.validate(sb_ns)).transpose()?;
    if ty == AclType::Default {
        return Ok(Some(SetAcl { mode: attr.mode, acl }));
    }
    let (permissions, extended) = match &acl {
        Some(acl) => acl.equiv_mode(),
        None => (attr.mode & S_IRWXUGO, false),
    };
    let mode = keep_sgid_of_members(attr, cred, attr.mode & !S_IRWXUGO | permissions);
    Ok(Some(SetAcl { mode, acl: acl.filter(|_| extended) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::uapi::{CAP_FOWNER, CAP_MKNOD, S_IFCHR, S_IFIFO, S_IFREG};
    use crate::cred::CapSet;
    use crate::cred::userns::{IdExtent, IdMap, MountIdmap};
    use crate::perm::NoAcl;
    use crate::perm::acl::tests::{XorShift, random_acl};
    use crate::perm::acl::{ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER_OBJ, AclEntry};
    use crate::perm::fact::Unwatched;
    use std::sync::{Arc, LazyLock};

    const KEEP: u32 = u32::MAX;

    static INIT: LazyLock<Arc<UserNamespace>> = LazyLock::new(UserNamespace::init);

    fn plain_view() -> IdView<'static> {
        IdView { sb_ns: &INIT, idmap: None }
    }

    fn attr(mode: u32, uid: u32, gid: u32) -> InodeAttr {
        InodeAttr { mode, uid, gid, iflags: 0 }
    }

    fn reg(bits: u32, uid: u32, gid: u32) -> InodeAttr {
        attr(S_IFREG | bits, uid, gid)
    }

    fn flagged(bits: u32, iflags: u32) -> InodeAttr {
        InodeAttr { iflags, ..reg(bits, 0, 0) }
    }

    fn user() -> Cred {
        Cred::user(1000, 1000, &[])
    }

    fn with_caps(uid: u32, groups: &[u32], caps: &[u32]) -> Cred {
        let caps = CapSet::of(caps);
        Cred::user(uid, uid, groups).to_builder().permitted(caps).effective(caps).build().unwrap()
    }

    fn bits(mode: Result<u32>) -> Result<u32> {
        mode.map(|mode| mode & 0o7777)
    }

    fn chown_plain(attr: &InodeAttr, cred: &Cred, uid: u32, gid: u32) -> Result<Chown> {
        chown(attr, cred, &plain_view(), uid, gid)
    }

    /// s06 and w07.
    #[test]
    fn chmod_drops_sgid_of_strangers_silently() {
        let root = Cred::root();
        assert_eq!(bits(chmod(&reg(0o644, 1000, 5), &user(), 0o2644)), Ok(0o644));
        assert_eq!(bits(chmod(&reg(0o644, 1000, 1000), &user(), 0o2644)), Ok(0o2644));
        assert_eq!(bits(chmod(&reg(0o644, 1000, 5), &root, 0o2644)), Ok(0o2644));
        assert_eq!(bits(chmod(&reg(0o644, 1000, 5), &user(), 0o1644)), Ok(0o1644), "sticky stays");
        assert_eq!(chmod(&reg(0o666, 1001, 1000), &user(), 0o644), Err(Errno::EPERM));
        assert_eq!(chmod(&reg(0, 0, 0), &root, 0o177_777), Ok(S_IFREG | 0o7777));
        assert_eq!(chmod(&attr(S_IFDIR, 1000, 5), &user(), 0o2755), Ok(S_IFDIR | 0o755), "directories too");
        assert_eq!(bits(chmod(&reg(0, 0, 0), &with_caps(1000, &[], &[CAP_FOWNER]), 0o6755)), Ok(0o4755));
        assert_eq!(
            bits(chmod(&reg(0, 0, 0), &with_caps(1000, &[], &[CAP_FOWNER, CAP_FSETID]), 0o6755)),
            Ok(0o6755)
        );
    }

    #[test]
    fn chmod_errors_come_in_order() {
        let root = Cred::root();
        let mut link = InodeAttr { mode: S_IFLNK | 0o777, uid: INVALID_ID, gid: 0, iflags: IFLAG_APPEND };
        assert_eq!(chmod(&link, &root, 0), Err(Errno::EPERM));
        link.iflags = 0;
        assert_eq!(chmod(&link, &root, 0), Err(Errno::EOPNOTSUPP), "s09");
        link.mode = S_IFREG;
        assert_eq!(chmod(&link, &root, 0), Err(Errno::EOVERFLOW), "i05");
        assert_eq!(chmod(&flagged(0o644, IFLAG_IMMUTABLE), &root, 0), Err(Errno::EPERM), "q05");
        assert_eq!(chmod(&flagged(0o644, IFLAG_APPEND), &root, 0), Err(Errno::EPERM), "q06");
    }

    /// s04.
    #[test]
    fn chown_strips_set_id_even_for_root() {
        let root = Cred::root();
        let stripped =
            |attr: &InodeAttr, uid, gid| bits(chown_plain(attr, &root, uid, gid).map(|chown| chown.mode));
        assert_eq!(stripped(&reg(0o6755, 0, 0), 1, 1), Ok(0o755));
        assert_eq!(stripped(&reg(0o6755, 0, 0), KEEP, KEEP), Ok(0o755));
        assert_eq!(stripped(&reg(0o2644, 0, 0), 1, 1), Ok(0o2644), "not executable for the group");
        assert_eq!(stripped(&attr(S_IFDIR | 0o6755, 0, 0), 1, 1), Ok(0o6755));
        assert_eq!(stripped(&attr(S_IFLNK | 0o777, 0, 0), 1, 1), Ok(0o777));
        assert_eq!(stripped(&reg(0o4755, 0, 0), 0, KEEP), Ok(0o755), "the same owner");
        let to_one = chown_plain(&reg(0o755, 0, 0), &root, 1, KEEP).unwrap();
        assert_eq!(to_one, Chown { uid: Some(1), gid: None, mode: S_IFREG | 0o755, kill_priv: true });
        assert!(!chown_plain(&attr(S_IFDIR, 0, 0), &root, 1, 1).unwrap().kill_priv);
    }

    /// o33, q06 and y13.
    #[test]
    fn chown_of_nothing_needs_no_permission() {
        let nothing = |attr: &InodeAttr, cred: &Cred| {
            chown_plain(attr, cred, KEEP, KEEP).map(|chown| chown.mode & 0o7777)
        };
        assert_eq!(nothing(&reg(0o644, 0, 0), &user()), Ok(0o644));
        assert_eq!(nothing(&reg(0o4755, 0, 0), &user()), Err(Errno::EPERM), "a set-id bit would go");
        assert_eq!(nothing(&attr(S_IFDIR | 0o4755, 0, 0), &user()), Ok(0o4755));
        assert_eq!(nothing(&reg(0o4755, 1000, 0), &user()), Ok(0o755));
        assert_eq!(nothing(&flagged(0o644, IFLAG_IMMUTABLE), &user()), Ok(0o644));
        assert_eq!(nothing(&flagged(0o644, IFLAG_APPEND), &Cred::root()), Ok(0o644));
        let given = chown_plain(&flagged(0o644, IFLAG_APPEND), &Cred::root(), 0, KEEP);
        assert_eq!(given, Err(Errno::EPERM));
    }

    /// w07 and w19, and the rules for giving a file to another user.
    #[test]
    fn owners_give_groups_only_capabilities_give_files() {
        let owner = Cred::user(1000, 1000, &[50]);
        let own = reg(0o644, 1000, 60);
        let ask =
            |cred: &Cred, uid, gid| chown_plain(&own, cred, uid, gid).map(|chown| (chown.uid, chown.gid));
        assert_eq!(ask(&owner, 1000, KEEP), Ok((Some(1000), None)));
        assert_eq!(ask(&owner, 1001, KEEP), Err(Errno::EPERM));
        assert_eq!(ask(&owner, KEEP, 50), Ok((None, Some(50))), "member");
        assert_eq!(ask(&owner, KEEP, 1000), Ok((None, Some(1000))), "own group");
        assert_eq!(ask(&owner, KEEP, 60), Ok((None, Some(60))), "unchanged");
        assert_eq!(ask(&owner, KEEP, 61), Err(Errno::EPERM));
        assert_eq!(ask(&owner, 1000, 61), Err(Errno::EPERM));
        let stranger = Cred::user(1001, 60, &[]);
        assert_eq!(ask(&stranger, KEEP, 60), Err(Errno::EPERM), "not the owner");
        assert_eq!(ask(&with_caps(5, &[], &[CAP_CHOWN]), 7, 8), Ok((Some(7), Some(8))));
        assert_eq!(ask(&with_caps(5, &[], &[CAP_FOWNER]), 7, 8), Err(Errno::EPERM));
        assert_eq!(ask(&Cred::root(), KEEP - 1, KEEP), Ok((Some(4_294_967_294), None)));
    }

    #[test]
    fn sgid_that_survives_chown_must_suit_the_new_group() {
        // Set-user-id goes, so the mode changes, and with it set-group-id is checked again, for the new group.
        let chowner = with_caps(1000, &[50], &[CAP_CHOWN]);
        let file = reg(0o6644, 1000, 50);
        let mode = |uid, gid| bits(chown_plain(&file, &chowner, uid, gid).map(|chown| chown.mode));
        assert_eq!(mode(KEEP, KEEP), Ok(0o2644));
        assert_eq!(mode(KEEP, 1000), Ok(0o2644));
        assert_eq!(mode(KEEP, 61), Ok(0o644));
        let only_sgid = reg(0o2644, 1000, 50);
        let chown = chown_plain(&only_sgid, &chowner, KEEP, 61).unwrap();
        assert_eq!(chown.mode & 0o7777, 0o2644, "no change of mode, no check");
    }

    /// i05, i06 and u02.
    #[test]
    fn chown_through_namespaces_and_mounts() {
        let map = || IdMap::new(&[IdExtent { first: 0, lower: 10_000, count: 2000 }]).unwrap();
        let idmap = MountIdmap { uid_map: map(), gid_map: map() };
        let view = IdView { sb_ns: &INIT, idmap: Some(&idmap) };
        let root = Cred::root();
        let unmapped = reg(0o644, INVALID_ID, INVALID_ID);
        assert_eq!(chown(&unmapped, &root, &view, KEEP, KEEP), Err(Errno::EOVERFLOW));
        assert_eq!(chown(&unmapped, &root, &view, 10_001, KEEP), Err(Errno::EOVERFLOW));
        let repaired = chown(&unmapped, &root, &view, 10_001, 10_001).unwrap();
        assert_eq!((repaired.uid, repaired.gid), (Some(1), Some(1)));
        assert_eq!(chown(&unmapped, &user(), &view, 10_001, 10_001), Err(Errno::EPERM));
        assert_eq!(chown(&reg(0o644, 10_000, 10_000), &root, &view, 5, KEEP), Err(Errno::EOVERFLOW), "i06");
        let inside = root.unshare_user(false).unwrap();
        let mapped = [IdExtent { first: 0, lower: 0, count: 1001 }];
        inside.user_ns().set_uid_map(&mapped).unwrap();
        inside.user_ns().set_gid_map(&mapped).unwrap();
        assert!(chown_plain(&reg(0o644, 0, 0), &inside, 1000, 1000).is_ok());
        assert_eq!(chown_plain(&reg(0o644, 0, 0), &inside, 2000, KEEP), Err(Errno::EINVAL));
        assert_eq!(
            chown_plain(&reg(0o644, 2000, 0), &inside, 0, KEEP),
            Err(Errno::EPERM),
            "useless capabilities"
        );
        let immutable = flagged(0o644, IFLAG_IMMUTABLE);
        assert_eq!(chown_plain(&immutable, &inside, 2000, KEEP), Err(Errno::EINVAL), "before the flags");
    }

    /// s01, s02, s03 and y18.
    #[test]
    fn writing_strips_set_id() {
        let after = |attr: &InodeAttr, cred: &Cred| mode_after_write(attr, cred) & 0o7777;
        assert_eq!(after(&reg(0o6775, 0, 5), &Cred::root()), 0o6775);
        assert_eq!(after(&reg(0o6775, 0, 5), &user()), 0o775);
        assert_eq!(after(&reg(0o2666, 0, 1000), &user()), 0o2666, "own group, not executable");
        assert_eq!(after(&reg(0o2666, 0, 0), &user()), 0o666);
        assert_eq!(after(&reg(0o4666, 1000, 0), &user()), 0o666, "the owner too");
        assert_eq!(after(&reg(0o6777, 1000, 1000), &user()), 0o777);
        assert_eq!(after(&attr(S_IFIFO | 0o6777, 0, 0), &user()), 0o6777, "regular files only");
        let inside = Cred::root().unshare_user(false).unwrap();
        inside.user_ns().set_uid_map(&[IdExtent { first: 0, lower: 0, count: 10 }]).unwrap();
        inside.user_ns().set_gid_map(&[IdExtent { first: 0, lower: 0, count: 10 }]).unwrap();
        assert_eq!(after(&reg(0o4755, 0, 0), &inside), 0o755, "CAP_FSETID of the initial namespace");
        assert_eq!(bits(chmod(&reg(0o644, 0, 5), &inside, 0o2644)), Ok(0o2644), "here its own will do");
    }

    /// n24, q05 and q06.
    #[test]
    fn times_may_be_touched_by_writers_and_set_by_owners() {
        let (now, omit, bad) =
            (Timespec::new(0, UTIME_NOW), Timespec::new(7, UTIME_OMIT), Timespec::new(0, 1_000_000_000));
        let fixed = Timespec::new(5, 999_999_999);
        let ask = |attr: &InodeAttr, cred: &Cred, times| {
            Utimes::parse(times).and_then(|utimes| utimes.may_set(false, attr, &NoAcl, cred, &mut Unwatched))
        };
        let writable = reg(0o666, 0, 0);
        assert!(Utimes::is_noop(Some([omit, omit])));
        assert!(!Utimes::is_noop(Some([omit, now])) && !Utimes::is_noop(None));
        assert_eq!(ask(&writable, &user(), Some([bad, omit])), Err(Errno::EINVAL));
        assert_eq!(ask(&writable, &user(), Some([omit, bad])), Err(Errno::EINVAL));
        assert_eq!(ask(&writable, &user(), None), Ok(()));
        assert_eq!(ask(&writable, &user(), Some([fixed, fixed])), Err(Errno::EPERM));
        assert_eq!(ask(&writable, &user(), Some([now, now])), Ok(()));
        assert_eq!(ask(&writable, &user(), Some([now, omit])), Err(Errno::EPERM));
        assert_eq!(ask(&reg(0o644, 0, 0), &user(), None), Err(Errno::EACCES));
        assert_eq!(ask(&reg(0o444, 1000, 0), &user(), Some([fixed, now])), Ok(()));
        assert_eq!(ask(&reg(0, 0, 0), &with_caps(1000, &[], &[CAP_FOWNER]), Some([fixed, now])), Ok(()));
        let root = Cred::root();
        for (flag, touched) in [(IFLAG_IMMUTABLE, Err(Errno::EPERM)), (IFLAG_APPEND, Ok(()))] {
            assert_eq!(ask(&flagged(0o644, flag), &root, None), touched);
            assert_eq!(ask(&flagged(0o644, flag), &root, Some([fixed, fixed])), Err(Errno::EPERM));
            assert_eq!(ask(&flagged(0o644, flag), &root, Some([now, omit])), Err(Errno::EPERM));
        }
        let unmapped = reg(0o666, INVALID_ID, INVALID_ID);
        assert_eq!(ask(&unmapped, &root, None), Err(Errno::EACCES), "i05");
        assert_eq!(ask(&unmapped, &root, Some([fixed, fixed])), Err(Errno::EOVERFLOW));
        assert_eq!(
            ask(&reg(0o666, 1000, INVALID_ID), &user(), None),
            Err(Errno::EOVERFLOW),
            "owner, unmapped group"
        );
        let old = Timespec::new(1, 1);
        let applied =
            [omit, now, fixed].map(|time| SetTime::parse(time).unwrap().apply(old, Timespec::new(2, 2)));
        assert_eq!(applied, [old, Timespec::new(2, 2), fixed]);
    }

    fn new_in(dir: &InodeAttr, default_acl: Option<&Acl>, cred: &Cred, mode: u32, umask: u32) -> NewAttr {
        new_attr(&NewIn { dir, dir_gid: dir.gid, default_acl, view: plain_view() }, cred, mode, umask)
    }

    /// s07, s08, w02 and w22.
    #[test]
    fn objects_in_setgid_directories() {
        let shared = attr(S_IFDIR | 0o2777, 0, 555);
        let plain = attr(S_IFDIR | 0o777, 0, 555);
        let new = |dir: &InodeAttr, cred: &Cred, mode| {
            let new = new_in(dir, None, cred, mode, 0);
            assert_eq!((new.mode & S_IFMT, new.uid), (mode & S_IFMT, cred.fsuid()));
            (new.mode & 0o7777, new.gid)
        };
        assert_eq!(new(&shared, &user(), S_IFREG | 0o2775), (0o775, 555));
        assert_eq!(new(&shared, &user(), S_IFREG | 0o2664), (0o2664, 555), "no group-x");
        assert_eq!(new(&shared, &user(), S_IFDIR | 0o755), (0o2755, 555));
        assert_eq!(new(&plain, &user(), S_IFDIR | 0o2700), (0o700, 1000));
        assert_eq!(new(&plain, &user(), S_IFREG | 0o2775), (0o2775, 1000), "not a shared directory");
        assert_eq!(new(&shared, &user(), S_IFCHR | 0o2775), (0o775, 555));
        assert_eq!(new(&shared, &user(), S_IFLNK | 0o777), (0o777, 555));
        assert_eq!(new(&shared, &user(), S_IFREG | 0o4755), (0o4755, 555));
        assert_eq!(new(&shared, &Cred::root(), S_IFREG | 0o2775), (0o2775, 555));
        assert_eq!(new(&shared, &Cred::user(1000, 1000, &[555]), S_IFREG | 0o2775), (0o2775, 555), "member");
        assert_eq!(new(&plain, &user(), S_IFDIR | 0o7777), (0o1777, 1000), "w02");
        assert_eq!(new(&shared, &with_caps(1000, &[], &[CAP_MKNOD]), S_IFCHR | 0o2010), (0o010, 555));
    }

    #[test]
    fn umask_takes_permission_bits_only() {
        let dir = attr(S_IFDIR | 0o777, 0, 0);
        assert_eq!(new_in(&dir, None, &user(), S_IFREG | 0o7777, 0o7777).mode, S_IFREG | 0o7000);
        assert_eq!(new_in(&dir, None, &user(), S_IFREG | 0o666, 0o027).mode, S_IFREG | 0o640, "n05");
        assert_eq!(new_in(&dir, None, &user(), S_IFLNK, 0o777).mode, S_IFLNK | 0o777, "y17: never for links");
        // Set-group-id is dropped by the x bit that was asked for, not by what the umask leaves of it.
        let shared = attr(S_IFDIR | 0o2777, 0, 555);
        assert_eq!(new_in(&shared, None, &user(), S_IFREG | 0o2775, 0o077).mode, S_IFREG | 0o700);
    }

    /// a09 and a10.
    #[test]
    fn default_acls_replace_the_umask() {
        let mut rng = XorShift(11);
        let dir = attr(S_IFDIR | 0o777, 0, 0);
        for _ in 0..20_000 {
            let default = random_acl(&mut rng, &[1, 2, 3]);
            let kind = rng.pick(&[S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO]);
            let requested = rng.below(0o1000);
            let new = new_in(&dir, Some(&default), &user(), kind | requested, 0o777);
            if kind == S_IFLNK {
                assert_eq!((new.mode, new.access_acl, new.inherits_default), (S_IFLNK | 0o777, None, false));
                continue;
            }
            let mut copy = default.clone();
            let (mode, extended) = copy.create_masq(kind | requested);
            assert_eq!(new.mode, mode);
            assert_eq!(new.access_acl, extended.then_some(copy));
            assert_eq!(new.inherits_default, kind == S_IFDIR);
        }
    }

    #[test]
    fn new_ids_are_translated_back() {
        let map = || IdMap::new(&[IdExtent { first: 0, lower: 10_000, count: 2000 }]).unwrap();
        let idmap = MountIdmap { uid_map: map(), gid_map: map() };
        let view = IdView { sb_ns: &INIT, idmap: Some(&idmap) };
        let cred = Cred::user(10_005, 10_006, &[]);
        let dir = attr(S_IFDIR | 0o777, 10_000, 10_000);
        let shared = attr(S_IFDIR | 0o2777, 10_000, 10_000);
        let place = |dir| NewIn { dir, dir_gid: 0, default_acl: None, view };
        let new = new_attr(&place(&dir), &cred, S_IFREG | 0o644, 0);
        assert_eq!((new.uid, new.gid), (5, 6));
        assert_eq!(new_attr(&place(&shared), &cred, S_IFREG | 0o644, 0).gid, 0, "as stored in the parent");
    }

    fn unchecked(entries: &[AclEntry]) -> Option<UncheckedAcl> {
        Some(UncheckedAcl::new(entries.iter().copied()))
    }

    fn minimal(user: u16, group: u16, other: u16) -> Option<UncheckedAcl> {
        unchecked(&[
            AclEntry::new(ACL_USER_OBJ, user),
            AclEntry::new(ACL_GROUP_OBJ, group),
            AclEntry::new(ACL_OTHER, other),
        ])
    }

    fn extended() -> Option<UncheckedAcl> {
        unchecked(&[
            AclEntry::new(ACL_USER_OBJ, 6),
            AclEntry::user(1000, 7),
            AclEntry::new(ACL_GROUP_OBJ, 4),
            AclEntry::new(ACL_MASK, 4),
            AclEntry::new(ACL_OTHER, 4),
        ])
    }

    fn set(attr: &InodeAttr, cred: &Cred, ty: AclType, acl: Option<UncheckedAcl>) -> Result<Option<SetAcl>> {
        set_acl(attr, cred, &INIT, ty, acl)
    }

    /// a06 and a11.
    #[test]
    fn access_acls_set_the_mode() {
        let root = Cred::root();
        let stored = set(&reg(0o777, 0, 0), &root, AclType::Access, minimal(6, 5, 1)).unwrap().unwrap();
        assert_eq!(stored, SetAcl { mode: S_IFREG | 0o651, acl: None }, "says no more than the mode");
        let stored = set(&reg(0o2644, 1000, 5), &user(), AclType::Access, extended()).unwrap().unwrap();
        assert_eq!(stored.mode & 0o7777, 0o644, "set-group-id dropped for a stranger");
        assert_eq!(stored.acl.unwrap().entries().len(), 5);
        let stored = set(&reg(0o2644, 1000, 5), &root, AclType::Access, extended()).unwrap().unwrap();
        assert_eq!(stored.mode & 0o7777, 0o2644);
        let stored = set(&reg(0o4644, 1000, 5), &user(), AclType::Access, extended()).unwrap().unwrap();
        assert_eq!(stored.mode & 0o7777, 0o4644, "set-user-id stays");
        let removed = set(&reg(0o2664, 1000, 5), &user(), AclType::Access, None).unwrap().unwrap();
        assert_eq!(
            removed,
            SetAcl { mode: S_IFREG | 0o664, acl: None },
            "the former mask stays as group bits"
        );
    }

    /// a08.
    #[test]
    fn acl_errors_come_in_order() {
        let file = reg(0o644, 0, 0);
        let dir = attr(S_IFDIR | 0o755, 0, 0);
        let root = Cred::root();
        assert_eq!(set(&file, &root, AclType::Default, minimal(7, 7, 7)), Err(Errno::EACCES));
        assert_eq!(set(&file, &user(), AclType::Default, None), Ok(None));
        assert_eq!(set(&dir, &user(), AclType::Default, minimal(7, 7, 7)), Err(Errno::EPERM));
        assert_eq!(set(&file, &user(), AclType::Access, minimal(7, 7, 7)), Err(Errno::EPERM));
        assert_eq!(set(&attr(S_IFLNK, 0, 0), &user(), AclType::Access, None), Err(Errno::EOPNOTSUPP));
        assert_eq!(
            set(&file, &user(), AclType::Access, unchecked(&[])),
            Err(Errno::EPERM),
            "before validity"
        );
        assert_eq!(set(&file, &root, AclType::Access, unchecked(&[])), Err(Errno::EINVAL));
        assert_eq!(set(&flagged(0o644, IFLAG_APPEND), &root, AclType::Access, None), Err(Errno::EPERM));
        let link = InodeAttr { iflags: IFLAG_IMMUTABLE, ..attr(S_IFLNK, 0, 0) };
        assert_eq!(set(&link, &root, AclType::Access, None), Err(Errno::EPERM));
        assert_eq!(set(&reg(0, INVALID_ID, 0), &root, AclType::Access, None), Err(Errno::EPERM), "i05");
        let default = set(&dir, &root, AclType::Default, minimal(7, 0, 0)).unwrap().unwrap();
        assert_eq!((default.mode, default.acl.unwrap().entries().len()), (dir.mode, 3), "stored as it is");
    }
}
