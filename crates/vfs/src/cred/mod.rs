//! Credentials: who a task is.
//!
//! A [`Cred`] is immutable. Every change builds a new one, so it can be shared between threads and a permission check
//! reads it without synchronisation. All ids in it are kernel ids ([`crate::cred::userns`]) and valid, so that comparing one
//! with an inode's owner needs no test for "no such owner".
//!
//! Each credential carries what the pathname hot path asks again and again: its user namespace, held directly (the
//! owner test and every capability test need it), its group list sorted, and whether access(2) may use it as it is
//! ([`Cred::override_is_self`]).
//!
//! How one becomes another stands in `cred/transitions.rs`.

mod capability;
pub(crate) mod commoncap;
mod transitions;
pub(crate) mod ucounts;
pub mod userns;

use crate::base::errno::{Errno, Result};
use crate::base::uapi::{INVALID_ID, NGROUPS_MAX, SECBIT_NO_SETUID_FIXUP};
use crate::cred::transitions::{SECURE_ALL_BITS, SECURE_ALL_LOCKS};
use crate::cred::userns::UserNamespace;
pub use capability::{CAP_NAMES, CapSet, cap_from_name};
use rcuwalk_sync::{Charge, Serial};
use std::sync::Arc;

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
    /// What many groups count for as memory.
    groups_charge: Option<Arc<Charge>>,
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
    number: u64,
}

/// See [`Cred::number`].
static NUMBERS: Serial = Serial::new();

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
        Cred { fields, override_is_self, number: NUMBERS.next() }
    }

    /// Credentials of the same number are equal: clones of one another. 0 for one that was made for a single call.
    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Has the groups count as memory for as long as any credential has them.
    pub(crate) fn count_groups(&mut self, charge: Charge) {
        self.fields.groups_charge = Some(Arc::new(charge));
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
        self.fields.groups.binary_search(&gid).is_ok()
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
        // Equal to this one, it may pass for it.
        let number = if self.override_is_self { self.number } else { 0 };
        Cred { override_is_self: override_is_self(&new), fields: new, number }
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
        groups_charge: None,
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
        return new.permitted.is_empty();
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
        fields.groups_charge = None;
        Ok(Cred::publish(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::uapi::*;
    use crate::cred::transitions::KEEP;
    use crate::cred::userns::IdExtent;
    use crate::perm::{InodeAttr, NoAcl, inode_permission};

    const ROOT_INSIDE: u32 = 100_000;

    fn same_fields(a: &Cred, b: &Cred) -> bool {
        let ids = |c: &Cred| {
            let f = &c.fields;
            [f.uid, f.euid, f.suid, f.fsuid, f.gid, f.egid, f.sgid, f.fsgid, f.securebits]
        };
        let caps = |c: &Cred| {
            let f = &c.fields;
            [f.inheritable, f.permitted, f.effective, f.bounding, f.ambient]
        };
        ids(a) == ids(b) && caps(a) == caps(b) && a.groups() == b.groups() && a.user_ns().is(b.user_ns())
    }

    /// Namespaces with every relation between id 0 and the ids used below. The first component is what to map id 0 to
    /// later, where the map is not written yet.
    fn namespaces() -> Vec<(Option<u32>, Arc<UserNamespace>)> {
        let init = UserNamespace::init();
        let child = |lower: Option<(u32, u32)>| {
            let ns = UserNamespace::new_child(&init, 0, 0, true).unwrap();
            if let Some((first, lower)) = lower {
                ns.set_uid_map(&[IdExtent { first, lower, count: 1 }]).unwrap();
            }
            ns
        };
        vec![
            (None, Arc::clone(&init)),
            (None, child(Some((0, ROOT_INSIDE)))),
            (None, child(Some((0, 0)))),
            (None, child(Some((7, 1000)))),
            (Some(0), child(None)),
            (Some(1000), child(None)),
            (Some(ROOT_INSIDE), child(None)),
        ]
    }

    /// Every combination of the fields that the override depends on.
    fn all_creds(ns: &Arc<UserNamespace>) -> Vec<Cred> {
        let cap_sets: [&[u32]; 4] =
            [&[], &[CAP_DAC_OVERRIDE], &[CAP_DAC_READ_SEARCH], &[CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH]];
        let cap_sets = cap_sets.map(CapSet::of);
        let mut creds = Vec::new();
        for (uid, fsuid) in pairs(&[0, 1000, ROOT_INSIDE]) {
            for (gid, fsgid) in pairs(&[0, 50]) {
                for securebits in [0, SECBIT_NO_SETUID_FIXUP, SECBIT_NOROOT, SECBIT_KEEP_CAPS] {
                    for (permitted, effective) in pairs(&cap_sets) {
                        let builder =
                            Cred::builder().uids(uid, fsuid, fsuid, fsuid).gids(gid, fsgid, fsgid, fsgid);
                        let builder =
                            builder.securebits(securebits).permitted(permitted).effective(effective);
                        creds.extend(builder.user_ns(Arc::clone(ns)).build());
                    }
                }
            }
        }
        assert_eq!(creds.len(), 9 * 4 * 4 * 9, "each effective set that is permitted");
        creds
    }

    fn pairs<T: Copy>(domain: &[T]) -> impl Iterator<Item = (T, T)> {
        domain.iter().flat_map(|&a| domain.iter().map(move |&b| (a, b)))
    }

    fn decisions(cred: &Cred) -> Vec<Result<()>> {
        let mut answers = Vec::new();
        for mode in [S_IFREG, S_IFREG | 0o640, S_IFREG | 0o107, S_IFREG | 0o070, S_IFDIR, S_IFDIR | 0o710] {
            for (uid, gid) in [(0, 0), (1000, 50), (ROOT_INSIDE, 0), (7, 7)] {
                let attr = InodeAttr { mode, uid, gid, iflags: 0 };
                answers.extend((0..8).map(|mask| inode_permission(false, &attr, &NoAcl, cred, mask)));
            }
        }
        answers
    }

    #[test]
    fn skipping_the_override_is_never_visible() {
        for (late_root, ns) in namespaces() {
            let creds = all_creds(&ns);
            let root = ns.make_kuid(0);
            for cred in &creds {
                let over = cred.access_override();
                let f = &cred.fields;
                let spec = f.fsuid == f.uid
                    && f.fsgid == f.gid
                    && (f.securebits & SECBIT_NO_SETUID_FIXUP != 0
                        || if f.uid == root { f.effective == f.permitted } else { f.effective.is_empty() });
                assert_eq!(same_fields(cred, &over), spec);
                if late_root.is_none() {
                    assert_eq!(cred.override_is_self(), spec, "{cred:?}");
                }
                if cred.override_is_self() {
                    assert!(spec);
                    assert_eq!(decisions(cred), decisions(&over));
                }
            }
            // No answer given before the map is written may turn wrong by it, whichever user becomes root.
            if let Some(lower) = late_root {
                ns.set_uid_map(&[IdExtent { first: 0, lower, count: 1 }]).unwrap();
                let skipped: Vec<_> = creds.iter().filter(|cred| cred.override_is_self()).collect();
                assert!(!skipped.is_empty());
                for cred in skipped {
                    assert!(same_fields(cred, &cred.access_override()));
                }
            }
        }
    }

    #[test]
    fn override_takes_real_ids_and_their_capabilities() {
        // k01: ruid 1000, euid 0
        let setuid_root = Cred::user(1000, 1000, &[4]).to_builder().uids(1000, 0, 0, 0);
        let setuid_root = setuid_root.permitted(CapSet::FULL).effective(CapSet::FULL).build().unwrap();
        let over = setuid_root.access_override();
        assert_eq!((over.fsuid(), over.euid(), over.effective()), (1000, 0, CapSet::EMPTY));
        assert_eq!((over.permitted(), over.groups()), (CapSet::FULL, &[4][..]));
        // k02: ruid 0, euid 1000, effective cleared by the switch
        let lowered = Cred::root().setreuid(KEEP, 1000).unwrap();
        assert_eq!((lowered.effective(), lowered.permitted()), (CapSet::EMPTY, CapSet::FULL));
        assert_eq!(lowered.access_override().effective(), CapSet::FULL);
        // k04: with NO_SETUID_FIXUP capabilities stay
        let caps = CapSet::of(&[CAP_DAC_OVERRIDE]);
        let fixed = Cred::user(1000, 1000, &[]).to_builder().securebits(SECBIT_NO_SETUID_FIXUP);
        let fixed = fixed.permitted(caps).effective(caps).build().unwrap();
        assert!(fixed.override_is_self());
        assert_eq!(fixed.access_override().effective(), caps);
        // k05: uid 0 with effective = {}
        let bare = Cred::root().capset(CapSet::EMPTY, CapSet::FULL, CapSet::EMPTY).unwrap();
        assert!(!bare.override_is_self());
        assert_eq!(bare.access_override().effective(), CapSet::FULL);
        for usual in [Cred::root(), Cred::user(1000, 1000, &[1, 2])] {
            assert!(usual.override_is_self());
        }
    }

    /// The ids after a change, written down from the manual's words: (real, effective, saved), or `None` for EPERM.
    type Ids = [u32; 3];

    fn model_setuid([r, _, s]: Ids, x: u32, privileged: bool) -> Option<Ids> {
        if privileged { Some([x; 3]) } else { (x == r || x == s).then_some([r, x, s]) }
    }

    fn model_setreuid([r, e, s]: Ids, nr: u32, ne: u32, privileged: bool) -> Option<Ids> {
        let real_ok = privileged || nr == KEEP || nr == r || nr == e;
        let effective_ok = privileged || ne == KEEP || ne == r || ne == e || ne == s;
        let new_r = if nr == KEEP { r } else { nr };
        let new_e = if ne == KEEP { e } else { ne };
        let new_s = if nr != KEEP || (ne != KEEP && ne != r) { new_e } else { s };
        (real_ok && effective_ok).then_some([new_r, new_e, new_s])
    }

    fn model_setresuid([r, e, s]: Ids, new: Ids, privileged: bool) -> Option<Ids> {
        let old = [r, e, s];
        let ok = |n: u32| privileged || n == KEEP || old.contains(&n);
        let pick = |i: usize| if new[i] == KEEP { old[i] } else { new[i] };
        new.into_iter().all(ok).then_some([pick(0), pick(1), pick(2)])
    }

    fn uids(cred: &Cred) -> (Ids, u32) {
        ([cred.uid(), cred.euid(), cred.suid()], cred.fsuid())
    }

    fn gids(cred: &Cred) -> (Ids, u32) {
        ([cred.gid(), cred.egid(), cred.sgid()], cred.fsgid())
    }

    fn triples(domain: &[u32]) -> Vec<Ids> {
        domain.iter().flat_map(|&a| pairs(domain).map(move |(b, c)| [a, b, c])).collect()
    }

    #[test]
    fn user_ids_change_as_the_model_says() {
        let arguments = [0, 1, 2, 3, KEEP];
        for old in triples(&[0, 1, 2]) {
            for fsuid in 0..3 {
                for caps in [CapSet::EMPTY, CapSet::of(&[CAP_SETUID])] {
                    let cred =
                        Cred::builder().uids(old[0], old[1], old[2], fsuid).permitted(caps).effective(caps);
                    let cred = cred.build().unwrap();
                    let privileged = !caps.is_empty();
                    let expect = |ids: Option<Ids>| ids.map(|ids| (ids, ids[1])).ok_or(Errno::EPERM);
                    for x in arguments {
                        let model = if x == KEEP {
                            Err(Errno::EINVAL)
                        } else {
                            expect(model_setuid(old, x, privileged))
                        };
                        assert_eq!(cred.setuid(x).map(|new| uids(&new)), model);
                    }
                    for (r, e) in pairs(&arguments) {
                        let model = expect(model_setreuid(old, r, e, privileged));
                        assert_eq!(cred.setreuid(r, e).map(|new| uids(&new)), model);
                    }
                    for new in triples(&arguments) {
                        let got = cred.setresuid(new[0], new[1], new[2]);
                        let changes = (0..3).any(|i| new[i] != KEEP && new[i] != old[i]);
                        if !changes && (new[1] == KEEP || new[1] == fsuid) {
                            assert!(got.unwrap().is_none(), "k11: fsuid is left alone");
                        } else {
                            let model = expect(model_setresuid(old, new, privileged));
                            assert_eq!(got.map(|new| uids(&new.unwrap())), model);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn group_ids_change_as_the_model_says_and_keep_capabilities() {
        let arguments = [0, 1, 2, 3, KEEP];
        for old in triples(&[0, 1, 2]) {
            for caps in [CapSet::EMPTY, CapSet::of(&[CAP_SETGID])] {
                let cred =
                    Cred::builder().gids(old[0], old[1], old[2], old[1]).permitted(caps).effective(caps);
                let cred = cred.build().unwrap();
                let privileged = !caps.is_empty();
                let expect = |ids: Option<Ids>| ids.map(|ids| (ids, ids[1])).ok_or(Errno::EPERM);
                let check = |new: Cred| {
                    assert_eq!((new.permitted(), new.effective()), (caps, caps));
                    gids(&new)
                };
                for x in arguments {
                    let model =
                        if x == KEEP { Err(Errno::EINVAL) } else { expect(model_setuid(old, x, privileged)) };
                    assert_eq!(cred.setgid(x).map(check), model);
                }
                for (r, e) in pairs(&arguments) {
                    assert_eq!(cred.setregid(r, e).map(check), expect(model_setreuid(old, r, e, privileged)));
                }
                for new in triples(&arguments) {
                    match cred.setresgid(new[0], new[1], new[2]) {
                        Ok(None) => assert!((0..3).all(|i| new[i] == KEEP || new[i] == old[i])),
                        got => {
                            let got = got.map(|new| check(new.unwrap()));
                            assert_eq!(got, expect(model_setresuid(old, new, privileged)));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn filesystem_ids_answer_with_the_previous_one() {
        let user =
            Cred::user(1000, 1000, &[]).to_builder().uids(1, 2, 3, 4).gids(5, 6, 7, 8).build().unwrap();
        for uid in 0..5 {
            let (previous, new) = user.setfsuid(uid);
            assert_eq!(previous, 4);
            assert_eq!(
                new.map(|new| new.fsuid()),
                [1, 2, 3].contains(&uid).then_some(uid),
                "0 denied, 4 unchanged"
            );
        }
        assert_eq!(user.setfsuid(KEEP).0, 4);
        assert!(user.setfsuid(KEEP).1.is_none());
        assert_eq!(user.setfsgid(7).1.unwrap().fsgid(), 7);
        assert!(user.setfsgid(9).1.is_none());
        let other_ns = user.unshare_user(false).unwrap();
        assert_eq!(other_ns.setfsuid(0).0, 65534, "no number in the new namespace");
        // k13: the group test uses the filesystem group id
        assert!(user.in_group(8) && !user.in_group(6));
    }

    #[test]
    fn capabilities_follow_user_ids() {
        let root = Cred::root();
        // k07, y10: all ids leave root
        let user = root.setuid(1000).unwrap();
        assert_eq!(
            (user.permitted(), user.effective(), user.bounding()),
            (CapSet::EMPTY, CapSet::EMPTY, CapSet::FULL)
        );
        // k08: KEEP_CAPS keeps the permitted set, not the effective one
        let kept = root.set_keepcaps(true).unwrap().setuid(1000).unwrap();
        assert_eq!((kept.permitted(), kept.effective()), (CapSet::FULL, CapSet::EMPTY));
        let raised = kept.capset(CapSet::FULL, CapSet::FULL, CapSet::EMPTY).unwrap();
        assert!(raised.capable(CAP_MKNOD));
        // effective id leaves and returns
        let away = root.setresuid(KEEP, 1000, KEEP).unwrap().unwrap();
        assert_eq!((away.permitted(), away.effective()), (CapSet::FULL, CapSet::EMPTY));
        let back = away.setresuid(KEEP, 0, KEEP).unwrap().unwrap();
        assert_eq!(back.effective(), CapSet::FULL);
        // k06: setfsuid moves the filesystem set only
        let fs_user = root.setfsuid(1000).1.unwrap();
        assert_eq!(fs_user.effective(), CapSet::FULL - CapSet::FS);
        assert_eq!(fs_user.setfsuid(0).1.unwrap().effective(), CapSet::FULL);
        // NO_SETUID_FIXUP
        let fixed = root.set_securebits(SECBIT_NO_SETUID_FIXUP).unwrap();
        assert_eq!(fixed.setuid(1000).unwrap().effective(), CapSet::FULL);
        assert_eq!(fixed.setfsuid(1000).1.unwrap().effective(), CapSet::FULL);
        // ambient goes with root even under KEEP_CAPS
        let inherit =
            root.set_keepcaps(true).unwrap().capset(CapSet::FULL, CapSet::FULL, CapSet::FULL).unwrap();
        let ambient = inherit.ambient_raise(CAP_CHOWN).unwrap();
        assert_eq!(ambient.setuid(1).unwrap().ambient(), CapSet::EMPTY);
        assert!(
            ambient.setresuid(KEEP, 1, KEEP).unwrap().unwrap().ambient().contains(CAP_CHOWN),
            "real id stays root"
        );
    }

    /// k09, k10 and k12 of the verified cases.
    #[test]
    fn verified_set_id_cases() {
        let user = Cred::user(1000, 1000, &[]);
        assert_eq!(user.setuid(0).unwrap_err(), Errno::EPERM);
        assert_eq!(uids(&user.setuid(1000).unwrap()), ([1000; 3], 1000));
        assert_eq!(user.setreuid(KEEP, 1001).unwrap_err(), Errno::EPERM);
        assert!(user.setresuid(KEEP, KEEP, 1000).unwrap().is_none());
        assert_eq!(user.setgid(5).unwrap_err(), Errno::EPERM);
        assert_eq!(user.setgroups(&[]).unwrap_err(), Errno::EPERM);
        assert!(user.setresuid(KEEP, KEEP, KEEP).unwrap().is_none());
        let root = Cred::root();
        assert_eq!(root.setuid(KEEP).unwrap_err(), Errno::EINVAL);
        let reset = root.setfsuid(1000).1.unwrap().setresuid(KEEP, 0, KEEP).unwrap().unwrap();
        assert_eq!(reset.fsuid(), 0);
        assert_eq!(root.setreuid(1000, KEEP).unwrap().suid(), 0);
        assert_eq!(root.setreuid(KEEP, 1000).unwrap().suid(), 1000);
    }

    #[test]
    fn groups_are_sorted_and_limited() {
        let root = Cred::root().setgroups(&[30, 10, 20, 10]).unwrap();
        assert_eq!(root.groups(), [10, 10, 20, 30]);
        assert!(root.in_group(20) && root.in_group(0) && !root.in_group(15));
        assert_eq!(root.setgroups(&[KEEP]).unwrap_err(), Errno::EINVAL);
        assert!(root.setgroups(&vec![1; NGROUPS_MAX]).is_ok());
        assert_eq!(root.setgroups(&vec![1; NGROUPS_MAX + 1]).unwrap_err(), Errno::EINVAL);
        let inside = root.unshare_user(false).unwrap();
        assert_eq!(inside.setgroups(&[]).unwrap_err(), Errno::EPERM, "no group map yet");
        inside.user_ns().set_gid_map(&[IdExtent { first: 5, lower: 50, count: 1 }]).unwrap();
        assert_eq!(inside.setgroups(&[5]).unwrap().groups(), [50]);
        assert_eq!(inside.setgroups(&[6]).unwrap_err(), Errno::EINVAL);
    }

    #[test]
    fn capset_never_gains() {
        let sets: Vec<CapSet> = (0..8).map(|bits| CapSet(bits << 6)).collect();
        let setpcap = CapSet::of(&[CAP_SETPCAP]);
        assert!(setpcap.is_subset(sets[7]) && !setpcap.is_subset(sets[3]));
        for (old_p, old_i) in pairs(&sets) {
            for bounding in [sets[0], sets[1], sets[7]] {
                let cred =
                    Cred::builder().permitted(old_p).effective(old_p).inheritable(old_i).bounding(bounding);
                let cred = cred.ambient(old_p & old_i).build().unwrap();
                for (p, e) in pairs(&sets) {
                    for &i in &sets {
                        let allowed = p.is_subset(old_p)
                            && e.is_subset(p)
                            && i.is_subset(old_i | bounding)
                            && (setpcap.is_subset(old_p) || i.is_subset(old_i | old_p));
                        match cred.capset(e, p, i) {
                            Ok(new) => {
                                assert!(allowed);
                                assert_eq!((new.effective(), new.permitted(), new.inheritable()), (e, p, i));
                                assert_eq!(new.ambient(), old_p & old_i & p & i);
                            }
                            Err(errno) => assert!(!allowed && errno == Errno::EPERM),
                        }
                    }
                }
            }
        }
        let root = Cred::root().capset(CapSet(!0), CapSet(!0), CapSet(!0)).unwrap();
        assert_eq!(root.permitted(), CapSet::FULL, "unknown bits are ignored");
    }

    #[test]
    fn securebits_lock() {
        let root = Cred::root();
        let locked =
            root.set_securebits(SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_KEEP_CAPS_LOCKED).unwrap();
        assert_eq!(
            locked.set_securebits(SECBIT_NOROOT_LOCKED | SECBIT_KEEP_CAPS_LOCKED).unwrap_err(),
            Errno::EPERM
        );
        assert_eq!(
            locked.set_securebits(SECBIT_NOROOT | SECBIT_NOROOT_LOCKED).unwrap_err(),
            Errno::EPERM,
            "unlock"
        );
        assert_eq!(locked.set_keepcaps(true).unwrap_err(), Errno::EPERM);
        let more = locked.securebits() | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED;
        assert_eq!(locked.set_securebits(more).unwrap().securebits(), more);
        assert_eq!(root.set_securebits(1 << 12).unwrap_err(), Errno::EPERM, "unknown bit");
        let user = Cred::user(1000, 1000, &[]);
        assert_eq!(user.set_securebits(0).unwrap_err(), Errno::EPERM, "not even without a change");
        assert_eq!(user.set_securebits(SECBIT_NOROOT).unwrap_err(), Errno::EPERM);
        let restricted =
            user.set_securebits(SECBIT_EXEC_RESTRICT_FILE << 1 | SECBIT_EXEC_RESTRICT_FILE).unwrap();
        assert_eq!(restricted.securebits(), 3 << 8);
        assert!(user.set_keepcaps(true).unwrap().securebits() == SECBIT_KEEP_CAPS, "needs no capability");
    }

    #[test]
    fn bounding_and_ambient_sets() {
        let root = Cred::root();
        assert!(!root.capbset_drop(CAP_CHOWN).unwrap().bounding().contains(CAP_CHOWN));
        assert_eq!(root.capbset_drop(41).unwrap_err(), Errno::EINVAL);
        assert_eq!(Cred::user(1, 1, &[]).capbset_drop(41).unwrap_err(), Errno::EPERM);
        assert_eq!(root.ambient_raise(CAP_CHOWN).unwrap_err(), Errno::EPERM, "not inheritable");
        assert_eq!(root.ambient_raise(41).unwrap_err(), Errno::EINVAL);
        let inherit = root.capset(CapSet::FULL, CapSet::FULL, CapSet::of(&[CAP_CHOWN, CAP_MKNOD])).unwrap();
        let raised = inherit.ambient_raise(CAP_CHOWN).unwrap().ambient_raise(CAP_MKNOD).unwrap();
        assert_eq!(raised.ambient_lower(CAP_CHOWN).unwrap().ambient(), CapSet::of(&[CAP_MKNOD]));
        assert_eq!(raised.ambient_clear_all().ambient(), CapSet::EMPTY);
        assert_eq!(raised.ambient_lower(64).unwrap_err(), Errno::EINVAL);
        let refused = inherit.set_securebits(SECBIT_NO_CAP_AMBIENT_RAISE).unwrap();
        assert_eq!(refused.ambient_raise(CAP_CHOWN).unwrap_err(), Errno::EPERM);
    }

    #[test]
    fn capabilities_over_namespaces() {
        let root = Cred::root();
        let inside = Cred::user(1000, 1000, &[]).unshare_user(false).unwrap();
        let ns = Arc::clone(inside.user_ns());
        let init = UserNamespace::init();
        assert!(inside.ns_capable(&ns, CAP_SYS_CHROOT) && !inside.ns_capable(&init, CAP_SYS_CHROOT));
        assert!(inside.capable_here(CAP_SYS_CHROOT) && !inside.capable(CAP_SYS_CHROOT));
        assert!(root.ns_capable(&ns, CAP_SYS_CHROOT), "from above");
        assert!(Cred::user(1000, 5, &[]).ns_capable(&ns, CAP_MKNOD), "the owner, from the parent");
        assert!(!Cred::user(1001, 1000, &[]).ns_capable(&ns, CAP_MKNOD));
        // One level further down: the owner of the outer one has it all too.
        ns.set_uid_map(&[IdExtent { first: 0, lower: 1000, count: 1 }]).unwrap();
        ns.set_gid_map(&[IdExtent { first: 0, lower: 1000, count: 1 }]).unwrap();
        let deeper = inside.unshare_user(false).unwrap();
        assert!(Cred::user(1000, 5, &[]).ns_capable(deeper.user_ns(), CAP_MKNOD));
        assert!(!Cred::user(1001, 5, &[]).ns_capable(deeper.user_ns(), CAP_MKNOD));
        assert!(inside.ns_capable(deeper.user_ns(), CAP_MKNOD) && !deeper.ns_capable(&ns, CAP_MKNOD));
        let sibling = root.unshare_user(false).unwrap();
        assert!(!inside.ns_capable(sibling.user_ns(), CAP_MKNOD), "same level, another namespace");
        // u07 and setns
        assert_eq!(root.unshare_user(true).unwrap_err(), Errno::EPERM);
        assert_eq!(root.enter_user_ns(&init).unwrap_err(), Errno::EINVAL);
        assert_eq!(inside.enter_user_ns(&init).unwrap_err(), Errno::EPERM);
        let entered = root.enter_user_ns(&ns).unwrap();
        assert_eq!((entered.effective(), entered.inheritable()), (CapSet::FULL, CapSet::EMPTY));
        assert!(!entered.capable(CAP_CHOWN));
    }

    /// u06: an ordinary user who maps himself to root has root's rules for set-id calls inside.
    #[test]
    fn a_namespace_that_would_be_too_deep_is_enospc_even_in_a_changed_root() {
        let below = |cred: &Cred| {
            let new = cred.unshare_user(false).unwrap();
            let all = [IdExtent { first: 0, lower: 0, count: 1 }];
            new.user_ns().set_uid_map(&all).unwrap();
            new.user_ns().set_gid_map(&all).unwrap();
            new
        };
        let deep = (0..32).fold(Cred::root(), |cred, _| below(&cred));
        assert_eq!(deep.unshare_user(true).unwrap_err(), Errno::EPERM);
        assert_eq!(below(&deep).unshare_user(true).unwrap_err(), Errno::ENOSPC);
    }

    #[test]
    fn a_credential_has_at_most_65536_groups() {
        let with =
            |count| Cred::root().to_builder().groups(&vec![7; count]).build().map(|cred| cred.groups().len());
        assert_eq!([with(65_536), with(65_537)], [Ok(65_536), Err(Errno::EINVAL)]);
    }

    #[test]
    fn root_of_a_namespace_is_its_id_zero() {
        let inside = Cred::user(1000, 1000, &[]).unshare_user(false).unwrap();
        assert_eq!(inside.setuid(0).unwrap_err(), Errno::EINVAL, "nothing is mapped");
        let map =
            [IdExtent { first: 0, lower: 1000, count: 1 }, IdExtent { first: 1, lower: 100_000, count: 10 }];
        inside.user_ns().set_uid_map(&map).unwrap();
        let dropped = inside.setuid(5).unwrap();
        assert_eq!((dropped.uid(), dropped.permitted()), (100_004, CapSet::EMPTY));
        assert_eq!(inside.setuid(11).unwrap_err(), Errno::EINVAL);
    }

    #[test]
    fn builder_refuses_what_cannot_exist() {
        let chown = CapSet::of(&[CAP_CHOWN]);
        let bad = [
            Cred::builder().uids(0, KEEP, 0, 0),
            Cred::builder().gids(0, 0, 0, KEEP),
            Cred::builder().groups(&[1, KEEP]),
            Cred::builder().groups(&vec![1; NGROUPS_MAX + 1]),
            Cred::builder().effective(chown),
            Cred::builder().permitted(chown).ambient(chown),
            Cred::builder().permitted(CapSet(1 << 41)),
            Cred::builder().securebits(1 << 12),
        ];
        for builder in bad {
            assert_eq!(builder.build().unwrap_err(), Errno::EINVAL);
        }
        let rebuilt = Cred::root().to_builder().build().unwrap();
        assert!(same_fields(&rebuilt, &Cred::root()));
    }
}
