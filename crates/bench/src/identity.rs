//! Who asks.
//!
//! On Linux every thread has a credential of its own; only the C library makes the `set*id` calls look as if they
//! belonged to the process. The raw calls therefore turn one thread into another user while the rest of the program
//! stays who it was, and the kernel judges what that thread asks exactly as it would judge a process with those ids.

use std::fmt;

use rustix::process::{getegid, geteuid, getgroups, getuid};
use rustix::thread::{Gid, Uid, capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde::{Serialize, Serializer};

use crate::error::Error;

/// A user, a group and supplementary groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Real, effective, saved and file-system user.
    pub uid: u32,
    /// Real, effective, saved and file-system group.
    pub gid: u32,
    /// Supplementary groups, ascending, each once.
    pub groups: Vec<u32>,
}

/// Capabilities of a thread, one bit each as in `/proc/PID/status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caps {
    /// The effective set.
    pub effective: u64,
    /// The permitted set.
    pub permitted: u64,
}

impl Identity {
    /// An identity from its ids.
    pub fn user(uid: u32, gid: u32, groups: &[u32]) -> Identity {
        let mut groups = groups.to_vec();
        groups.sort_unstable();
        groups.dedup();
        Identity { uid, gid, groups }
    }

    /// The effective ids of the calling thread.
    ///
    /// # Errors
    ///
    /// What `getgroups(2)` answers.
    pub fn caller() -> Result<Identity, Error> {
        let groups = getgroups().map_err(|e| Error::host("asking for my groups", "getgroups", e, ""))?;
        let groups: Vec<u32> = groups.into_iter().map(Gid::as_raw).collect();
        Ok(Identity::user(geteuid().as_raw(), getegid().as_raw(), &groups))
    }

    /// True if the calling process may take on any identity.
    pub fn can_switch() -> bool {
        getuid().is_root() && geteuid().is_root()
    }

    /// Turns the calling thread, and no other, into this identity, and tells which capabilities are left.
    ///
    /// There is no way back for a thread that gave up uid 0: spawn one for the purpose. A thread that already has the
    /// identity is left alone, so that this works without privilege for the caller's own.
    ///
    /// # Errors
    ///
    /// EPERM without the privilege, EINVAL for ids that the user namespace does not map.
    pub fn assume(&self) -> Result<Caps, Error> {
        const HINT: &str = "run as root, or accept that only the caller's own identity is compared";
        let failed = |e: rustix::io::Errno| Error::host("taking on the identity", self.to_string(), e, HINT);
        if Identity::caller()? != *self || getuid() != geteuid() {
            let groups: Vec<Gid> = self.groups.iter().map(|&g| Gid::from_raw(g)).collect();
            set_thread_groups(&groups).map_err(failed)?;
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            set_thread_res_gid(gid, gid, gid).map_err(failed)?;
            set_thread_res_uid(uid, uid, uid).map_err(failed)?;
        }
        let sets = capabilities(None).map_err(failed)?;
        Ok(Caps { effective: sets.effective.bits(), permitted: sets.permitted.bits() })
    }
}

/// `UID:GID`, or `UID:GID,GROUP,GROUP`: the form that `--as` takes.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)?;
        self.groups.iter().try_for_each(|group| write!(f, ",{group}"))
    }
}

impl Serialize for Identity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_changes_and_the_others_do_not() {
        let before = Identity::caller().unwrap();
        let target =
            if Identity::can_switch() { Identity::user(1000, 1001, &[7, 5, 7]) } else { before.clone() };
        let (seen, caps) = std::thread::spawn({
            let target = target.clone();
            move || {
                let caps = target.assume().unwrap();
                (Identity::caller().unwrap(), caps)
            }
        })
        .join()
        .unwrap();
        assert_eq!(seen, target);
        assert_eq!(Identity::caller().unwrap(), before);
        if Identity::can_switch() {
            assert_eq!(caps, Caps::default(), "uid 0 given up, capabilities with it");
            assert_eq!(target.to_string(), "1000:1001,5,7");
        }
    }
}
