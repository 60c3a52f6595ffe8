//! The engine behind its raw door: each call by number, with the registers and the memory that the kernel would get.
//!
//! The typed interface is used for what no system call does: making the first task of an identity, and writing id maps,
//! which is another process's business.

use std::sync::Arc;

use rcuwalk::syscall::{self, Event};
use rcuwalk::userns::UserNamespace;
use rcuwalk::{Task, Vfs};

use crate::args::IdMap;
use crate::backend::{Backend, TaskId, World};
use crate::case::Case;
use crate::engine::mounts::{map_ids, proc_file};
use crate::engine::{Engine, UNSUPPORTED, exec::seen, set_sysctl, task_of};
use crate::identity::Identity;
use crate::need::Need;
use crate::op::Op;
use crate::outcome::{self, Outcome};
use crate::raw;
use crate::sys::{Frame, Nr};
use crate::words::{Mode, ProcFile};

/// The raw door as a backend.
#[derive(Clone, Debug)]
pub struct Syscalls {
    engine: Engine,
    lacking: Vec<Need>,
}

/// Why a row is skipped that makes a call without a number behind the door.
pub const NO_CALL: &str = "no such call behind the raw door";
/// Why a row is skipped that calls what is no system call.
pub const NO_SYSCALL: &str = "a function of the C library, not a system call";

impl Syscalls {
    /// The raw door, with the lockless walk. Rows that need any of `without` are declined.
    ///
    /// # Errors
    ///
    /// If the engine cannot be made.
    pub fn new(without: &[Need]) -> Result<Syscalls, String> {
        Ok(Syscalls { engine: Engine::new(false, without)?, lacking: without.to_vec() })
    }
}

/// Why the door cannot run this row, if it cannot.
pub(crate) fn declines(case: &Case, lacking: &[Need]) -> Option<String> {
    // Any pointer can be passed, good or bad; everything else that the engine lacks, it lacks here as well.
    let unsupported = UNSUPPORTED.iter().filter(|(need, _)| *need != Need::Memory);
    if let Some((_, why)) = unsupported.clone().find(|(need, _)| case.needs.contains(need)) {
        return Some((*why).to_owned());
    }
    if let Some(need) = lacking.iter().find(|need| case.needs.contains(need)) {
        return Some(format!("needs {}", need.name()));
    }
    let steps = case.setup.iter().chain(&case.calls);
    steps.filter_map(|step| lacks(&step.op)).next().map(str::to_owned)
}

fn lacks(op: &Op) -> Option<&'static str> {
    match op {
        Op::Execvp { .. } => return Some(NO_SYSCALL),
        Op::Mount { fstype, .. } if fstype.bytes() == Some(b"proc") => return Some("no /proc"),
        _ => {}
    }
    let mut op = op.clone();
    op.resolve(&|_| Some(0)).ok()?;
    let number = op.lower(&mut Frame::new())?.number();
    let known = syscall::nr::ALL.iter().any(|(there, _)| *there == number);
    (!known).then_some(NO_CALL)
}

impl Backend for Syscalls {
    fn name(&self) -> String {
        "syscall".to_owned()
    }

    fn declines(&self, case: &Case) -> Option<String> {
        declines(case, &self.lacking)
    }

    fn world(&self) -> Result<Box<dyn World>, String> {
        fresh_world(&self.engine).map(|world| Box::new(world) as Box<dyn World>)
    }
}

/// A door: how tasks are made and how they make calls.
pub(crate) trait Door {
    /// A new task with this identity.
    ///
    /// # Errors
    ///
    /// Why it could not get it.
    fn spawn(&mut self, who: &Identity) -> Result<TaskId, String>;

    /// Makes a call.
    fn syscall(&mut self, task: TaskId, number: u64, frame: &mut Frame) -> i64;

    /// Takes the task that the last call of `task` made into the list.
    ///
    /// # Errors
    ///
    /// If it made none.
    fn adopt(&mut self, task: TaskId) -> Result<TaskId, String>;

    /// What the program sees that the last call of `task` executed; `None` if it only checked whether it could.
    ///
    /// # Errors
    ///
    /// If that cannot be found out.
    fn executed(&mut self, task: TaskId) -> Result<Option<outcome::Exec>, String>;

    /// Writes the id maps of a task's user namespace.
    fn map_ids(&mut self, task: TaskId, uid_map: &IdMap, gid_map: &IdMap) -> Outcome;

    /// Opens a file below `/proc/PID` of another task, or of the same.
    fn open_proc(&mut self, task: TaskId, of: TaskId, file: ProcFile) -> Outcome;

    /// Changes a setting of the file system, which no system call does.
    fn sysctl(&mut self, name: &str, value: i64) -> Outcome;

    /// Gives a task a descriptor of a user namespace with these maps.
    fn open_userns(&mut self, task: TaskId, uid_map: &IdMap, gid_map: &IdMap) -> Outcome;
}

const CLONE: u64 = libc::SYS_clone as u64;
const EXIT: u64 = libc::SYS_exit as u64;

/// A world behind a door.
pub(crate) struct DoorWorld<D> {
    door: D,
    /// A privileged task outside of the row.
    outsider: TaskId,
}

impl<D: Door> DoorWorld<D> {
    /// A world with nobody in it.
    ///
    /// # Errors
    ///
    /// If there is no task to look at it from outside.
    pub(crate) fn new(mut door: D) -> Result<DoorWorld<D>, String> {
        let outsider = door.spawn(&Identity { umask: Mode(0), ..Identity::root() })?;
        Ok(DoorWorld { door, outsider })
    }

    fn make(&mut self, task: TaskId, frame: &mut Frame, number: Nr) -> Result<i64, i32> {
        let answer = self.door.syscall(task, number.number(), frame);
        if (-4095..0).contains(&answer) { Err(-answer as i32) } else { Ok(answer) }
    }

    /// Executes in a child of the task, as on the host.
    fn execute(&mut self, task: TaskId, op: &Op) -> Outcome {
        let child = match self.fork(task, 0) {
            Ok(child) => child,
            Err(outcome) => return outcome,
        };
        let mut frame = Frame::new();
        let Some(number) = op.lower(&mut frame) else {
            return Outcome::Broken(format!("`{}` is not for a task", op.name()));
        };
        let outcome = match self.make(child, &mut frame, number) {
            Err(errno) => Outcome::Error(errno),
            Ok(_) => match self.door.executed(child) {
                Ok(Some(exec)) => Outcome::Exec(Box::new(exec)),
                Ok(None) => Outcome::Done,
                Err(why) => Outcome::Broken(why),
            },
        };
        // Its descriptors, copies of the task's, must not stay open.
        match self.door.syscall(child, EXIT, &mut Frame::new()) {
            0 => outcome,
            answer => Outcome::Broken(format!("exit answered {answer}")),
        }
    }
}

impl<D: Door> World for DoorWorld<D> {
    fn spawn(&mut self, who: &Identity) -> Result<TaskId, String> {
        self.door.spawn(who)
    }

    fn fork(&mut self, task: TaskId, flags: u64) -> Result<TaskId, Outcome> {
        let mut frame = Frame::new();
        [flags, 0, 0, 0, 0].into_iter().for_each(|word| frame.int(word));
        match self.door.syscall(task, CLONE, &mut frame) {
            answer if answer < 0 => Err(Outcome::Error(-answer as i32)),
            _ => self.door.adopt(task).map_err(Outcome::Broken),
        }
    }

    fn open_proc(&mut self, task: TaskId, of: TaskId, file: ProcFile) -> Outcome {
        self.door.open_proc(task, of, file)
    }

    fn call(&mut self, task: TaskId, op: &Op) -> Outcome {
        let caller = &mut |frame: &mut Frame, number: Nr| self.make(task, frame, number);
        match op {
            Op::Execve { .. } | Op::Execveat { .. } => self.execute(task, op),
            Op::MapIds { uid_map, gid_map } => self.door.map_ids(task, uid_map, gid_map),
            Op::OpenProc { file, .. } => self.door.open_proc(task, task, *file),
            Op::Sysctl { name, value } => self.door.sysctl(&name.0, value.0),
            Op::OpenUserns { uid_map, gid_map } => self.door.open_userns(task, uid_map, gid_map),
            op => raw::plain(op, caller),
        }
    }

    fn outsider(&mut self, op: &Op) -> Outcome {
        self.call(self.outsider, op)
    }

    fn full_caps(&self) -> u64 {
        rcuwalk::cred::CapSet::FULL.0
    }

    fn program(&self) -> Vec<u8> {
        // The host's: file contents are compared.
        crate::host::program()
    }
}

/// A fresh world of this engine, behind its raw door.
///
/// # Errors
///
/// If there is no memory for it.
pub(crate) fn fresh_world(engine: &Engine) -> Result<DoorWorld<Tasks>, String> {
    let vfs = engine.make().map_err(|errno| errno.to_string())?;
    DoorWorld::new(Tasks { vfs, tasks: Vec::new() })
}

/// Tasks of the engine.
pub(crate) struct Tasks {
    vfs: Vfs,
    tasks: Vec<Task>,
}

impl Door for Tasks {
    fn spawn(&mut self, who: &Identity) -> Result<TaskId, String> {
        self.tasks.push(task_of(&self.vfs, who)?);
        Ok(self.tasks.len() - 1)
    }

    fn syscall(&mut self, task: TaskId, number: u64, frame: &mut Frame) -> i64 {
        let args = frame.registers();
        self.tasks[task].syscall(&mut frame.memory(), number, args)
    }

    fn adopt(&mut self, task: TaskId) -> Result<TaskId, String> {
        let Some(Event::Cloned { child, .. }) = self.tasks[task].take_event() else {
            return Err("fork made no task".to_owned());
        };
        self.tasks.push(child);
        Ok(self.tasks.len() - 1)
    }

    fn executed(&mut self, task: TaskId) -> Result<Option<outcome::Exec>, String> {
        match self.tasks[task].take_event() {
            Some(Event::Executed(exec)) => Ok(Some(seen(&self.tasks[task], exec))),
            None => Ok(None),
            Some(other) => Err(format!("unexpected {other:?}")),
        }
    }

    fn map_ids(&mut self, task: TaskId, uid_map: &IdMap, gid_map: &IdMap) -> Outcome {
        match map_ids(self.tasks[task].cred().user_ns(), uid_map, gid_map) {
            Ok(()) => Outcome::Done,
            Err(errno) => Outcome::Error(errno.raw()),
        }
    }

    fn open_proc(&mut self, task: TaskId, of: TaskId, file: ProcFile) -> Outcome {
        match self.tasks[task].open_proc(&self.tasks[of], proc_file(file)) {
            Ok(fd) => Outcome::Fd(fd),
            Err(errno) => Outcome::Error(errno.raw()),
        }
    }

    fn sysctl(&mut self, name: &str, value: i64) -> Outcome {
        set_sysctl(&self.vfs, name, value)
    }

    fn open_userns(&mut self, task: TaskId, uid_map: &IdMap, gid_map: &IdMap) -> Outcome {
        let opened = UserNamespace::new_child(&UserNamespace::init(), 0, 0, true).and_then(
            |ns: Arc<UserNamespace>| {
                map_ids(&ns, uid_map, gid_map)?;
                self.tasks[task].open_user_ns(&ns)
            },
        );
        match opened {
            Ok(fd) => Outcome::Fd(fd),
            Err(errno) => Outcome::Error(errno.raw()),
        }
    }
}
