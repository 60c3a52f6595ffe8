//! How a credential becomes another one: set*id and groups, capabilities and securebits, user namespaces.
//!
//! The transitions (`setuid` and so on) take the ids that a task of this credential would pass, in its own namespace.
//! They return the credential to commit; `None` says that the call succeeded without committing one, which shows in the
//! identity of the object (linkat with `AT_EMPTY_PATH`) and nowhere else.
//!
//! Kernel: kernel/sys.c, kernel/groups.c, kernel/capability.c, security/commoncap.c.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::{
    CAP_LAST_CAP, CAP_SETFCAP, CAP_SETGID, CAP_SETPCAP, CAP_SETUID, CAP_SYS_ADMIN, INVALID_ID, NGROUPS_MAX,
    SECBIT_EXEC_DENY_INTERACTIVE, SECBIT_EXEC_RESTRICT_FILE, SECBIT_KEEP_CAPS, SECBIT_KEEP_CAPS_LOCKED,
    SECBIT_NO_CAP_AMBIENT_RAISE, SECBIT_NO_SETUID_FIXUP, SECBIT_NOROOT,
};
use crate::cred::userns::UserNamespace;
use crate::cred::{CapSet, Cred, Fields};
use std::sync::Arc;

/// In place of an id: leave it as it is (`(uid_t)-1`).
pub(super) const KEEP: u32 = u32::MAX;

/// The securebits that have a lock bit above them.
pub(super) const SECURE_ALL_BITS: u32 = SECBIT_NOROOT
    | SECBIT_NO_SETUID_FIXUP
    | SECBIT_KEEP_CAPS
    | SECBIT_NO_CAP_AMBIENT_RAISE
    | SECBIT_EXEC_RESTRICT_FILE
    | SECBIT_EXEC_DENY_INTERACTIVE;
pub(super) const SECURE_ALL_LOCKS: u32 = SECURE_ALL_BITS << 1;
/// The bits that restrict user space only, with their locks: changing them needs no capability.
const SECURE_ALL_UNPRIVILEGED: u32 = (SECBIT_EXEC_RESTRICT_FILE | SECBIT_EXEC_DENY_INTERACTIVE) * 3;

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
                // Only one of both is root: setfsuid(2) to the same id commits nothing.
                Fixup::Filesystem if old.fsuid == root => {
                    new.effective = new.effective - CapSet::FS;
                }
                Fixup::Filesystem if new.fsuid == root => {
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
        new.groups_charge = None;
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
    /// without `CAP_SETPCAP`, a capability outside of the permitted set.
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
