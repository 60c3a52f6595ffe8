//! What a row runs on.

use crate::case::Case;
use crate::identity::Identity;
use crate::op::Op;
use crate::outcome::Outcome;
use crate::words::ProcFile;

/// What threads of a process share, in the words of clone(2).
pub const THREAD: u64 =
    (libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND | libc::CLONE_THREAD) as u64;

/// A system that can run rows.
pub trait Backend {
    /// Its name in reports and in `divergences.toml`.
    fn name(&self) -> String;

    /// Why this row cannot run here, if it cannot. Only what a backend states in advance is skipped; whatever goes
    /// wrong later is a failure.
    fn declines(&self, case: &Case) -> Option<String>;

    /// How often a failed row may be tried again. The walks of the host kernel can meet mounts that others make at the
    /// same time, all over the machine; a retry is reported.
    fn retries(&self) -> u32 {
        0
    }

    /// Removes what the row that process `pid` has run may have left outside of that process, which has ended.
    ///
    /// # Errors
    ///
    /// What is left and why it could not be removed.
    fn clean_up(&self, _pid: u32) -> Result<(), String> {
        Ok(())
    }

    /// A fresh world: an empty directory as root, nobody in it. It ends when it is dropped.
    ///
    /// # Errors
    ///
    /// Why there is none (no privilege, no tmpfs, …).
    fn world(&self) -> Result<Box<dyn World>, String>;
}

/// A task of a world.
pub type TaskId = usize;

/// A root directory and the tasks that act in it.
pub trait World {
    /// A new task with an empty descriptor table.
    ///
    /// # Errors
    ///
    /// Why it could not get this identity.
    fn spawn(&mut self, who: &Identity) -> Result<TaskId, String>;

    /// fork(2) of `task`, or clone(2) with these flags.
    ///
    /// # Errors
    ///
    /// The answer of the call, if it failed.
    fn fork(&mut self, task: TaskId, flags: u64) -> Result<TaskId, Outcome>;

    /// Opens a file below `/proc/PID` of the task `of`, which it may be denied only if it is another one.
    fn open_proc(&mut self, task: TaskId, of: TaskId, file: ProcFile) -> Outcome;

    /// Makes a call. Descriptors are numbers; `Op::Fork` and `Op::Thread` are [`World::fork`], and `Op::OpenProc` of
    /// another task is [`World::open_proc`].
    fn call(&mut self, task: TaskId, op: &Op) -> Outcome;

    /// Makes several calls of one task.
    fn calls(&mut self, task: TaskId, ops: &[Op]) -> Vec<Outcome> {
        ops.iter().map(|op| self.call(task, op)).collect()
    }

    /// Makes a call as a privileged task outside of the world: root with every capability and umask 0, whose
    /// root and current directory are the world's root as it was at the start.
    fn outsider(&mut self, op: &Op) -> Outcome;

    /// Every capability that a task here can have: what "full" stands for.
    fn full_caps(&self) -> u64;

    /// An executable that reports how it was executed, for files with contents `@program`.
    fn program(&self) -> Vec<u8>;
}
