//! Changes of attributes: who may make them, and what they turn into.
//!
//! As in [`crate::perm`], everything is a function of values: a call looks at the attributes that the inode has and
//! answers with the ones to store, or with the error. Storing them, together with the new change time and under the
//! inode's lock, is the engine's part, and so is the check that the mount may be written to, which comes first in every
//! call here.
//!
//! In an [`InodeAttr`] ids are those that the mount shows; what a call says is to be *stored* is translated back.

use crate::acl::{Acl, UncheckedAcl};
use crate::cred::Cred;
use crate::errno::{Errno, Result};
use crate::perm::{
    AclSource, IFLAG_APPEND, IFLAG_IMMUTABLE, InodeAttr, MAY_WRITE, capable_wrt_inode_uidgid,
    in_group_or_capable, inode_permission, owner_or_capable,
};
use crate::uapi::{
    CAP_CHOWN, CAP_FSETID, INVALID_ID, S_IALLUGO, S_IFDIR, S_IFLNK, S_IFMT, S_IRWXUGO, S_ISGID, S_ISUID,
    S_ISVTX, S_IXGRP, Timespec, UTIME_NOW, UTIME_OMIT, s_isdir, s_islnk, s_isreg,
};
use crate::userns::{IdView, UserNamespace};

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
///
/// ```
/// use rcuwalk::{cred::Cred, perm::InodeAttr, setattr::chmod, uapi::S_IFREG};
///
/// let file = InodeAttr { mode: S_IFREG | 0o644, uid: 1000, gid: 5, iflags: 0 };
/// let owner = Cred::user(1000, 1000, &[]);
/// assert_eq!(chmod(&file, &owner, 0o2755), Ok(S_IFREG | 0o755), "not a member of group 5");
/// ```
pub fn chmod(attr: &InodeAttr, cred: &Cred, mode: u32) -> Result<u32> {
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
pub struct Chown {
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
/// Except on directories, set-user-id goes, and set-group-id as [`should_drop_sgid`] says, whoever asks and even if no
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
pub fn chown(attr: &InodeAttr, cred: &Cred, view: &IdView<'_>, uid: u32, gid: u32) -> Result<Chown> {
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
    // A set-group-id bit that survived must also be the caller's to set for the group that the inode gets, with the
    // capabilities that he has over it before and after.
    let keeps_sgid =
        in_group_or_capable(cred, attr, after.gid) && in_group_or_capable(cred, &after, after.gid);
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
pub fn should_drop_sgid(attr: &InodeAttr, cred: &Cred) -> bool {
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
pub fn mode_after_write(attr: &InodeAttr, cred: &Cred) -> u32 {
    if attr.mode & (S_ISUID | S_ISGID) == 0 || !s_isreg(attr.mode) || cred.capable(CAP_FSETID) {
        return attr.mode;
    }
    without_set_id(attr, cred)
}

/// What utimensat(2) does to one of the two times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
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
    pub fn apply(self, old: Timespec, now: Timespec) -> Timespec {
        match self {
            SetTime::Omit => old,
            SetTime::Now => now,
            SetTime::To(time) => time,
        }
    }
}

/// The times argument of utimensat(2).
///
/// ```
/// use rcuwalk::setattr::{SetTime, Utimes};
/// use rcuwalk::uapi::{Timespec, UTIME_NOW, UTIME_OMIT};
///
/// let times = [Timespec::new(0, UTIME_NOW), Timespec::new(0, UTIME_OMIT)];
/// let utimes = Utimes::parse(Some(times))?;
/// assert_eq!((utimes.atime, utimes.mtime), (SetTime::Now, SetTime::Omit));
/// assert!(!utimes.is_touch(), "only the owner may");
/// # Ok::<(), rcuwalk::errno::Errno>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Utimes {
    /// Access time.
    pub atime: SetTime,
    /// Modification time.
    pub mtime: SetTime,
}

impl Utimes {
    /// Does this argument ask for nothing at all? Then the call succeeds before it looks at any other argument.
    pub fn is_noop(times: Option<[Timespec; 2]>) -> bool {
        times.is_some_and(|times| times.iter().all(|time| time.nsec == UTIME_OMIT))
    }

    /// Reads the argument; `None` (a null pointer) means now for both. To be done after the path was walked.
    ///
    /// # Errors
    ///
    /// `EINVAL`: nanoseconds out of range.
    ///
    /// Kernel: `vfs_utimes()`.
    pub fn parse(times: Option<[Timespec; 2]>) -> Result<Utimes> {
        match times {
            None => Ok(Utimes { atime: SetTime::Now, mtime: SetTime::Now }),
            Some([atime, mtime]) => {
                Ok(Utimes { atime: SetTime::parse(atime)?, mtime: SetTime::parse(mtime)? })
            }
        }
    }

    /// Are both times set to now? Whoever may write to the file may do that.
    pub fn is_touch(&self) -> bool {
        self.atime == SetTime::Now && self.mtime == SetTime::Now
    }

    /// May `cred` set these times?
    ///
    /// # Errors
    ///
    /// Both now: `EPERM` (immutable), and unless owner or capable those of [`inode_permission`] for writing. Otherwise:
    /// `EPERM` (immutable or append-only). Then `EOVERFLOW` (owner or group has no id in the mount), and, unless both
    /// now, `EPERM` (neither owner nor capable).
    ///
    /// Kernel: `may_setattr()`, `notify_change()`, `setattr_prepare()`.
    pub fn may_set(
        &self,
        sb_rdonly: bool,
        attr: &InodeAttr,
        acl: &impl AclSource,
        cred: &Cred,
    ) -> Result<()> {
        let owner = owner_or_capable(cred, attr);
        if self.is_touch() {
            if attr.iflags & IFLAG_IMMUTABLE != 0 {
                return Err(Errno::EPERM);
            }
            if !owner {
                inode_permission(sb_rdonly, attr, acl, cred, MAY_WRITE)?;
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
pub struct NewIn<'a> {
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
pub struct NewAttr {
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
/// The group is that of a set-group-id directory, else the caller's. A directory in such a directory gets the bit too;
/// another object keeps it only where it does not make an executable of a group that the caller is not in. A default ACL
/// of the directory replaces the umask. Symbolic links have mode 0777, whatever the rest says.
///
/// That the ids can be stored is [`crate::perm::may_create`]'s question.
///
/// Kernel: `vfs_prepare_mode()`, `inode_init_owner()`, `posix_acl_create()`.
///
/// ```
/// use rcuwalk::{cred::Cred, perm::InodeAttr, setattr::{NewIn, new_attr}, userns::{IdView, UserNamespace}};
/// use rcuwalk::uapi::{S_IFDIR, S_IFREG};
///
/// let init = UserNamespace::init();
/// let dir = InodeAttr { mode: S_IFDIR | 0o2777, uid: 0, gid: 555, iflags: 0 };
/// let place =
///     NewIn { dir: &dir, dir_gid: 555, default_acl: None, view: IdView { sb_ns: &init, idmap: None } };
/// let new = new_attr(&place, &Cred::user(1000, 1000, &[]), S_IFREG | 0o2775, 0o022);
/// assert_eq!((new.mode, new.uid, new.gid), (S_IFREG | 0o755, 1000, 555));
/// ```
pub fn new_attr(place: &NewIn<'_>, cred: &Cred, mode: u32, umask: u32) -> NewAttr {
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
pub enum AclType {
    /// `system.posix_acl_access`: decides about access to the object.
    Access,
    /// `system.posix_acl_default`: what objects created in the directory start with.
    Default,
}

/// What a change of an ACL stores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAcl {
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
pub fn set_acl(
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
