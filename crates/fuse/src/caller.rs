//! Who asks, and tasks to act as them.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use fuser::Request;
use rcuwalk::cred::CapSet;
use rcuwalk::uapi::CAP_FSETID;
use rcuwalk::{CloneFlags, Cred, Result, Task};

/// As whom the engine acts: what of a credential counts for a call on a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    fsuid: u32,
    fsgid: u32,
    groups: Vec<u32>,
    caps: u64,
}

impl Identity {
    /// Somebody who may do everything, and to whom what is created belongs.
    pub(crate) fn owner(req: &Request) -> Identity {
        Identity { fsuid: req.uid(), fsgid: req.gid(), groups: Vec::new(), caps: CapSet::FULL.0 }
    }

    /// The same, but who writes to a set-id file takes that away.
    pub(crate) fn without_fsetid(mut self) -> Identity {
        self.caps &= !(1 << CAP_FSETID);
        self
    }

    /// The caller. A request tells the ids alone; groups and capabilities are those that its thread has *now*, which may not
    /// be those it had when it asked. A thread that cannot be looked at has no groups, and capabilities if it is root.
    pub(crate) fn of(req: &Request) -> Identity {
        let status = Status::read(req.pid()).unwrap_or_default();
        let root = if req.uid() == 0 { CapSet::FULL.0 } else { 0 };
        let caps = match &status.caps {
            None => root,
            // The kernel acts with other ids than the thread's: access(2), which judges by the real user.
            Some(caps) if status.fsuid != Some(req.uid()) => root & caps.permitted,
            Some(caps) => caps.effective,
        };
        let caps = if caps != 0 && !same_user_ns(req.pid()) { 0 } else { caps };
        Identity { fsuid: req.uid(), fsgid: req.gid(), groups: status.groups, caps }
    }

    /// Whether they keep the set-id bits of what they write to.
    pub(crate) fn has_fsetid(&self) -> bool {
        self.caps & 1 << CAP_FSETID != 0
    }

    /// Whether they are in the group.
    pub(crate) fn in_group(&self, gid: u32) -> bool {
        self.fsgid == gid || self.groups.contains(&gid)
    }

    fn cred(&self) -> Result<Cred> {
        let caps = CapSet(self.caps) & CapSet::FULL;
        let (uid, gid) = (self.fsuid, self.fsgid);
        Cred::builder()
            .uids(uid, uid, uid, uid)
            .gids(gid, gid, gid, gid)
            .groups(&self.groups)
            .permitted(caps)
            .effective(caps)
            .build()
    }
}

/// What `/proc/TID/status` says of a thread.
#[derive(Debug, Default, PartialEq, Eq)]
struct Status {
    fsuid: Option<u32>,
    groups: Vec<u32>,
    caps: Option<Caps>,
}

#[derive(Debug, PartialEq, Eq)]
struct Caps {
    permitted: u64,
    effective: u64,
}

impl Status {
    fn read(tid: u32) -> Option<Status> {
        // 0 is somebody in another pid namespace, or the kernel itself.
        let mut file = File::open(format!("/proc/{tid}/status")).ok().filter(|_| tid != 0)?;
        let mut text = Vec::with_capacity(2048);
        file.read_to_end(&mut text).ok()?;
        Some(Status::parse(&text))
    }

    fn parse(text: &[u8]) -> Status {
        let mut status = Status::default();
        let (mut permitted, mut effective) = (None, None);
        for line in text.split(|&b| b == b'\n').filter_map(|line| std::str::from_utf8(line).ok()) {
            let Some((key, value)) = line.split_once(":\t") else { continue };
            match key {
                "Uid" => status.fsuid = value.split('\t').nth(3).and_then(|id| id.parse().ok()),
                "Groups" => {
                    status.groups = value.split_whitespace().filter_map(|id| id.parse().ok()).collect();
                }
                "CapPrm" => permitted = u64::from_str_radix(value, 16).ok(),
                "CapEff" => effective = u64::from_str_radix(value, 16).ok(),
                _ => {}
            }
        }
        status.caps = permitted.zip(effective).map(|(permitted, effective)| Caps { permitted, effective });
        status
    }
}

/// Whether the capabilities of a thread count here: those in another user namespace do not.
fn same_user_ns(tid: u32) -> bool {
    let ns = |of: &str| -> Option<PathBuf> { std::fs::read_link(format!("/proc/{of}/ns/user")).ok() };
    tid == 0 || ns(&tid.to_string()).is_some_and(|theirs| Some(theirs) == ns("self"))
}

/// Tasks that were made for earlier requests, by identity. They share the descriptor table; root and umask are each one's own.
#[derive(Debug)]
pub(crate) struct Tasks {
    keeper: Task,
    idle: Mutex<HashMap<Identity, Vec<Task>>>,
}

/// Identities that are remembered at most.
const MOST: usize = 256;

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
                let mut task = self.keeper.clone_with(CloneFlags { files: true, ..CloneFlags::default() })?;
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
        let who =
            std::mem::replace(&mut self.who, Identity { fsuid: 0, fsgid: 0, groups: Vec::new(), caps: 0 });
        idle.entry(who).or_default().extend(self.task.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_status() {
        let text = b"Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nCapPrm:\t00000000000000ff\nCapEff:\t0000000000000002\n";
        let expected = Status {
            fsuid: Some(4),
            groups: vec![9, 10],
            caps: Some(Caps { permitted: 0xff, effective: 2 }),
        };
        assert_eq!(Status::parse(text), expected);
        assert_eq!(Status::parse(b"nonsense\n"), Status::default());
        assert!(Status::read(std::process::id()).is_some_and(|s| s.caps.is_some()));
        assert_eq!(Status::read(0), None);
    }
}
