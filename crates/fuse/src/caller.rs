//! The callers, and tasks that act as them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rcuwalk::acl::{ACL_GROUP, ACL_USER, XATTR_NAME_POSIX_ACL_ACCESS, XATTR_NAME_POSIX_ACL_DEFAULT};
use rcuwalk::cred::CapSet;
use rcuwalk::syscall::nr;
use rcuwalk::uapi::CAP_FSETID;
use rcuwalk::userns::{IdExtent, UserNamespace};
use rcuwalk::{CloneFlags, Cred, Result, Task};
use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};

use crate::protocol::Header;

/// Threads, and identities, that are remembered at most.
const MOST: usize = 256;

/// An id that no process has.
const NOBODY: u32 = u32::MAX - 1;

/// As whom the engine acts: what of a credential counts for a call on a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    fsuid: u32,
    fsgid: u32,
    groups: Vec<u32>,
    caps: u64,
    /// The id maps of the caller's user namespace, if it is not the server's.
    user_ns: Option<[Vec<IdExtent>; 2]>,
}

impl Identity {
    /// An identity that may do everything, with the ids of the caller, so that the caller owns what it creates.
    pub(crate) fn owner(req: &Header) -> Identity {
        let caps = CapSet::FULL.0;
        let (fsuid, fsgid) = req.ids().unwrap_or((0, 0));
        Identity { fsuid, fsgid, groups: Vec::new(), caps, user_ns: None }
    }

    /// The caller without groups and capabilities.
    pub(crate) fn bare(req: &Header) -> Identity {
        Identity { caps: 0, ..Identity::owner(req) }
    }

    /// The same with every capability, for calls that the kernel has allowed already; `CAP_FSETID`, with which set-id bits
    /// survive a write, only if `fsetid`.
    pub(crate) fn allowed(self, fsetid: bool) -> Identity {
        let fsetid = u64::from(!fsetid) << CAP_FSETID;
        Identity { caps: CapSet::FULL.0 & !fsetid, user_ns: None, ..self }
    }

    /// The value of an attribute that has ids of the server's user namespace in it, with those of theirs.
    pub(crate) fn value<'a>(&self, name: &[u8], value: &'a [u8]) -> Cow<'a, [u8]> {
        if self.user_ns.is_none() || !has_ids(name) {
            return value.into();
        }
        let mut value = value.to_vec();
        let entries = value.get_mut(4..).unwrap_or_default().as_chunks_mut::<8>().0;
        for [tag, _, _, _, id @ ..] in entries {
            let (uid, gid) = self.numbers((u32::from_le_bytes(*id), u32::from_le_bytes(*id)));
            match u16::from(*tag) {
                ACL_USER => *id = uid.to_le_bytes(),
                ACL_GROUP => *id = gid.to_le_bytes(),
                _ => {}
            }
        }
        value.into()
    }

    /// An owner and a group of the server's user namespace as theirs numbers them; `u32::MAX` stays.
    pub(crate) fn numbers(&self, (uid, gid): (u32, u32)) -> (u32, u32) {
        let number = |which: usize, id: u32| match &self.user_ns {
            Some(maps) if id != u32::MAX => upper_of(&maps[which], id),
            _ => id,
        };
        (number(0, uid), number(1, gid))
    }

    /// Whether they have a capability in the server's user namespace.
    pub(crate) fn capable(&self, cap: u32) -> bool {
        self.user_ns.is_none() && self.caps & 1 << cap != 0
    }

    fn cred(&self) -> Result<Cred> {
        let caps = CapSet(self.caps) & CapSet::FULL;
        let (uid, gid) = (self.fsuid, self.fsgid);
        let cred = Cred::builder()
            .uids(uid, uid, uid, uid)
            .gids(gid, gid, gid, gid)
            .groups(&self.groups)
            .permitted(caps)
            .effective(caps);
        let Some([uids, gids]) = &self.user_ns else { return cred.build() };
        let ns = UserNamespace::new_child(&UserNamespace::init(), uid, gid, false)?;
        if !uids.is_empty() {
            ns.set_uid_map(uids)?;
        }
        if !gids.is_empty() {
            ns.set_gid_map(gids)?;
        }
        cred.user_ns(ns).build()
    }
}

/// Finds out who the caller is.
///
/// A request tells the ids alone. Groups and capabilities are those that the thread has *now*, as `/proc` tells them, which may
/// not be those it had when it asked. A thread that cannot be looked at has no groups, and capabilities if it is root.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    /// By number; an entry outlives its thread, and then cannot be read.
    threads: Mutex<HashMap<u32, Arc<Thread>>>,
}

/// Calls that take privileges away from a file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Strips {
    Chown,
    Truncate,
}

impl Strips {
    /// Their numbers: of 64-bit programs, then of 32-bit ones. None where they are not known.
    const fn numbers(self) -> &'static [u64] {
        match self {
            _ if !cfg!(target_arch = "x86_64") => &[],
            Strips::Chown => {
                &[nr::CHOWN, nr::FCHOWN, nr::LCHOWN, nr::FCHOWNAT, 16, 95, 182, 198, 207, 212, 298]
            }
            Strips::Truncate => &[nr::TRUNCATE, nr::FTRUNCATE, 92, 93, 193, 194],
        }
    }
}

/// For how long a thread is watched that still seems to run although it waits for an answer.
const SETTLES: Duration = Duration::from_millis(100);

impl Callers {
    /// The caller.
    pub(crate) fn identity(&self, req: &Header) -> Identity {
        self.read(req, false)
    }

    /// The caller as access(2) sees them, whose ids are the real ones: without capabilities, or root with all they may have.
    pub(crate) fn for_access(&self, req: &Header) -> Identity {
        self.read(req, true)
    }

    fn read(&self, req: &Header, access: bool) -> Identity {
        let Some((thread, status)) = self.look_at(req.pid) else {
            let (fsuid, fsgid) = req.ids().unwrap_or((NOBODY, NOBODY));
            let caps = if fsuid == 0 { CapSet::FULL.0 } else { 0 };
            return Identity { fsuid, fsgid, groups: Vec::new(), caps, user_ns: None };
        };
        let (fsuid, fsgid) = req.ids().unwrap_or((status.fsuid, status.fsgid));
        // The kernel acts with other ids than the thread's for access(2), which judges by the real user; and for a file system that
        // lies over this one, as the user who mounted that.
        let (own, real) = (status.fsuid == fsuid, status.ruid == fsuid);
        let stacked = !own && !real;
        let user_ns = if stacked || status.permitted != 0 { thread.foreign_user_ns() } else { None };
        let is_root = user_ns.as_ref().map_or(fsuid == 0, |[uids, _]| lower_of_0(uids) == Some(fsuid));
        let root = if is_root { CapSet::FULL.0 } else { 0 };
        if stacked {
            // Root of the thread's namespace; or of ours, if that namespace is not where the file system above was mounted.
            let (user_ns, caps) =
                if is_root || fsuid != 0 { (user_ns, root) } else { (None, CapSet::FULL.0) };
            return Identity { fsuid, fsgid, groups: Vec::new(), caps, user_ns };
        }
        let caps = if own && !access { status.effective } else { status.permitted & root };
        Identity { fsuid, fsgid, groups: status.groups, caps, user_ns }
    }

    /// Whether the caller is in such a call; also if that cannot be found out. A file system that lies over this one does the same in
    /// other calls.
    pub(crate) fn may_be_in(&self, req: &Header, what: Strips) -> bool {
        let Some((thread, _)) = self.look_at(req.pid) else { return true };
        let (numbers, until) = (what.numbers(), Instant::now() + SETTLES);
        loop {
            match thread.call() {
                Some(Call::Number(number)) => return numbers.is_empty() || numbers.contains(&number),
                Some(Call::Running) if Instant::now() < until => thread::sleep(SETTLES / 1000),
                _ => return true,
            }
        }
    }

    /// What a thread is now.
    fn look_at(&self, tid: u32) -> Option<(Arc<Thread>, Status)> {
        let known = self.lock().get(&tid).cloned();
        if let Some(thread) = known
            && let Some(status) = thread.status()
        {
            return Some((thread, status));
        }
        let thread = Arc::new(Thread::open(tid)?);
        let status = thread.status()?;
        let mut threads = self.lock();
        if threads.len() >= MOST {
            threads.clear();
        }
        threads.insert(tid, Arc::clone(&thread));
        Some((thread, status))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Arc<Thread>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread of the running machine. Its files stand for that very thread, not for the next one with its number, and reading one
/// again costs a third of opening it.
#[derive(Debug)]
struct Thread {
    dir: OwnedFd,
    status: File,
}

impl Thread {
    fn open(tid: u32) -> Option<Thread> {
        // 0 stands for a caller in another pid namespace, and for the kernel itself.
        let path = Some(format!("/proc/{tid}")).filter(|_| tid != 0)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        let status =
            File::from(openat(&dir, "status", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?);
        Some(Thread { dir, status })
    }

    fn status(&self) -> Option<Status> {
        let mut text = vec![0; 4096];
        loop {
            let n = self.status.read_at(&mut text, 0).ok()?;
            if n < text.len() {
                return Status::parse(&text[..n]);
            }
            // The caller has hundreds of groups.
            text.resize(2 * text.len(), 0);
        }
    }

    /// What it does now; none if the caller may not know, and for a thread that is in no call.
    fn call(&self) -> Option<Call> {
        let file = openat(&self.dir, "syscall", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let text = io::read_to_string(File::from(file)).ok()?;
        match text.split_whitespace().next()? {
            "running" => Some(Call::Running),
            number => number.parse().ok().map(Call::Number),
        }
    }

    /// The id maps of its user namespace, as this process sees them, if it is in another one: there its capabilities count
    /// for what has ids in it alone.
    fn foreign_user_ns(&self) -> Option<[Vec<IdExtent>; 2]> {
        static OWN: LazyLock<Option<CString>> =
            LazyLock::new(|| readlinkat(CWD, "/proc/self/ns/user", []).ok());
        if readlinkat(&self.dir, "ns/user", []).ok() == *OWN {
            return None;
        }
        let map = |name| {
            let file = openat(&self.dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            let text = file.map_err(io::Error::from).and_then(|fd| io::read_to_string(File::from(fd)));
            text.map_or(Vec::new(), |text| id_map(&text))
        };
        Some([map("uid_map"), map("gid_map")])
    }
}

/// What `/proc/TID/status` says of a thread.
#[derive(Debug, Default, PartialEq, Eq)]
struct Status {
    ruid: u32,
    fsuid: u32,
    fsgid: u32,
    groups: Vec<u32>,
    permitted: u64,
    effective: u64,
}

impl Status {
    /// Everything is there, or it is no status.
    fn parse(text: &[u8]) -> Option<Status> {
        let (mut uids, mut gids, mut groups, mut permitted, mut effective) = (None, None, None, None, None);
        for line in text.split(|&b| b == b'\n').filter_map(|line| std::str::from_utf8(line).ok()) {
            let Some((key, value)) = line.split_once(":\t") else { continue };
            let ids = || value.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<u32>>();
            match key {
                "Uid" => uids = <[u32; 4]>::try_from(ids()).ok(),
                "Gid" => gids = <[u32; 4]>::try_from(ids()).ok(),
                "Groups" => groups = Some(ids()),
                "CapPrm" => permitted = u64::from_str_radix(value, 16).ok(),
                "CapEff" => effective = u64::from_str_radix(value, 16).ok(),
                _ => {}
            }
        }
        let ([ruid, _, _, fsuid], [_, _, _, fsgid]) = (uids?, gids?);
        Some(Status { ruid, fsuid, fsgid, groups: groups?, permitted: permitted?, effective: effective? })
    }
}

/// What `/proc/TID/syscall` says of a thread.
#[derive(Debug, PartialEq, Eq)]
enum Call {
    /// It waits in the call of this number.
    Number(u64),
    Running,
}

/// Whether the value of an attribute has ids in it, which the kernel puts as the server's user namespace numbers them.
pub(crate) fn has_ids(name: &[u8]) -> bool {
    matches!(name, XATTR_NAME_POSIX_ACL_ACCESS | XATTR_NAME_POSIX_ACL_DEFAULT)
}

/// Reads `uid_map` or `gid_map`.
fn id_map(text: &str) -> Vec<IdExtent> {
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// The id outside that is 0 inside.
fn lower_of_0(map: &[IdExtent]) -> Option<u32> {
    map.iter().find(|extent| extent.first == 0).map(|extent| extent.lower)
}

/// The number inside of an id outside; [`NOBODY`] if the map has none.
fn upper_of(map: &[IdExtent], id: u32) -> u32 {
    let within = |extent: &&IdExtent| id.checked_sub(extent.lower).is_some_and(|n| n < extent.count);
    map.iter().find(within).map_or(NOBODY, |extent| extent.first + (id - extent.lower))
}

/// Tasks that were made for earlier requests, by identity. They share the descriptor table; root and umask are each one's own.
#[derive(Debug)]
pub(crate) struct Tasks {
    keeper: Task,
    idle: Mutex<HashMap<Identity, Vec<Task>>>,
}

impl Tasks {
    pub(crate) fn new(keeper: Task) -> Tasks {
        Tasks { keeper, idle: Mutex::default() }
    }

    /// A task with this identity, for one request.
    pub(crate) fn acting(&self, who: Identity, umask: u32) -> Result<Acting<'_>> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&who).and_then(Vec::pop);
        let task = match idle {
            Some(task) => task,
            None => {
                let mut task = self.keeper.clone_with(CloneFlags::default().with_files(true))?;
                task.set_cred(who.cred()?);
                task
            }
        };
        task.umask(umask);
        Ok(Acting { tasks: self, who, task: Some(task) })
    }
}

/// A task lent for one request.
pub(crate) struct Acting<'a> {
    tasks: &'a Tasks,
    who: Identity,
    task: Option<Task>,
}

impl Deref for Acting<'_> {
    type Target = Task;

    fn deref(&self) -> &Task {
        match &self.task {
            Some(task) => task,
            None => unreachable!("taken only by drop"),
        }
    }
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        let mut idle = self.tasks.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= MOST && !idle.contains_key(&self.who) {
            idle.clear();
        }
        match idle.get_mut(&self.who) {
            Some(tasks) => tasks.extend(self.task.take()),
            None => drop(idle.insert(self.who.clone(), self.task.take().into_iter().collect())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_status() {
        let text = b"Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nCapPrm:\t00000000000000ff\nCapEff:\t0000000000000002\n";
        let expected =
            Status { ruid: 1, fsuid: 4, fsgid: 8, groups: vec![9, 10], permitted: 0xff, effective: 2 };
        assert_eq!(Status::parse(text), Some(expected));
        assert_eq!(Status::parse(b"nonsense\n"), None);
    }

    #[test]
    fn threads_are_looked_at() {
        let callers = Callers::default();
        for _ in 0..2 {
            let (thread, _) = callers.look_at(std::process::id()).expect("this process is there");
            assert!(thread.foreign_user_ns().is_none());
        }
        assert!(callers.look_at(0).is_none());
        let mut gone = std::process::Command::new("true").spawn().expect("a process starts");
        gone.wait().expect("it ends");
        assert!(callers.look_at(gone.id()).is_none());
    }

    #[test]
    fn ids_are_numbered_as_their_namespace_does() {
        let map = id_map("         0     100000      65536\n     70000       1000          1\nx\n");
        assert_eq!(map.len(), 2);
        assert_eq!(lower_of_0(&map), Some(100_000));
        assert_eq!([100_000, 100_005, 1000, 5].map(|id| upper_of(&map, id)), [0, 5, 70_000, u32::MAX - 1]);
        let who =
            Identity { fsuid: 1000, fsgid: 1000, groups: vec![], caps: 1, user_ns: Some([map.clone(), map]) };
        assert_eq!(who.numbers((100_005, u32::MAX)), (5, u32::MAX));
        assert!(!who.capable(0));
        let acl = [
            &[2, 0, 0, 0][..],
            &[1, 0, 6, 0, 255, 255, 255, 255],
            &[2, 0, 4, 0, 0xa5, 0x86, 1, 0],
            &[8, 0, 4, 0, 5, 0, 0, 0],
            &[9],
        ]
        .concat();
        let named = who.value(XATTR_NAME_POSIX_ACL_ACCESS, &acl);
        assert_eq!((&named[16..20], &named[24..28]), (&[5, 0, 0, 0][..], &NOBODY.to_le_bytes()[..]));
        assert_eq!((&named[..12], &named[28..]), (&acl[..12], &acl[28..]));
        assert_eq!(who.value(b"user.a", &acl), acl);
        assert!(who.allowed(false).capable(0));
    }
}
