//! Identities that calls are made with.
//!
//! On Linux every thread has a credential of its own; only the C library makes the `set*id` calls look as if they
//! belonged to the process. The raw calls therefore turn one thread into another user while the rest of the program
//! stays who it was, and the kernel judges what that thread asks exactly as it would judge a process with those ids.

use rcuwalk::cred::{CapSet, Cred};
use rcuwalk_host::Identity;
use rustix::process::{geteuid, getuid};
use rustix::thread::{Gid, Uid, capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::error::Error;

/// Capabilities of a thread, one bit each as in `/proc/PID/status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caps {
    /// The effective set.
    pub effective: u64,
    /// The permitted set.
    pub permitted: u64,
}

/// The calling thread.
///
/// # Errors
///
/// What [`Identity::caller`] answers.
pub fn caller() -> Result<Identity, Error> {
    Identity::caller().map_err(|e| Error::host("asking who I am", "getgroups", e, ""))
}

/// True if the calling process may take on any identity.
pub fn can_switch() -> bool {
    getuid().is_root() && geteuid().is_root()
}

/// Turns the calling thread, and no other, into one with these ids, and tells which capabilities are left.
///
/// There is no way back for a thread that gave up uid 0: spawn one for the purpose. A thread that already has the
/// ids is left alone, so that this works without privilege for the caller's own.
///
/// # Errors
///
/// EPERM without the privilege, EINVAL for ids that the user namespace does not map.
pub fn assume(who: &Identity) -> Result<Caps, Error> {
    const HINT: &str = "run as root, or accept that only the caller's own identity is compared";
    let failed = |e: rustix::io::Errno| Error::host("taking on the identity", who.to_string(), e, HINT);
    let me = caller()?;
    if (me.uid, me.gid, &me.groups) != (who.uid, who.gid, &who.groups) || getuid() != geteuid() {
        let groups: Vec<Gid> = who.groups.iter().map(|&g| Gid::from_raw(g)).collect();
        set_thread_groups(&groups).map_err(failed)?;
        let (uid, gid) = (Uid::from_raw(who.uid), Gid::from_raw(who.gid));
        set_thread_res_gid(gid, gid, gid).map_err(failed)?;
        set_thread_res_uid(uid, uid, uid).map_err(failed)?;
    }
    let sets = capabilities(None).map_err(failed)?;
    Ok(Caps { effective: sets.effective.bits(), permitted: sets.permitted.bits() })
}

/// The credential of a thread with these ids and capabilities.
///
/// # Errors
///
/// `EINVAL` for ids that no thread can have.
pub fn cred(who: &Identity, caps: Caps) -> rcuwalk::errno::Result<Cred> {
    let known = |bits| CapSet(bits) & CapSet::FULL;
    Cred::builder()
        .uids(who.uid, who.uid, who.uid, who.uid)
        .gids(who.gid, who.gid, who.gid, who.gid)
        .groups(&who.groups)
        .permitted(known(caps.permitted))
        .effective(known(caps.effective))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_changes_and_the_others_do_not() {
        let before = caller().unwrap();
        let target = if can_switch() { Identity::new(1000, 1001, &[7, 5, 7]) } else { before.clone() };
        let (seen, caps) = std::thread::spawn({
            let target = target.clone();
            move || {
                let caps = assume(&target).unwrap();
                (caller().unwrap(), caps)
            }
        })
        .join()
        .unwrap();
        assert_eq!(seen, target);
        assert_eq!(caller().unwrap(), before);
        if can_switch() {
            assert_eq!(caps, Caps::default(), "uid 0 given up, capabilities with it");
            assert_eq!(target.to_string(), "1000:1001,5,7");
        }
    }
}
