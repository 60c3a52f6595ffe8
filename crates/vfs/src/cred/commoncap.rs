//! The credential of a new program.
//!
//! Kernel: security/commoncap.c. Functions of values; [`crate::exec`] finds out what they need of the file.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::{CAP_SETUID, SECBIT_KEEP_CAPS, SECBIT_NOROOT};
use crate::cred::userns::{IdView, UserNamespace};
use crate::cred::{CapSet, Cred};

/// Bytes of `security.capability` by revision, and the largest.
const SIZE_REVISION_1: usize = 12;
const SIZE_REVISION_2: usize = 20;
const SIZE_REVISION_3: usize = 24;

/// The bit that makes a program's permitted capabilities effective from the start.
const FLAG_EFFECTIVE: u32 = 1;

/// The capabilities of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileCaps {
    permitted: CapSet,
    inheritable: CapSet,
    effective: bool,
    /// The user they are for: root of the namespace in which they were given. A kernel id, `INVALID_ID` if the mount has
    /// none for him.
    rootid: u32,
}

impl FileCaps {
    /// Reads the attribute `security.capability`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (size, revision), `ERANGE` (too long for any revision).
    ///
    /// Kernel: `get_vfs_caps_from_disk()`.
    pub(crate) fn parse(value: &[u8], view: &IdView<'_>) -> Result<FileCaps> {
        if value.len() > SIZE_REVISION_3 {
            return Err(Errno::ERANGE);
        }
        // 0 beyond the end: the first revision has no upper halves.
        let word = |i: usize| {
            value
                .get(4 * i..4 * i + 4)
                .map_or(0, |word| word.iter().rev().fold(0, |all, &byte| all << 8 | u32::from(byte)))
        };
        let rootid = match (word(0) >> 24, value.len()) {
            (1, SIZE_REVISION_1) | (2, SIZE_REVISION_2) => 0,
            (3, SIZE_REVISION_3) => word(5),
            _ => return Err(Errno::EINVAL),
        };
        let rootid = view.make_vfsuid(view.sb_ns.make_kuid(rootid));
        let set = |low: usize| CapSet(u64::from(word(low)) | u64::from(word(low + 2)) << 32) & CapSet::FULL;
        let effective = word(0) & FLAG_EFFECTIVE != 0;
        Ok(FileCaps { permitted: set(1), inheritable: set(2), effective, rootid })
    }

    /// Whether they count in this namespace: for its root, or that of one around it. Kernel: `rootid_owns_currentns()`.
    pub(crate) fn count_in(&self, ns: &UserNamespace) -> bool {
        let mut at = Some(ns);
        while let Some(ns) = at {
            if ns.from_kuid(self.rootid) == 0 {
                return true;
            }
            at = ns.parent().map(|parent| &**parent);
        }
        false
    }
}

/// What the file of a new program gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Gives {
    /// The owner, if set-user-id counts.
    pub(crate) uid: Option<u32>,
    /// The group, if set-group-id counts.
    pub(crate) gid: Option<u32>,
    /// The capabilities, if they count.
    pub(crate) caps: Option<FileCaps>,
}

/// What forbids that a program gives privileges. Kernel: `LSM_UNSAFE_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Unsafe {
    /// `PR_SET_NO_NEW_PRIVS`.
    pub(crate) no_new_privs: bool,
    /// Another process could change root and current directory under the program.
    pub(crate) shared: bool,
}

/// A credential to be committed by execve.
#[derive(Debug)]
pub(crate) struct ExecCred {
    pub(crate) cred: Cred,
    /// The program runs with more than who started it has: `AT_SECURE`.
    pub(crate) secureexec: bool,
}

/// Capabilities of the new program while they are being worked out.
struct Caps {
    permitted: CapSet,
    /// All that is permitted shall be effective.
    effective: bool,
}

/// The credential with which a task of credential `old` runs a program.
///
/// # Errors
///
/// `EPERM`: the file insists on capabilities that the bounding set denies.
///
/// Kernel: security/commoncap.c `cap_bprm_creds_from_file()`, with the set-id bits of fs/exec.c `bprm_fill_uid()`.
/// Differs: nobody traces.
pub(crate) fn bprm_creds(old: &Cred, gives: &Gives, how: Unsafe) -> Result<ExecCred> {
    let root = old.user_ns().make_kuid(0);
    let (mut euid, mut egid) = (gives.uid.unwrap_or(old.euid()), gives.gid.unwrap_or(old.egid()));
    let mut caps = file_caps(old, gives.caps.as_ref())?;
    privileged_root(old, euid, root, gives.caps.is_some(), &mut caps);

    let id_changed = euid != old.euid() || !old.in_group(egid);
    let more = id_changed || !caps.permitted.is_subset(old.permitted());
    if more && (how.no_new_privs || how.shared) {
        if how.no_new_privs || !old.capable_here(CAP_SETUID) {
            (euid, egid) = (old.uid(), old.gid());
        }
        caps.permitted = caps.permitted & old.permitted();
    }
    let ambient = if gives.caps.is_some() || id_changed { CapSet::EMPTY } else { old.ambient() };
    let permitted = caps.permitted | ambient;
    let effective = if caps.effective { permitted } else { ambient };
    let gained = caps.effective || !permitted.is_subset(ambient);
    let secureexec = id_changed || euid != old.uid() || egid != old.gid() || old.uid() != root && gained;
    let securebits = old.securebits() & !SECBIT_KEEP_CAPS;
    let stays = [old.euid(), old.suid(), old.fsuid()] == [euid; 3]
        && [old.egid(), old.sgid(), old.fsgid()] == [egid; 3]
        && [old.permitted(), old.effective(), old.ambient()] == [permitted, effective, ambient]
        && old.securebits() == securebits;
    if stays {
        // As nearly always; and what the path table knows for the old one, it knows for the program.
        return Ok(ExecCred { cred: old.clone(), secureexec });
    }
    let cred = old
        .to_builder()
        .uids(old.uid(), euid, euid, euid)
        .gids(old.gid(), egid, egid, egid)
        .permitted(permitted)
        .effective(effective)
        .ambient(ambient)
        .securebits(securebits)
        .build()?;
    Ok(ExecCred { cred, secureexec })
}

/// Whether a program that gives this changes the ids of `cred`, or gives it rights, as another program would not.
pub(crate) fn gains(cred: &Cred, gives: &Gives) -> bool {
    let run = |gives: &Gives| bprm_creds(cred, gives, Unsafe::default()).map(|new| new.cred);
    let (Ok(with), Ok(without)) = (run(gives), run(&Gives::default())) else { return false };
    with.euid() != without.euid()
        || !cred.in_group(with.egid())
        || !with.permitted().is_subset(without.permitted())
}

/// What the file's own capabilities come to. Kernel: `bprm_caps_from_vfs_caps()`.
fn file_caps(old: &Cred, caps: Option<&FileCaps>) -> Result<Caps> {
    let Some(caps) = caps else { return Ok(Caps { permitted: CapSet::EMPTY, effective: false }) };
    let permitted = old.bounding() & caps.permitted | old.inheritable() & caps.inheritable;
    // A program that gets them effective need not know of capabilities, and could not tell that some are missing.
    if caps.effective && !caps.permitted.is_subset(permitted) {
        return Err(Errno::EPERM);
    }
    Ok(Caps { permitted, effective: caps.effective })
}

/// What root gets for being root. Kernel: `handle_privileged_root()`.
fn privileged_root(old: &Cred, euid: u32, root: u32, has_caps: bool, caps: &mut Caps) {
    let (is_effective, is_real) = (euid == root, old.uid() == root);
    // A program with capabilities of its own gives just those, set-user-id-root or not, unless root runs it.
    if old.securebits() & SECBIT_NOROOT != 0 || has_caps && !is_real {
        return;
    }
    if is_effective || is_real {
        caps.permitted = old.bounding() | old.inheritable();
    }
    if is_effective {
        caps.effective = true;
    }
}

/// Whether a process that changes from one credential to the other may still be looked into by its user, as far as they
/// decide that.
///
/// Kernel: fs/exec.c `begin_new_exec()`, kernel/cred.c `commit_creds()`.
pub(crate) fn stays_dumpable(old: &Cred, new: &Cred) -> bool {
    (old.euid(), old.egid()) == (old.uid(), old.gid()) && keeps_dumpable(old, new)
}

/// Whether a process that changes from one credential to another stays as dumpable as it was.
///
/// Kernel: kernel/cred.c `commit_creds()`, with `fs.suid_dumpable` 0.
pub(crate) fn keeps_dumpable(old: &Cred, new: &Cred) -> bool {
    let ids = |cred: &Cred| [cred.euid(), cred.egid(), cred.fsuid(), cred.fsgid()];
    ids(old) == ids(new) && has_all_of(old, new)
}

/// Whether `old` has the capabilities of `new`, those of an owner over a namespace of its own among them.
///
/// Kernel: kernel/cred.c `cred_cap_issubset()`.
fn has_all_of(old: &Cred, new: &Cred) -> bool {
    if old.user_ns().is(new.user_ns()) {
        return new.permitted().is_subset(old.permitted());
    }
    let mut ns = new.user_ns();
    while let Some(parent) = ns.parent() {
        if parent.is(old.user_ns()) && ns.owner() == old.euid() {
            return true;
        }
        ns = parent;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::uapi::CAP_CHOWN;

    #[test]
    fn a_program_that_changes_nothing_keeps_the_credential() {
        let user = Cred::user(1000, 100, &[5, 6]);
        let one = CapSet::of(&[CAP_CHOWN]);
        let limited = Cred::root().to_builder().permitted(one).effective(one).build().unwrap();
        let saved = user.to_builder().uids(1000, 1000, 0, 1000).build().unwrap();
        let keeping = user.to_builder().securebits(SECBIT_KEEP_CAPS).build().unwrap();
        let nothing = Gives::default();
        let setuid = Gives { uid: Some(7), ..Gives::default() };
        let setgid = Gives { gid: Some(7), ..Gives::default() };
        let own = Gives { uid: Some(1000), gid: Some(100), ..Gives::default() };
        for (old, gives, same) in [
            (&user, &nothing, true),
            (&user, &own, true),
            (&Cred::root(), &nothing, true),
            (&user, &setuid, false),
            (&user, &setgid, false),
            (&limited, &nothing, false),
            (&saved, &nothing, false),
            (&keeping, &nothing, false),
        ] {
            let new = bprm_creds(old, gives, Unsafe::default()).unwrap().cred;
            assert_eq!(new.number() == old.number(), same, "{old:?}: {new:?}");
            assert!(same || format!("{new:?}") != format!("{old:?}"));
        }
    }
}
