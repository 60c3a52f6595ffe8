//! The calls by which a process changes who it is.
//!
//! Kernel: kernel/sys.c, kernel/groups.c, kernel/capability.c, security/commoncap.c `cap_task_prctl()`. What a new
//! credential looks like is decided in [`crate::cred`]; here it is committed. Each committed change is a new object, which
//! shows where the kernel compares credentials by identity: `linkat` with `AT_EMPTY_PATH` wants the very one that opened
//! the descriptor. So a `setuid` to the id the task already has makes a difference, and a `setresuid` that changes nothing
//! does not.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::{CAP_LAST_CAP, SECBIT_KEEP_CAPS};
use crate::cred::{CapSet, Cred};
use crate::task::{TASK_COMM_LEN, Task};

/// The three capability sets of capget(2) and capset(2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CapData {
    /// Those that checks look at.
    pub effective: CapSet,
    /// Those that may be made effective.
    pub permitted: CapSet,
    /// Those that may pass through execve, if the file agrees.
    pub inheritable: CapSet,
}

/// Declares the calls that answer with one id, as the task's user namespace numbers it (65534 if it does not).
macro_rules! id_getters {
    ($($name:ident: $field:ident, $number:ident, $doc:literal;)*) => {
        $(#[doc = concat!($doc, " 65534 if the task's user namespace has no number for it.")]
        pub fn $name(&self) -> u32 {
            self.cred.user_ns().$number(self.cred.$field())
        })*
    };
}

/// Declares calls that replace the credential with what the function of the same name in [`Cred`] makes of it.
macro_rules! transitions {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*);)*) => {
        $($(#[$doc])*
        pub fn $name(&mut self, $($arg: $ty),*) -> Result<()> {
            let new = self.cred.$name($($arg),*)?;
            self.change_user(new);
            Ok(())
        })*
    };
}

/// Ids.
impl Task {
    id_getters! {
        getuid: uid, from_kuid_munged, "The real user id.";
        geteuid: euid, from_kuid_munged, "The effective user id.";
        getgid: gid, from_kgid_munged, "The real group id.";
        getegid: egid, from_kgid_munged, "The effective group id.";
    }

    /// Real, effective and saved user id; 65534 for one that the task's user namespace has no number for.
    pub fn getresuid(&self) -> [u32; 3] {
        [self.cred.uid(), self.cred.euid(), self.cred.suid()]
            .map(|id| self.cred.user_ns().from_kuid_munged(id))
    }

    /// Real, effective and saved group id; 65534 for one that the task's user namespace has no number for.
    pub fn getresgid(&self) -> [u32; 3] {
        [self.cred.gid(), self.cred.egid(), self.cred.sgid()]
            .map(|id| self.cred.user_ns().from_kgid_munged(id))
    }

    /// The supplementary groups, in ascending order of their kernel ids.
    pub fn getgroups(&self) -> Vec<u32> {
        self.cred.groups().iter().map(|&gid| self.cred.user_ns().from_kgid_munged(gid)).collect()
    }

    transitions! {
        /// With `CAP_SETUID` sets all four user ids, otherwise effective and filesystem id. Leaving user id 0 takes the
        /// capabilities along, as the securebits say.
        ///
        /// # Errors
        ///
        /// `EINVAL` (an id without a mapping, `u32::MAX` included), `EPERM` (neither privileged nor the real or saved id).
        ///
        /// ```
        /// # use rcuwalk::{Cred, Errno, Vfs};
        /// # let vfs = Vfs::new()?;
        /// let mut task = vfs.task(Cred::root());
        /// task.mkdir(b"/mine", 0o700)?;
        /// task.setuid(1000)?;
        /// assert_eq!(task.stat(b"/mine/x"), Err(Errno::EACCES));
        /// assert_eq!(task.setuid(0), Err(Errno::EPERM));
        /// # Ok::<(), Errno>(())
        /// ```
        setuid(uid: u32);

        /// Sets real and effective user id; `u32::MAX` keeps one. The saved id follows the effective one if the real id was
        /// given, or the effective one became another than the old real id. The filesystem id follows the effective one.
        ///
        /// # Errors
        ///
        /// `EINVAL` (an id without a mapping), `EPERM`.
        setreuid(ruid: u32, euid: u32);

        /// With `CAP_SETGID` sets all four group ids, otherwise effective and filesystem id. Changes no capability.
        ///
        /// # Errors
        ///
        /// `EINVAL` (an id without a mapping, `u32::MAX` included), `EPERM`.
        setgid(gid: u32);

        /// [`setreuid`](Self::setreuid) for groups.
        ///
        /// # Errors
        ///
        /// `EINVAL` (an id without a mapping), `EPERM`.
        setregid(rgid: u32, egid: u32);

    }

    /// Replaces the supplementary groups.
    ///
    /// # Errors
    ///
    /// `EPERM` (no `CAP_SETGID`; a user namespace that does not allow it), `EINVAL` (more than 65,536; a group without
    /// a mapping), `ENOMEM`.
    pub fn setgroups(&mut self, groups: &[u32]) -> Result<()> {
        let mut new = self.cred.setgroups(groups)?;
        new.count_groups(self.kernel.charge(size_of_val(groups) as u64)?);
        self.set_cred(new);
        Ok(())
    }

    /// Sets real, effective and saved user id; `u32::MAX` keeps one. The filesystem id follows the effective one, unless
    /// nothing at all would change: then not even the credential's identity does.
    ///
    /// # Errors
    ///
    /// `EINVAL` (an id without a mapping), `EPERM` (unprivileged, and none of the three ids there are).
    pub fn setresuid(&mut self, ruid: u32, euid: u32, suid: u32) -> Result<()> {
        let new = self.cred.setresuid(ruid, euid, suid)?;
        self.commit(new);
        Ok(())
    }

    /// [`setresuid`](Self::setresuid) for groups.
    ///
    /// # Errors
    ///
    /// `EINVAL` (an id without a mapping), `EPERM`.
    pub fn setresgid(&mut self, rgid: u32, egid: u32, sgid: u32) -> Result<()> {
        let new = self.cred.setresgid(rgid, egid, sgid)?;
        self.commit(new);
        Ok(())
    }

    /// Sets the filesystem user id, if the task may, and gives the previous one either way: ask again to know.
    pub fn setfsuid(&mut self, uid: u32) -> u32 {
        let (previous, new) = self.cred.setfsuid(uid);
        self.commit(new);
        previous
    }

    /// [`setfsuid`](Self::setfsuid) for the filesystem group id.
    pub fn setfsgid(&mut self, gid: u32) -> u32 {
        let (previous, new) = self.cred.setfsgid(gid);
        self.commit(new);
        previous
    }

    /// Commits a credential, if the change made one.
    fn commit(&mut self, new: Option<Cred>) {
        if let Some(cred) = new {
            self.change_user(cred);
        }
    }
}

/// Capabilities and what else prctl(2) says of privileges.
impl Task {
    /// The effective, permitted and inheritable capabilities.
    pub fn capget(&self) -> CapData {
        CapData {
            effective: self.cred.effective(),
            permitted: self.cred.permitted(),
            inheritable: self.cred.inheritable(),
        }
    }

    /// Replaces the effective, permitted and inheritable capabilities of the task itself. Unknown bits are ignored; ambient
    /// capabilities that are no longer both permitted and inheritable are lost.
    ///
    /// # Errors
    ///
    /// `EPERM`: permitted would grow; effective is not within permitted; inheritable would gain what is not in the bounding
    /// set, or without `CAP_SETPCAP` a capability outside of the permitted set.
    pub fn capset(&mut self, sets: CapData) -> Result<()> {
        let new = self.cred.capset(sets.effective, sets.permitted, sets.inheritable)?;
        self.set_cred(new);
        Ok(())
    }

    transitions! {
        /// `PR_SET_SECUREBITS`.
        ///
        /// # Errors
        ///
        /// `EPERM`: no `CAP_SETPCAP` (needed for all but the `SECBIT_EXEC_*` bits), a locked or an unknown bit.
        set_securebits(bits: u32);

        /// `PR_SET_KEEPCAPS`: whether permitted capabilities survive leaving user id 0. execve resets it.
        ///
        /// # Errors
        ///
        /// `EPERM` if `SECBIT_KEEP_CAPS_LOCKED` is set.
        set_keepcaps(keep: bool);

        /// `PR_CAPBSET_DROP`: takes a capability out of the bounding set, for good.
        ///
        /// # Errors
        ///
        /// `EPERM` (no `CAP_SETPCAP`), `EINVAL` (no such capability).
        capbset_drop(cap: u32);
    }

    /// `PR_GET_SECUREBITS`.
    pub fn get_securebits(&self) -> u32 {
        self.cred.securebits()
    }

    /// `PR_GET_KEEPCAPS`.
    pub fn get_keepcaps(&self) -> bool {
        self.cred.securebits() & SECBIT_KEEP_CAPS != 0
    }

    /// `PR_CAPBSET_READ`: is the capability in the bounding set?
    ///
    /// # Errors
    ///
    /// `EINVAL` (no such capability).
    pub fn capbset_read(&self, cap: u32) -> Result<bool> {
        contains(self.cred.bounding(), cap)
    }

    /// `PR_CAP_AMBIENT_RAISE`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (no such capability), `EPERM` (not both permitted and inheritable; `SECBIT_NO_CAP_AMBIENT_RAISE`).
    pub fn cap_ambient_raise(&mut self, cap: u32) -> Result<()> {
        let new = self.cred.ambient_raise(cap)?;
        self.set_cred(new);
        Ok(())
    }

    /// `PR_CAP_AMBIENT_LOWER`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (no such capability).
    pub fn cap_ambient_lower(&mut self, cap: u32) -> Result<()> {
        let new = self.cred.ambient_lower(cap)?;
        self.set_cred(new);
        Ok(())
    }

    /// `PR_CAP_AMBIENT_IS_SET`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (no such capability).
    pub fn cap_ambient_is_set(&self, cap: u32) -> Result<bool> {
        contains(self.cred.ambient(), cap)
    }

    /// `PR_CAP_AMBIENT_CLEAR_ALL`.
    pub fn cap_ambient_clear_all(&mut self) {
        let new = self.cred.ambient_clear_all();
        self.set_cred(new);
    }

    /// `PR_GET_DUMPABLE`: whether others of the same user may look into the process. Its threads share it, its children start with
    /// it; execve sets it, and so does a change of the credential, which takes it away.
    pub fn dumpable(&self) -> bool {
        self.process.dumpable.get() != 0
    }

    /// `PR_SET_DUMPABLE`. Nothing in the engine asks for it; programs do.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Errno, Vfs};
    /// # let vfs = Vfs::new()?;
    /// let mut task = vfs.task(Cred::root());
    /// task.setresuid(u32::MAX, 1000, u32::MAX)?;
    /// assert!(!task.dumpable());
    /// task.set_dumpable(true);
    /// assert!(task.fork().dumpable());
    /// # Ok::<(), Errno>(())
    /// ```
    ///
    /// Kernel: kernel/sys.c `prctl()`.
    pub fn set_dumpable(&self, dumpable: bool) {
        self.process.dumpable.set(u32::from(dumpable));
    }

    /// `PR_GET_NAME`: the name of the task, which execve sets to that of the program; empty if it has executed none.
    pub fn name(&self) -> &[u8] {
        until_nul(&self.comm)
    }

    /// `PR_SET_NAME`: names the task, by as much of `name` as lies before a NUL, at most 15 bytes.
    ///
    /// ```
    /// # use rcuwalk::{Cred, Errno, Vfs};
    /// # let vfs = Vfs::new()?;
    /// let mut task = vfs.task(Cred::root());
    /// task.set_name(b"a-very-long-name");
    /// assert_eq!(task.name(), b"a-very-long-nam");
    /// # Ok::<(), Errno>(())
    /// ```
    ///
    /// Kernel: fs/exec.c `__set_task_comm()`.
    pub fn set_name(&mut self, name: &[u8]) {
        let name = until_nul(name);
        let len = name.len().min(TASK_COMM_LEN - 1);
        self.comm = [0; TASK_COMM_LEN];
        self.comm[..len].copy_from_slice(&name[..len]);
    }

    /// `PR_SET_NO_NEW_PRIVS`: from now on nothing that this task or a child of it executes gains privileges by it. There is
    /// no way back.
    pub fn set_no_new_privs(&mut self) {
        self.no_new_privs = true;
    }

    /// `PR_GET_NO_NEW_PRIVS`.
    pub fn no_new_privs(&self) -> bool {
        self.no_new_privs
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Membership as prctl(2) answers it.
fn contains(set: CapSet, cap: u32) -> Result<bool> {
    if cap > CAP_LAST_CAP { Err(Errno::EINVAL) } else { Ok(set.contains(cap)) }
}
