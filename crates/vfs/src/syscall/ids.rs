//! Calls on the credential and on limits.

use super::{Answer, Call, done};
use crate::base::errno::{Errno, Result};
use crate::base::uapi::NGROUPS_MAX;
use crate::cred::CapSet;
use crate::task::TASK_COMM_LEN;
use crate::task::fork::Rlimit;
use crate::task::process::CapData;

/// `_LINUX_CAPABILITY_VERSION_1`: sets of 32 bits.
const CAPABILITY_VERSION_1: u32 = 0x1998_0330;
/// `_LINUX_CAPABILITY_VERSION_2`: sets of 64 bits; what the number 3 means as well.
const CAPABILITY_VERSION_2: u32 = 0x2007_1026;
/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// Ids.
impl Call<'_> {
    pub(super) fn getpid(&mut self) -> Answer {
        Ok(i64::from(self.task.ids.tgid))
    }

    pub(super) fn gettid(&mut self) -> Answer {
        Ok(i64::from(self.task.ids.tid))
    }

    pub(super) fn getppid(&mut self) -> Answer {
        Ok(i64::from(self.task.ids.ppid))
    }

    pub(super) fn getuid(&mut self) -> Answer {
        Ok(i64::from(self.task.getuid()))
    }

    pub(super) fn geteuid(&mut self) -> Answer {
        Ok(i64::from(self.task.geteuid()))
    }

    pub(super) fn getgid(&mut self) -> Answer {
        Ok(i64::from(self.task.getgid()))
    }

    pub(super) fn getegid(&mut self) -> Answer {
        Ok(i64::from(self.task.getegid()))
    }

    pub(super) fn getresuid(&mut self) -> Answer {
        let ids = self.task.getresuid();
        self.put_ids(ids)
    }

    pub(super) fn getresgid(&mut self) -> Answer {
        let ids = self.task.getresgid();
        self.put_ids(ids)
    }

    fn put_ids(&mut self, ids: [u32; 3]) -> Answer {
        for (i, id) in ids.into_iter().enumerate() {
            self.put(i, &id.to_ne_bytes())?;
        }
        Ok(0)
    }

    pub(super) fn setuid(&mut self) -> Answer {
        done(self.task.setuid(self.uint(0)))
    }

    pub(super) fn setgid(&mut self) -> Answer {
        done(self.task.setgid(self.uint(0)))
    }

    pub(super) fn setreuid(&mut self) -> Answer {
        done(self.task.setreuid(self.uint(0), self.uint(1)))
    }

    pub(super) fn setregid(&mut self) -> Answer {
        done(self.task.setregid(self.uint(0), self.uint(1)))
    }

    pub(super) fn setresuid(&mut self) -> Answer {
        done(self.task.setresuid(self.uint(0), self.uint(1), self.uint(2)))
    }

    pub(super) fn setresgid(&mut self) -> Answer {
        done(self.task.setresgid(self.uint(0), self.uint(1), self.uint(2)))
    }

    pub(super) fn setfsuid(&mut self) -> Answer {
        Ok(i64::from(self.task.setfsuid(self.uint(0))))
    }

    pub(super) fn setfsgid(&mut self) -> Answer {
        Ok(i64::from(self.task.setfsgid(self.uint(0))))
    }

    /// Kernel: kernel/groups.c `getgroups()`.
    pub(super) fn getgroups(&mut self) -> Answer {
        let room = usize::try_from(self.int(0)).map_err(|_| Errno::EINVAL)?;
        let groups = self.task.getgroups();
        if room == 0 {
            return Ok(groups.len() as i64);
        }
        if groups.len() > room {
            return Err(Errno::EINVAL);
        }
        let bytes: Vec<u8> = groups.iter().flat_map(|gid| gid.to_ne_bytes()).collect();
        self.mem.copy_to_user(self.args[1], &bytes)?;
        Ok(groups.len() as i64)
    }

    /// Kernel: kernel/groups.c `setgroups()`.
    pub(super) fn setgroups(&mut self) -> Answer {
        // Who may not is told so before anything else is looked at.
        self.task.cred().setgroups(&[])?;
        let count = self.uint(0) as usize;
        if count > NGROUPS_MAX {
            return Err(Errno::EINVAL);
        }
        let mut bytes = vec![0; count * 4];
        self.mem.copy_from_user(&mut bytes, self.args[1])?;
        let (words, _) = bytes.as_chunks::<4>();
        let groups: Vec<u32> = words.iter().map(|&word| u32::from_ne_bytes(word)).collect();
        done(self.task.setgroups(&groups))
    }
}

/// Capabilities.
impl Call<'_> {
    /// How many 32-bit words each set of this version has. An unknown version is answered with the one there is.
    ///
    /// Kernel: kernel/capability.c `cap_validate_magic()`.
    fn cap_words(&mut self) -> Result<(usize, i32)> {
        let header: [u8; 8] = self.get(self.args[0])?;
        let ([version, pid], _) = header.as_chunks::<4>() else { return Err(Errno::EFAULT) };
        let pid = i32::from_ne_bytes(*pid);
        match u32::from_ne_bytes(*version) {
            CAPABILITY_VERSION_1 => Ok((1, pid)),
            CAPABILITY_VERSION_2 | CAPABILITY_VERSION_3 => Ok((2, pid)),
            _ => {
                self.mem.copy_to_user(self.args[0], &CAPABILITY_VERSION_3.to_ne_bytes())?;
                Err(Errno::EINVAL)
            }
        }
    }

    /// Whether a process id means the calling task.
    fn is_self(&self, pid: i32) -> bool {
        pid == 0 || pid == self.task.ids.tid
    }

    pub(super) fn capget(&mut self) -> Answer {
        let asked = self.cap_words();
        if self.args[1] == 0 {
            // Only the version was asked for.
            return match asked {
                Ok(_) | Err(Errno::EINVAL) => Ok(0),
                Err(errno) => Err(errno),
            };
        }
        let (words, pid) = asked?;
        if pid < 0 {
            return Err(Errno::EINVAL);
        }
        if !self.is_self(pid) {
            return Err(Errno::ESRCH);
        }
        let CapData { effective, permitted, inheritable } = self.task.capget();
        let mut bytes = Vec::with_capacity(24);
        for word in 0..words {
            for set in [effective, permitted, inheritable] {
                bytes.extend_from_slice(&((set.0 >> (32 * word)) as u32).to_ne_bytes());
            }
        }
        self.put(1, &bytes)
    }

    pub(super) fn capset(&mut self) -> Answer {
        let (words, pid) = self.cap_words()?;
        if !self.is_self(pid) {
            return Err(Errno::EPERM);
        }
        let mut bytes = [0; 24];
        self.mem.copy_from_user(&mut bytes[..12 * words], self.args[1])?;
        let (halves, _) = bytes.as_chunks::<4>();
        let half = |i: usize| u64::from(u32::from_ne_bytes(halves[i]));
        let set = |i: usize| CapSet(half(i) | half(i + 3) << 32);
        done(self.task.capset(CapData { effective: set(0), permitted: set(1), inheritable: set(2) }))
    }

    /// Kernel: kernel/sys.c `prctl()`, security/commoncap.c `cap_task_prctl()`.
    pub(super) fn prctl(&mut self) -> Answer {
        const PR_GET_DUMPABLE: i32 = 3;
        const PR_SET_DUMPABLE: i32 = 4;
        const PR_GET_KEEPCAPS: i32 = 7;
        const PR_SET_KEEPCAPS: i32 = 8;
        const PR_SET_NAME: i32 = 15;
        const PR_GET_NAME: i32 = 16;
        const PR_CAPBSET_READ: i32 = 23;
        const PR_CAPBSET_DROP: i32 = 24;
        const PR_GET_SECUREBITS: i32 = 27;
        const PR_SET_SECUREBITS: i32 = 28;
        const PR_SET_NO_NEW_PRIVS: i32 = 38;
        const PR_GET_NO_NEW_PRIVS: i32 = 39;
        const PR_CAP_AMBIENT: i32 = 47;
        // What does not fit into 32 bits is as unknown as what does, and has no meaning.
        let word = u32::try_from(self.args[1]).unwrap_or(u32::MAX);
        let rest = |from: usize| self.args[from..5].iter().any(|&arg| arg != 0);
        match self.int(0) {
            PR_GET_DUMPABLE => Ok(i64::from(self.task.dumpable())),
            PR_SET_DUMPABLE if word > 1 => Err(Errno::EINVAL),
            PR_SET_DUMPABLE => {
                self.task.set_dumpable(word == 1);
                Ok(0)
            }
            PR_SET_NAME => self.set_name(),
            PR_GET_NAME => self.put(1, &{ self.task.comm }),
            PR_GET_KEEPCAPS => Ok(i64::from(self.task.get_keepcaps())),
            PR_SET_KEEPCAPS if word > 1 => Err(Errno::EINVAL),
            PR_SET_KEEPCAPS => done(self.task.set_keepcaps(word == 1)),
            PR_CAPBSET_READ => self.task.capbset_read(word).map(i64::from),
            PR_CAPBSET_DROP => done(self.task.capbset_drop(word)),
            PR_GET_SECUREBITS => Ok(i64::from(self.task.get_securebits())),
            PR_SET_SECUREBITS => done(self.task.set_securebits(word)),
            PR_SET_NO_NEW_PRIVS if word != 1 || rest(2) => Err(Errno::EINVAL),
            PR_SET_NO_NEW_PRIVS => {
                self.task.set_no_new_privs();
                Ok(0)
            }
            PR_GET_NO_NEW_PRIVS if rest(1) => Err(Errno::EINVAL),
            PR_GET_NO_NEW_PRIVS => Ok(i64::from(self.task.no_new_privs())),
            PR_CAP_AMBIENT => self.ambient(word),
            _ => Err(Errno::EINVAL),
        }
    }

    fn set_name(&mut self) -> Answer {
        let mut name = [0; TASK_COMM_LEN - 1];
        let len = self.mem.strncpy_from_user(&mut name, self.args[1])?;
        self.task.set_name(&name[..len]);
        Ok(0)
    }

    fn ambient(&mut self, operation: u32) -> Answer {
        const IS_SET: u32 = 1;
        const RAISE: u32 = 2;
        const LOWER: u32 = 3;
        const CLEAR_ALL: u32 = 4;
        let first_unused = if operation == CLEAR_ALL { 2 } else { 3 };
        if self.args[first_unused..5].iter().any(|&arg| arg != 0) {
            return Err(Errno::EINVAL);
        }
        let cap = u32::try_from(self.args[2]).unwrap_or(u32::MAX);
        match operation {
            IS_SET => self.task.cap_ambient_is_set(cap).map(i64::from),
            RAISE => done(self.task.cap_ambient_raise(cap)),
            LOWER => done(self.task.cap_ambient_lower(cap)),
            CLEAR_ALL => {
                self.task.cap_ambient_clear_all();
                Ok(0)
            }
            _ => Err(Errno::EINVAL),
        }
    }
}

/// Limits.
impl Call<'_> {
    pub(super) fn getrlimit(&mut self) -> Answer {
        let limit = self.task.getrlimit(self.uint(0))?;
        self.put_limit(1, limit)
    }

    pub(super) fn setrlimit(&mut self) -> Answer {
        let [cur, max] = self.words(self.args[1])?;
        done(self.task.setrlimit(self.uint(0), Rlimit { cur, max }))
    }

    /// Kernel: kernel/sys.c `prlimit64()`.
    pub(super) fn prlimit64(&mut self) -> Answer {
        let new = match self.args[2] {
            0 => None,
            address => Some(self.words(address)?),
        };
        if !self.is_self(self.int(0)) {
            return Err(Errno::ESRCH);
        }
        let old = self.task.getrlimit(self.uint(1))?;
        if let Some([cur, max]) = new {
            self.task.setrlimit(self.uint(1), Rlimit { cur, max })?;
        }
        if self.args[3] == 0 { Ok(0) } else { self.put_limit(3, old) }
    }

    fn put_limit(&mut self, i: usize, limit: Rlimit) -> Answer {
        self.put(i, [limit.cur, limit.max].map(u64::to_ne_bytes).as_flattened())
    }
}
