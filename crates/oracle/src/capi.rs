//! The engine behind its C interface: every call through `rcuwalk_syscall`, with pointers into this process.

use rcuwalk_capi::door::{
    self as c, RCUWALK_EVENT_CLONED, RCUWALK_EVENT_EXECUTED, RCUWALK_EVENT_NONE, rcuwalk_cred,
    rcuwalk_extent, rcuwalk_options,
};

use crate::args::{Arg, IdMap, ThreeIds};
use crate::backend::{Backend, TaskId, World};
use crate::case::Case;
use crate::door::{Door, DoorWorld, declines};
use crate::identity::Identity;
use crate::need::Need;
use crate::outcome::{self, Outcome};
use crate::sys::{self, Frame};
use crate::words::ProcFile;

/// The C interface as a backend.
#[derive(Clone, Debug)]
pub struct CInterface {
    lacking: Vec<Need>,
}

impl CInterface {
    /// The C interface. Rows that need any of `without` are declined.
    pub fn new(without: &[Need]) -> CInterface {
        CInterface { lacking: without.to_vec() }
    }
}

impl Backend for CInterface {
    fn name(&self) -> String {
        "capi".to_owned()
    }

    fn declines(&self, case: &Case) -> Option<String> {
        declines(case, &self.lacking)
    }

    fn world(&self) -> Result<Box<dyn World>, String> {
        let options = rcuwalk_options {
            capacity: 1 << 16,
            protected_symlinks: 0,
            // What the host of the verified cases has.
            protected_hardlinks: 1,
            protected_regular: 0,
            protected_fifos: 0,
            size_limit: 0,
        };
        let vfs = positive(sys::c::create(&options))?;
        Ok(Box::new(DoorWorld::new(Tasks { vfs, tasks: Vec::new() })?))
    }
}

/// A handle or number, unless it is an error.
fn positive(answer: i64) -> Result<i64, String> {
    if answer < 0 { Err(crate::errno::name(-answer as i32)) } else { Ok(answer) }
}

/// Handles of a file system and of tasks in it.
struct Tasks {
    vfs: i64,
    tasks: Vec<i64>,
}

impl Drop for Tasks {
    fn drop(&mut self) {
        for handle in self.tasks.drain(..).chain([self.vfs]) {
            c::rcuwalk_destroy(handle);
        }
    }
}

impl Tasks {
    /// Three ids that a call gives, and a fourth.
    fn ids(&mut self, task: TaskId, call: i64, fourth: i64) -> [u32; 4] {
        let mut frame = Frame::new();
        ThreeIds.lower(&mut frame);
        self.syscall(task, call as u64, &mut frame);
        let id = |i: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| frame.out()[4 * i + byte]));
        [id(0), id(1), id(2), fourth as u32]
    }
}

fn extents(map: &IdMap) -> Vec<rcuwalk_extent> {
    map.0.iter().map(|&(first, lower, count)| rcuwalk_extent { first, lower, count }).collect()
}

impl Door for Tasks {
    fn spawn(&mut self, who: &Identity) -> Result<TaskId, String> {
        let [uid, euid, suid, fsuid] = who.uids;
        let [gid, egid, sgid, fsgid] = who.gids;
        let cred = rcuwalk_cred {
            uid,
            euid,
            suid,
            fsuid,
            gid,
            egid,
            sgid,
            fsgid,
            effective: who.effective.0,
            permitted: who.permitted.0,
            inheritable: who.inheritable.0,
            ambient: who.ambient.0,
            bounding: who.bounding.0,
            securebits: who.securebits.0 as u32,
            no_new_privs: u32::from(who.no_new_privs),
            groups: std::ptr::null(),
            ngroups: 0,
        };
        // Root goes to the place, as on the host; only then comes the identity.
        let id = self.tasks.len();
        self.tasks.push(positive(sys::c::root_task(self.vfs))?);
        c::rcuwalk_umask(self.tasks[id], who.umask.0 as u32);
        let mut frame = Frame::new();
        frame.string(&who.cwd);
        positive(self.syscall(id, libc::SYS_chdir as u64, &mut frame))
            .map_err(|why| format!("chdir: {why}"))?;
        positive(sys::c::set_cred(self.tasks[id], cred, &who.groups))
            .map_err(|why| format!("credential: {why}"))?;
        Ok(id)
    }

    fn syscall(&mut self, task: TaskId, number: u64, frame: &mut Frame) -> i64 {
        frame.call_c(self.tasks[task], number)
    }

    fn adopt(&mut self, task: TaskId) -> Result<TaskId, String> {
        match sys::c::event(self.tasks[task]) {
            Ok(event) if event.kind == RCUWALK_EVENT_CLONED => {
                self.tasks.push(event.handle);
                Ok(self.tasks.len() - 1)
            }
            Ok(event) => Err(format!("fork left an event of kind {}", event.kind)),
            Err(error) => Err(crate::errno::name(-error as i32)),
        }
    }

    fn executed(&mut self, task: TaskId) -> Result<Option<outcome::Exec>, String> {
        let failed = |error: i64| crate::errno::name(-error as i32);
        let event = sys::c::event(self.tasks[task]).map_err(failed)?;
        if event.kind == RCUWALK_EVENT_NONE {
            return Ok(None);
        }
        if event.kind != RCUWALK_EVENT_EXECUTED {
            return Err(format!("execve left an event of kind {}", event.kind));
        }
        let exec = event.handle;
        let info = sys::c::exec_info(exec).map_err(failed)?;
        let strings =
            |what, count| (0..count).map(|i| sys::c::exec_string(exec, what, i)).collect::<Result<_, _>>();
        let cred = sys::c::cred(self.tasks[task]).map_err(failed)?;
        let seen = outcome::Exec {
            argv: strings(c::RCUWALK_EXEC_ARGV, info.argc).map_err(failed)?,
            envp: strings(c::RCUWALK_EXEC_ENVP, info.envc).map_err(failed)?,
            execfn: sys::c::exec_string(exec, c::RCUWALK_EXEC_FILENAME, 0).map_err(failed)?,
            // As its user namespace shows them: setfsuid answers, and changes nothing when asked for an id there is not.
            uids: self.ids(task, libc::SYS_getresuid, c::rcuwalk_setfsuid(self.tasks[task], u32::MAX)),
            gids: self.ids(task, libc::SYS_getresgid, c::rcuwalk_setfsgid(self.tasks[task], u32::MAX)),
            caps: [cred.effective, cred.permitted, cred.inheritable],
            secure: info.secure != 0,
        };
        c::rcuwalk_destroy(exec);
        Ok(Some(seen))
    }

    fn map_ids(&mut self, task: TaskId, uid_map: &IdMap, gid_map: &IdMap) -> Outcome {
        match sys::c::user_ns(self.tasks[task], false, &extents(uid_map), &extents(gid_map)) {
            0 => Outcome::Done,
            error => Outcome::Error(-error as i32),
        }
    }

    fn open_proc(&mut self, task: TaskId, of: TaskId, file: ProcFile) -> Outcome {
        // The numbers are those of the interface.
        match c::rcuwalk_task_open_proc(self.tasks[task], self.tasks[of], file.0 as i32) {
            fd if fd >= 0 => Outcome::Fd(fd),
            error => Outcome::Error(-error),
        }
    }

    fn sysctl(&mut self, name: &str, value: i64) -> Outcome {
        match sys::c::set_sysctl(self.vfs, name, value as u64) {
            0 => Outcome::Done,
            error => Outcome::Error(-error),
        }
    }

    fn open_userns(&mut self, task: TaskId, uid_map: &IdMap, gid_map: &IdMap) -> Outcome {
        match sys::c::user_ns(self.tasks[task], true, &extents(uid_map), &extents(gid_map)) {
            fd if fd >= 0 => Outcome::Fd(fd as i32),
            error => Outcome::Error(-error as i32),
        }
    }
}
