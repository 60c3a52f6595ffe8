//! Credentials: who a task is.
//!
//! A [`Cred`] is immutable. Every change builds a new one, so it can be shared between threads and a permission check
//! reads it without synchronisation. All ids in it are kernel ids ([`crate::userns`]) and valid, so that comparing one
//! with an inode's owner needs no test for "no such owner".
//!
//! Each credential carries what the pathname hot path asks again and again: its user namespace, held directly (the
//! owner test and every capability test need it), its group list sorted, and whether access(2) may use it as it is
//! ([`Cred::override_is_self`]).
//!
//! The transitions (`setuid` and so on) take the ids that a task of this credential would pass, in its own namespace.
//! They return the credential to commit; `None` says that the call succeeded without committing one, which shows in the
//! identity of the object (linkat with `AT_EMPTY_PATH`) and nowhere else.

use std::ops::{BitAnd, BitOr, Sub};
use std::sync::Arc;

use crate::errno::{Errno, Result};
use crate::uapi::{
    CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID, CAP_LAST_CAP,
    CAP_LINUX_IMMUTABLE, CAP_MAC_OVERRIDE, CAP_MKNOD, CAP_SETFCAP, CAP_SETGID, CAP_SETPCAP, CAP_SETUID,
    CAP_SYS_ADMIN, INVALID_ID, NGROUPS_MAX, SECBIT_EXEC_DENY_INTERACTIVE, SECBIT_EXEC_RESTRICT_FILE,
    SECBIT_KEEP_CAPS, SECBIT_KEEP_CAPS_LOCKED, SECBIT_NO_CAP_AMBIENT_RAISE, SECBIT_NO_SETUID_FIXUP,
    SECBIT_NOROOT,
};
use crate::userns::UserNamespace;

/// In place of an id: leave it as it is (`(uid_t)-1`).
const KEEP: u32 = u32::MAX;

/// The securebits that have a lock bit above them.
const SECURE_ALL_BITS: u32 = SECBIT_NOROOT
    | SECBIT_NO_SETUID_FIXUP
    | SECBIT_KEEP_CAPS
    | SECBIT_NO_CAP_AMBIENT_RAISE
    | SECBIT_EXEC_RESTRICT_FILE
    | SECBIT_EXEC_DENY_INTERACTIVE;
const SECURE_ALL_LOCKS: u32 = SECURE_ALL_BITS << 1;
/// The bits that restrict user space only, with their locks: changing them needs no capability.
const SECURE_ALL_UNPRIVILEGED: u32 = (SECBIT_EXEC_RESTRICT_FILE | SECBIT_EXEC_DENY_INTERACTIVE) * 3;

/// A set of capabilities; bit `n` is capability number `n`.
///
/// ```
/// use rcuwalk::cred::CapSet;
/// use rcuwalk::uapi::{CAP_CHOWN, CAP_FOWNER};
///
/// let set = CapSet::of(&[CAP_CHOWN, CAP_FOWNER]);
/// assert!(set.contains(CAP_FOWNER) && set.is_subset(CapSet::FULL));
/// assert_eq!(set - CapSet::of(&[CAP_CHOWN]), CapSet::of(&[CAP_FOWNER]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CapSet(pub u64);

impl CapSet {
    /// No capability.
    pub const EMPTY: CapSet = CapSet(0);
    /// Every capability that exists.
    pub const FULL: CapSet = CapSet((1 << (CAP_LAST_CAP + 1)) - 1);
    /// The capabilities that follow the filesystem user id (the kernel's `CAP_FS_SET`).
    pub const FS: CapSet = CapSet::of(&[
        CAP_CHOWN,
        CAP_DAC_OVERRIDE,
        CAP_DAC_READ_SEARCH,
        CAP_FOWNER,
        CAP_FSETID,
        CAP_LINUX_IMMUTABLE,
        CAP_MKNOD,
        CAP_MAC_OVERRIDE,
    ]);

    /// The set of these capabilities (`CAP_*`).
    ///
    /// # Panics
    ///
    /// When a number is above `CAP_LAST_CAP`.
    pub const fn of(caps: &[u32]) -> CapSet {
        let (mut bits, mut i) = (0, 0);
        while i < caps.len() {
            assert!(caps[i] <= CAP_LAST_CAP, "no such capability");
            bits |= 1 << caps[i];
            i += 1;
        }
        CapSet(bits)
    }

    /// Is this capability (`CAP_*`) in the set?
    #[inline]
    pub const fn contains(self, cap: u32) -> bool {
        cap <= CAP_LAST_CAP && self.0 >> cap & 1 != 0
    }

    /// Is the set empty?
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Is each member of this set in `other`?
    #[inline]
    pub const fn is_subset(self, other: CapSet) -> bool {
        self.0 & !other.0 == 0
    }
}

impl BitAnd for CapSet {
    type Output = CapSet;
    fn bitand(self, other: CapSet) -> CapSet {
        CapSet(self.0 & other.0)
    }
}

impl BitOr for CapSet {
    type Output = CapSet;
    fn bitor(self, other: CapSet) -> CapSet {
        CapSet(self.0 | other.0)
    }
}

impl Sub for CapSet {
    type Output = CapSet;
    fn sub(self, other: CapSet) -> CapSet {
        CapSet(self.0 & !other.0)
    }
}

/// The fields of a credential. Only [`CredBuilder::build`] and the transitions turn them into a [`Cred`].
#[derive(Clone, Debug)]
struct Fields {
    uid: u32,
    euid: u32,
    suid: u32,
    fsuid: u32,
    gid: u32,
    egid: u32,
    sgid: u32,
    fsgid: u32,
    securebits: u32,
    inheritable: CapSet,
    permitted: CapSet,
    effective: CapSet,
    bounding: CapSet,
    ambient: CapSet,
    /// Sorted; may hold a group twice, as the kernel's does.
    groups: Arc<[u32]>,
    user_ns: Arc<UserNamespace>,
}

/// An immutable credential: user ids, group ids, capabilities, securebits and user namespace.
///
/// ```
/// use rcuwalk::cred::{CapSet, Cred};
/// use rcuwalk::uapi::CAP_DAC_OVERRIDE;
///
/// let user = Cred::user(1000, 1000, &[27, 4]);
/// assert!(user.in_group(27) && !user.capable(CAP_DAC_OVERRIDE));
/// assert!(user.override_is_self());
///
/// // root that temporarily acts as user 1000: access(2) asks with the real id
/// let switched = Cred::root().setresuid(u32::MAX, 1000, u32::MAX)?.expect("changed");
/// assert_eq!((switched.uid(), switched.fsuid()), (0, 1000));
/// assert!(!switched.override_is_self());
/// assert_eq!(switched.access_override().fsuid(), 0);
/// # Ok::<(), rcuwalk::errno::Errno>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cred {
    fields: Fields,
    override_is_self: bool,
}

/// Declares getters of [`Cred`].
macro_rules! getters {
    ($($name:ident: $ty:ty, $doc:literal;)*) => {
        $(#[doc = $doc]
        #[inline]
        pub fn $name(&self) -> $ty {
            self.fields.$name
        })*
    };
}

impl Cred {
    getters! {
        uid: u32, "Real user id.";
        euid: u32, "Effective user id.";
        suid: u32, "Saved user id.";
        fsuid: u32, "User id for filesystem access; the one compared with owners.";
        gid: u32, "Real group id.";
        egid: u32, "Effective group id.";
        sgid: u32, "Saved group id.";
        fsgid: u32, "Group id for filesystem access.";
        securebits: u32, "The securebits (`SECBIT_*`).";
        inheritable: CapSet, "Inheritable capabilities.";
        permitted: CapSet, "Permitted capabilities.";
        effective: CapSet, "Effective capabilities: those that checks look at.";
        bounding: CapSet, "Bounding set.";
        ambient: CapSet, "Ambient capabilities.";
    }

    /// Root of the initial namespace: all ids 0, no supplementary groups, every capability.
    pub fn root() -> Cred {
        let mut fields = plain_fields(0, 0);
        fields.permitted = CapSet::FULL;
        fields.effective = CapSet::FULL;
        Cred::publish(fields)
    }

    /// An ordinary user of the initial namespace: all user ids `uid`, all group ids `gid`, these supplementary groups,
    /// no capability. (Not even for `uid` 0; see [`Cred::root`].)
    ///
    /// # Panics
    ///
    /// When an id is [`INVALID_ID`], or there are more than 65,536 groups. [`Cred::builder`] reports that as an error.
    pub fn user(uid: u32, gid: u32, groups: &[u32]) -> Cred {
        let builder = Cred::builder().uids(uid, uid, uid, uid).gids(gid, gid, gid, gid).groups(groups);
        builder.build().expect("ids are valid and groups are at most 65,536")
    }

    /// A builder that starts with all ids 0, no groups, no capability but a full bounding set, in the initial
    /// namespace.
    pub fn builder() -> CredBuilder {
        CredBuilder { fields: plain_fields(0, 0), groups: Vec::new() }
    }

    /// A builder that starts with this credential.
    pub fn to_builder(&self) -> CredBuilder {
        CredBuilder { groups: self.fields.groups.to_vec(), fields: self.fields.clone() }
    }

    /// Freezes a set of fields; the one place where the precomputed answers are made.
    fn publish(fields: Fields) -> Cred {
        let override_is_self = override_is_self(&fields);
        Cred { fields, override_is_self }
    }

    /// Supplementary groups, sorted.
    #[inline]
    pub fn groups(&self) -> &[u32] {
        &self.fields.groups
    }

    /// The namespace that capabilities and id translations are relative to.
    #[inline]
    pub fn user_ns(&self) -> &Arc<UserNamespace> {
        &self.fields.user_ns
    }

    /// Is the task in this group? The filesystem group id and the supplementary groups count; the effective group id
    /// alone does not.
    ///
    /// Kernel: `in_group_p()`.
    #[inline]
    pub fn in_group(&self, gid: u32) -> bool {
        self.fields.fsgid == gid || self.in_groups(gid)
    }

    /// Is the group in the supplementary list? Kernel: `groups_search()`.
    #[inline]
    fn in_groups(&self, gid: u32) -> bool {
        let groups = &*self.fields.groups;
        !groups.is_empty() && groups.binary_search(&gid).is_ok()
    }

    /// Has the credential this capability over the initial namespace? Kernel: `capable()`.
    #[inline]
    pub fn capable(&self, cap: u32) -> bool {
        self.fields.effective.contains(cap) && self.fields.user_ns.is_init()
    }

    /// Has the credential this capability over its own namespace? Kernel: `ns_capable(current_user_ns(), cap)`.
    #[inline]
    pub fn capable_here(&self, cap: u32) -> bool {
        self.fields.effective.contains(cap)
    }

    /// Has the credential this capability over `target`?
    ///
    /// True when `target` is its own namespace or one below it and the capability is effective, or when it is the owner
    /// of `target` or of a namespace between, acting from the parent.
    ///
    /// Kernel: `ns_capable()`, `cap_capable()`.
    pub fn ns_capable(&self, target: &UserNamespace, cap: u32) -> bool {
        let own = &*self.fields.user_ns;
        let mut ns = target;
        loop {
            if ns.is(own) {
                return self.fields.effective.contains(cap);
            }
            if ns.level() <= own.level() {
                return false;
            }
            let Some(parent) = ns.parent() else { return false };
            if parent.is(own) && ns.owner() == self.fields.euid {
                return true;
            }
            ns = parent;
        }
    }

    /// Would [`Cred::access_override`] equal this credential, now and for ever?
    ///
    /// Computed once, when the credential is made. It may only be false when it could be true while the credential's
    /// namespace has no user-id map yet: the map says who is root there.
    #[inline]
    pub fn override_is_self(&self) -> bool {
        self.override_is_self
    }

    /// The credential that access(2), faccessat(2) and faccessat2(2) without `AT_EACCESS` use for walk and check: the
    /// real ids in place of the filesystem ids, and, unless `SECBIT_NO_SETUID_FIXUP` is set, the capabilities that
    /// execve would give to the real user.
    ///
    /// Kernel: `access_override_creds()`.
    pub fn access_override(&self) -> Cred {
        let mut new = self.fields.clone();
        new.fsuid = new.uid;
        new.fsgid = new.gid;
        if new.securebits & SECBIT_NO_SETUID_FIXUP == 0 {
            new.effective = if new.uid == new.user_ns.make_kuid(0) { new.permitted } else { CapSet::EMPTY };
        }
        Cred::publish(new)
    }
}

/// Fields with these ids in the initial namespace, without groups and capabilities.
fn plain_fields(uid: u32, gid: u32) -> Fields {
    Fields {
        uid,
        euid: uid,
        suid: uid,
        fsuid: uid,
        gid,
        egid: gid,
        sgid: gid,
        fsgid: gid,
        securebits: 0,
        inheritable: CapSet::EMPTY,
        permitted: CapSet::EMPTY,
        effective: CapSet::EMPTY,
        bounding: CapSet::FULL,
        ambient: CapSet::EMPTY,
        groups: Arc::new([]),
        user_ns: UserNamespace::init(),
    }
}

/// See [`Cred::override_is_self`].
fn override_is_self(new: &Fields) -> bool {
    if new.fsuid != new.uid || new.fsgid != new.gid {
        return false;
    }
    if new.securebits & SECBIT_NO_SETUID_FIXUP != 0 {
        return true;
    }
    if !new.user_ns.is_init() && new.user_ns.uid_map().is_none() {
        // Nobody is root yet, and the map that is still to be written decides who will be.
        return new.effective.is_empty() && new.permitted.is_empty();
    }
    if new.uid == new.user_ns.make_kuid(0) {
        new.effective == new.permitted
    } else {
        new.effective.is_empty()
    }
}

/// Builds a [`Cred`] with any combination of fields that can exist.
///
/// ```
/// use rcuwalk::cred::{CapSet, Cred};
/// use rcuwalk::uapi::CAP_FOWNER;
///
/// let caps = CapSet::of(&[CAP_FOWNER]);
/// let cred = Cred::user(1000, 1000, &[]).to_builder().permitted(caps).effective(caps).build()?;
/// assert!(cred.capable(CAP_FOWNER));
/// # Ok::<(), rcuwalk::errno::Errno>(())
/// ```
#[derive(Clone, Debug)]
pub struct CredBuilder {
    fields: Fields,
    groups: Vec<u32>,
}

/// Declares setters of [`CredBuilder`].
macro_rules! setters {
    ($($name:ident: $ty:ty, $doc:literal;)*) => {
        $(#[doc = $doc]
        #[must_use]
        pub fn $name(mut self, $name: $ty) -> CredBuilder {
            self.fields.$name = $name;
            self
        })*
    };
}

impl CredBuilder {
    setters! {
        securebits: u32, "Sets the securebits (`SECBIT_*`).";
        inheritable: CapSet, "Sets the inheritable capabilities.";
        permitted: CapSet, "Sets the permitted capabilities.";
        effective: CapSet, "Sets the effective capabilities.";
        bounding: CapSet, "Sets the bounding set.";
        ambient: CapSet, "Sets the ambient capabilities.";
        user_ns: Arc<UserNamespace>, "Sets the user namespace. Ids stay what they are: kernel ids.";
    }

    /// Sets real, effective, saved and filesystem user id.
    #[must_use]
    pub fn uids(mut self, uid: u32, euid: u32, suid: u32, fsuid: u32) -> CredBuilder {
        (self.fields.uid, self.fields.euid, self.fields.suid, self.fields.fsuid) = (uid, euid, suid, fsuid);
        self
    }

    /// Sets real, effective, saved and filesystem group id.
    #[must_use]
    pub fn gids(mut self, gid: u32, egid: u32, sgid: u32, fsgid: u32) -> CredBuilder {
        (self.fields.gid, self.fields.egid, self.fields.sgid, self.fields.fsgid) = (gid, egid, sgid, fsgid);
        self
    }

    /// Sets the supplementary groups, in any order.
    #[must_use]
    pub fn groups(mut self, groups: &[u32]) -> CredBuilder {
        self.groups = groups.to_vec();
        self
    }

    /// Makes the credential.
    ///
    /// # Errors
    ///
    /// `EINVAL` for what no task can have: an invalid id, more than 65,536 groups, an unknown capability or securebit,
    /// an effective capability that is not permitted, an ambient one that is not both permitted and inheritable.
    pub fn build(self) -> Result<Cred> {
        let CredBuilder { mut fields, mut groups } = self;
        let ids = [fields.uid, fields.euid, fields.suid, fields.fsuid]
            .into_iter()
            .chain([fields.gid, fields.egid, fields.sgid, fields.fsgid])
            .chain(groups.iter().copied());
        let caps = fields.inheritable | fields.permitted | fields.bounding;
        let possible = ids.into_iter().all(|id| id != INVALID_ID)
            && groups.len() <= NGROUPS_MAX
            && caps.is_subset(CapSet::FULL)
            && fields.effective.is_subset(fields.permitted)
            && fields.ambient.is_subset(fields.permitted & fields.inheritable)
            && fields.securebits & !(SECURE_ALL_BITS | SECURE_ALL_LOCKS) == 0;
        if !possible {
            return Err(Errno::EINVAL);
        }
        groups.sort_unstable();
        fields.groups = groups.into();
        Ok(Cred::publish(fields))
    }
}

/// Which capability rules a change of user ids follows.
#[derive(Clone, Copy)]
enum Fixup {
    /// setuid, setreuid, setresuid.
    RealEffectiveSaved,
    /// setfsuid.
    Filesystem,
}

/// Changes of user ids.
impl Cred {
    /// Translates an id argument: `None` keeps the current value.
    fn uid_arg(&self, uid: u32) -> Result<Option<u32>> {
        if uid == KEEP { Ok(None) } else { self.valid_uid(uid).map(Some) }
    }

    fn valid_uid(&self, uid: u32) -> Result<u32> {
        match self.fields.user_ns.make_kuid(uid) {
            INVALID_ID => Err(Errno::EINVAL),
            kuid => Ok(kuid),
        }
    }

    /// Applies the capability rules and publishes. Kernel: `cap_task_fix_setuid()`.
    fn commit_uids(&self, mut new: Fields, fixup: Fixup) -> Cred {
        let old = &self.fields;
        if old.securebits & SECBIT_NO_SETUID_FIXUP == 0 {
            let root = old.user_ns.make_kuid(0);
            match fixup {
                Fixup::RealEffectiveSaved => emulate_setxuid(&mut new, old, root),
                Fixup::Filesystem if old.fsuid == root && new.fsuid != root => {
                    new.effective = new.effective - CapSet::FS;
                }
                Fixup::Filesystem if old.fsuid != root && new.fsuid == root => {
                    new.effective = new.effective | (new.permitted & CapSet::FS);
                }
                Fixup::Filesystem => {}
            }
        }
        Cred::publish(new)
    }

    /// setuid(2).
    ///
    /// # Errors
    ///
    /// `EINVAL`: no such id in the namespace (also -1). `EPERM`: neither `CAP_SETUID`, nor the real or saved id.
    ///
    /// Kernel: `__sys_setuid()`.
    pub fn setuid(&self, uid: u32) -> Result<Cred> {
        let uid = self.valid_uid(uid)?;
        let mut new = self.fields.clone();
        if self.capable_here(CAP_SETUID) {
            (new.uid, new.suid) = (uid, uid);
        } else if uid != new.uid && uid != new.suid {
            return Err(Errno::EPERM);
        }
        (new.euid, new.fsuid) = (uid, uid);
        Ok(self.commit_uids(new, Fixup::RealEffectiveSaved))
    }

    /// setreuid(2). -1 keeps an id.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no such id in the namespace. `EPERM`: without `CAP_SETUID`, a real id that is neither real nor
    /// effective now, or an effective id that is none of the three.
    ///
    /// Kernel: `__sys_setreuid()`.
    pub fn setreuid(&self, ruid: u32, euid: u32) -> Result<Cred> {
        let (ruid, euid) = (self.uid_arg(ruid)?, self.uid_arg(euid)?);
        let (old, privileged) = (&self.fields, self.capable_here(CAP_SETUID));
        let mut new = old.clone();
        if let Some(ruid) = ruid {
            if ![old.uid, old.euid].contains(&ruid) && !privileged {
                return Err(Errno::EPERM);
            }
            new.uid = ruid;
        }
        if let Some(euid) = euid {
            if ![old.uid, old.euid, old.suid].contains(&euid) && !privileged {
                return Err(Errno::EPERM);
            }
            new.euid = euid;
        }
        if ruid.is_some() || euid.is_some_and(|euid| euid != old.uid) {
            new.suid = new.euid;
        }
        new.fsuid = new.euid;
        Ok(self.commit_uids(new, Fixup::RealEffectiveSaved))
    }

    /// setresuid(2). -1 keeps an id. `None` when nothing would change.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no such id in the namespace. `EPERM`: without `CAP_SETUID`, an id that is none of the three.
    ///
    /// Kernel: `__sys_setresuid()`.
    pub fn setresuid(&self, ruid: u32, euid: u32, suid: u32) -> Result<Option<Cred>> {
        let (ruid, euid, suid) = (self.uid_arg(ruid)?, self.uid_arg(euid)?, self.uid_arg(suid)?);
        let old = &self.fields;
        let unchanged = ruid.is_none_or(|id| id == old.uid)
            && euid.is_none_or(|id| id == old.euid && id == old.fsuid)
            && suid.is_none_or(|id| id == old.suid);
        if unchanged {
            return Ok(None);
        }
        let known = |id: Option<u32>| id.is_none_or(|id| [old.uid, old.euid, old.suid].contains(&id));
        if !(known(ruid) && known(euid) && known(suid) || self.capable_here(CAP_SETUID)) {
            return Err(Errno::EPERM);
        }
        let mut new = old.clone();
        new.uid = ruid.unwrap_or(old.uid);
        new.euid = euid.unwrap_or(old.euid);
        new.suid = suid.unwrap_or(old.suid);
        new.fsuid = new.euid;
        Ok(Some(self.commit_uids(new, Fixup::RealEffectiveSaved)))
    }

    /// setfsuid(2): always answers with the previous filesystem user id (65534 when it has no number in the namespace),
    /// and with a credential if it took effect.
    ///
    /// It takes effect for a valid id that differs and is one of the four, or with `CAP_SETUID`.
    ///
    /// Kernel: `__sys_setfsuid()`.
    pub fn setfsuid(&self, uid: u32) -> (u32, Option<Cred>) {
        let old = &self.fields;
        let previous = old.user_ns.from_kuid_munged(old.fsuid);
        let Ok(uid) = self.valid_uid(uid) else { return (previous, None) };
        let allowed = [old.uid, old.euid, old.suid].contains(&uid) || self.capable_here(CAP_SETUID);
        if uid == old.fsuid || !allowed {
            return (previous, None);
        }
        let mut new = old.clone();
        new.fsuid = uid;
        (previous, Some(self.commit_uids(new, Fixup::Filesystem)))
    }
}

/// What becomes of the capabilities when user ids change to and from root. Kernel: `cap_emulate_setxuid()`.
fn emulate_setxuid(new: &mut Fields, old: &Fields, root: u32) {
    let was_root = [old.uid, old.euid, old.suid].contains(&root);
    let is_root = [new.uid, new.euid, new.suid].contains(&root);
    if was_root && !is_root {
        if old.securebits & SECBIT_KEEP_CAPS == 0 {
            new.permitted = CapSet::EMPTY;
            new.effective = CapSet::EMPTY;
        }
        // Programs that drop root this way know nothing of ambient capabilities and expect to have none.
        new.ambient = CapSet::EMPTY;
    }
    if old.euid == root && new.euid != root {
        new.effective = CapSet::EMPTY;
    }
    if old.euid != root && new.euid == root {
        new.effective = new.permitted;
    }
}

/// Changes of group ids. They never change a capability.
impl Cred {
    fn gid_arg(&self, gid: u32) -> Result<Option<u32>> {
        if gid == KEEP { Ok(None) } else { self.valid_gid(gid).map(Some) }
    }

    fn valid_gid(&self, gid: u32) -> Result<u32> {
        match self.fields.user_ns.make_kgid(gid) {
            INVALID_ID => Err(Errno::EINVAL),
            kgid => Ok(kgid),
        }
    }

    /// setgid(2).
    ///
    /// # Errors
    ///
    /// `EINVAL`: no such id in the namespace (also -1). `EPERM`: neither `CAP_SETGID`, nor the real or saved id.
    ///
    /// Kernel: `__sys_setgid()`.
    pub fn setgid(&self, gid: u32) -> Result<Cred> {
        let gid = self.valid_gid(gid)?;
        let mut new = self.fields.clone();
        if self.capable_here(CAP_SETGID) {
            (new.gid, new.sgid) = (gid, gid);
        } else if gid != new.gid && gid != new.sgid {
            return Err(Errno::EPERM);
        }
        (new.egid, new.fsgid) = (gid, gid);
        Ok(Cred::publish(new))
    }

    /// setregid(2). -1 keeps an id.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no such id in the namespace. `EPERM`: without `CAP_SETGID`, a real id that is neither real nor
    /// effective now, or an effective id that is none of the three.
    ///
    /// Kernel: `__sys_setregid()`.
    pub fn setregid(&self, rgid: u32, egid: u32) -> Result<Cred> {
        let (rgid, egid) = (self.gid_arg(rgid)?, self.gid_arg(egid)?);
        let (old, privileged) = (&self.fields, self.capable_here(CAP_SETGID));
        let mut new = old.clone();
        if let Some(rgid) = rgid {
            if ![old.gid, old.egid].contains(&rgid) && !privileged {
                return Err(Errno::EPERM);
            }
            new.gid = rgid;
        }
        if let Some(egid) = egid {
            if ![old.gid, old.egid, old.sgid].contains(&egid) && !privileged {
                return Err(Errno::EPERM);
            }
            new.egid = egid;
        }
        if rgid.is_some() || egid.is_some_and(|egid| egid != old.gid) {
            new.sgid = new.egid;
        }
        new.fsgid = new.egid;
        Ok(Cred::publish(new))
    }

    /// setresgid(2). -1 keeps an id. `None` when nothing would change.
    ///
    /// # Errors
    ///
    /// `EINVAL`: no such id in the namespace. `EPERM`: without `CAP_SETGID`, an id that is none of the three.
    ///
    /// Kernel: `__sys_setresgid()`.
    pub fn setresgid(&self, rgid: u32, egid: u32, sgid: u32) -> Result<Option<Cred>> {
        let (rgid, egid, sgid) = (self.gid_arg(rgid)?, self.gid_arg(egid)?, self.gid_arg(sgid)?);
        let old = &self.fields;
        let unchanged = rgid.is_none_or(|id| id == old.gid)
            && egid.is_none_or(|id| id == old.egid && id == old.fsgid)
            && sgid.is_none_or(|id| id == old.sgid);
        if unchanged {
            return Ok(None);
        }
        let known = |id: Option<u32>| id.is_none_or(|id| [old.gid, old.egid, old.sgid].contains(&id));
        if !(known(rgid) && known(egid) && known(sgid) || self.capable_here(CAP_SETGID)) {
            return Err(Errno::EPERM);
        }
        let mut new = old.clone();
        new.gid = rgid.unwrap_or(old.gid);
        new.egid = egid.unwrap_or(old.egid);
        new.sgid = sgid.unwrap_or(old.sgid);
        new.fsgid = new.egid;
        Ok(Some(Cred::publish(new)))
    }

    /// setfsgid(2), as [`Cred::setfsuid`] with `CAP_SETGID`. Kernel: `__sys_setfsgid()`.
    pub fn setfsgid(&self, gid: u32) -> (u32, Option<Cred>) {
        let old = &self.fields;
        let previous = old.user_ns.from_kgid_munged(old.fsgid);
        let Ok(gid) = self.valid_gid(gid) else { return (previous, None) };
        let allowed = [old.gid, old.egid, old.sgid].contains(&gid) || self.capable_here(CAP_SETGID);
        if gid == old.fsgid || !allowed {
            return (previous, None);
        }
        let mut new = old.clone();
        new.fsgid = gid;
        (previous, Some(Cred::publish(new)))
    }

    /// setgroups(2).
    ///
    /// # Errors
    ///
    /// `EPERM`: no `CAP_SETGID`, or the namespace does not allow it (yet). `EINVAL`: more than 65,536 groups, or one
    /// without a mapping.
    ///
    /// Kernel: `setgroups()`.
    pub fn setgroups(&self, groups: &[u32]) -> Result<Cred> {
        if !self.capable_here(CAP_SETGID) || !self.fields.user_ns.setgroups_allowed() {
            return Err(Errno::EPERM);
        }
        if groups.len() > NGROUPS_MAX {
            return Err(Errno::EINVAL);
        }
        let mut kgids = groups.iter().map(|&gid| self.valid_gid(gid)).collect::<Result<Vec<u32>>>()?;
        kgids.sort_unstable();
        let mut new = self.fields.clone();
        new.groups = kgids.into();
        Ok(Cred::publish(new))
    }
}

/// Changes of capabilities, securebits and namespace.
impl Cred {
    /// capset(2) on the task itself. Unknown bits are ignored.
    ///
    /// # Errors
    ///
    /// `EPERM`: permitted grows; effective is not within permitted; inheritable gains what the bounding set lacks, or,
    /// without `CAP_SETPCAP`, what is not permitted.
    ///
    /// Kernel: `cap_capset()`.
    pub fn capset(&self, effective: CapSet, permitted: CapSet, inheritable: CapSet) -> Result<Cred> {
        let (effective, permitted, inheritable) =
            (effective & CapSet::FULL, permitted & CapSet::FULL, inheritable & CapSet::FULL);
        let old = &self.fields;
        let inherits = inheritable.is_subset(old.inheritable | old.bounding)
            && (self.capable_here(CAP_SETPCAP) || inheritable.is_subset(old.inheritable | old.permitted));
        if !inherits || !permitted.is_subset(old.permitted) || !effective.is_subset(permitted) {
            return Err(Errno::EPERM);
        }
        let mut new = old.clone();
        new.effective = effective;
        new.permitted = permitted;
        new.inheritable = inheritable;
        new.ambient = old.ambient & permitted & inheritable;
        Ok(Cred::publish(new))
    }

    /// prctl(`PR_SET_SECUREBITS`).
    ///
    /// # Errors
    ///
    /// `EPERM`: an unknown bit, a locked bit changed, a lock removed; or without `CAP_SETPCAP` anything but a change of
    /// the `SECBIT_EXEC_*` bits and their locks (a call that changes nothing included).
    ///
    /// Kernel: `cap_task_prctl()`.
    pub fn set_securebits(&self, bits: u32) -> Result<Cred> {
        let old = self.fields.securebits;
        let changed = old ^ bits;
        let locked = (old & SECURE_ALL_LOCKS) >> 1;
        if locked & changed != 0
            || old & SECURE_ALL_LOCKS & !bits != 0
            || bits & !(SECURE_ALL_BITS | SECURE_ALL_LOCKS) != 0
        {
            return Err(Errno::EPERM);
        }
        if !self.capable_here(CAP_SETPCAP) && (changed == 0 || changed & !SECURE_ALL_UNPRIVILEGED != 0) {
            return Err(Errno::EPERM);
        }
        let mut new = self.fields.clone();
        new.securebits = bits;
        Ok(Cred::publish(new))
    }

    /// prctl(`PR_SET_KEEPCAPS`).
    ///
    /// # Errors
    ///
    /// `EPERM` when `SECBIT_KEEP_CAPS_LOCKED` is set.
    ///
    /// Kernel: `cap_task_prctl()`.
    pub fn set_keepcaps(&self, keep: bool) -> Result<Cred> {
        if self.fields.securebits & SECBIT_KEEP_CAPS_LOCKED != 0 {
            return Err(Errno::EPERM);
        }
        let mut new = self.fields.clone();
        new.securebits = new.securebits & !SECBIT_KEEP_CAPS | if keep { SECBIT_KEEP_CAPS } else { 0 };
        Ok(Cred::publish(new))
    }

    /// prctl(`PR_CAPBSET_DROP`): removes a capability from the bounding set.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SETPCAP`, then `EINVAL` for an unknown capability.
    ///
    /// Kernel: `cap_prctl_drop()`.
    pub fn capbset_drop(&self, cap: u32) -> Result<Cred> {
        if !self.capable_here(CAP_SETPCAP) {
            return Err(Errno::EPERM);
        }
        let mut new = self.fields.clone();
        new.bounding = new.bounding - valid_cap(cap)?;
        Ok(Cred::publish(new))
    }

    /// prctl(`PR_CAP_AMBIENT_RAISE`).
    ///
    /// # Errors
    ///
    /// `EINVAL` for an unknown capability; `EPERM` when it is not both permitted and inheritable, or
    /// `SECBIT_NO_CAP_AMBIENT_RAISE` is set.
    ///
    /// Kernel: `cap_task_prctl()`.
    pub fn ambient_raise(&self, cap: u32) -> Result<Cred> {
        let raised = valid_cap(cap)?;
        let mut new = self.fields.clone();
        let allowed = raised.is_subset(new.permitted & new.inheritable);
        if !allowed || new.securebits & SECBIT_NO_CAP_AMBIENT_RAISE != 0 {
            return Err(Errno::EPERM);
        }
        new.ambient = new.ambient | raised;
        Ok(Cred::publish(new))
    }

    /// prctl(`PR_CAP_AMBIENT_LOWER`).
    ///
    /// # Errors
    ///
    /// `EINVAL` for an unknown capability.
    ///
    /// Kernel: `cap_task_prctl()`.
    pub fn ambient_lower(&self, cap: u32) -> Result<Cred> {
        let mut new = self.fields.clone();
        new.ambient = new.ambient - valid_cap(cap)?;
        Ok(Cred::publish(new))
    }

    /// prctl(`PR_CAP_AMBIENT_CLEAR_ALL`). Kernel: `cap_task_prctl()`.
    #[must_use]
    pub fn ambient_clear_all(&self) -> Cred {
        let mut new = self.fields.clone();
        new.ambient = CapSet::EMPTY;
        Cred::publish(new)
    }

    /// unshare(`CLONE_NEWUSER`): a new namespace below the current one, owned by the effective ids, in which the
    /// credential has every capability.
    ///
    /// `chrooted`: the task's root is not that of its mount namespace.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: too deep. `EPERM`: chrooted, or an effective id without a number in the current namespace.
    ///
    /// Kernel: `create_user_ns()`.
    pub fn unshare_user(&self, chrooted: bool) -> Result<Cred> {
        let old = &self.fields;
        let ns = UserNamespace::new_child(&old.user_ns, old.euid, old.egid, self.capable_here(CAP_SETFCAP));
        if chrooted && !matches!(ns, Err(Errno::ENOSPC)) {
            return Err(Errno::EPERM);
        }
        Ok(self.with_user_ns(ns?))
    }

    /// setns(2) into a user namespace.
    ///
    /// # Errors
    ///
    /// `EINVAL` when it is the current one; `EPERM` without `CAP_SYS_ADMIN` over it.
    ///
    /// Kernel: `userns_install()`.
    pub fn enter_user_ns(&self, ns: &Arc<UserNamespace>) -> Result<Cred> {
        if ns.is(&self.fields.user_ns) {
            return Err(Errno::EINVAL);
        }
        if !self.ns_capable(ns, CAP_SYS_ADMIN) {
            return Err(Errno::EPERM);
        }
        Ok(self.with_user_ns(Arc::clone(ns)))
    }

    /// Every capability relative to `ns`, and default securebits. Kernel: `set_cred_user_ns()`.
    fn with_user_ns(&self, ns: Arc<UserNamespace>) -> Cred {
        let mut new = self.fields.clone();
        new.securebits = 0;
        new.inheritable = CapSet::EMPTY;
        new.permitted = CapSet::FULL;
        new.effective = CapSet::FULL;
        new.bounding = CapSet::FULL;
        new.ambient = CapSet::EMPTY;
        new.user_ns = ns;
        Cred::publish(new)
    }
}

/// The set of one capability, if it exists.
fn valid_cap(cap: u32) -> Result<CapSet> {
    if cap > CAP_LAST_CAP { Err(Errno::EINVAL) } else { Ok(CapSet(1 << cap)) }
}
