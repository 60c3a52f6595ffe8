//! Calls that make tasks and programs, and end them.
//!
//! Kernel: kernel/fork.c, kernel/exit.c, fs/exec.c.

use super::{Answer, Call};
use crate::base::errno::{Errno, Result};
use crate::base::uapi::{AT_FDCWD, CLONE_VFORK, CLONE_VM};
use crate::exec::{ARG_CEILING, MAX_ARG_STRLEN};
use crate::task::Task;
use crate::task::fork::CloneFlags;
use crate::task::program::Event;

const CLONE_PIDFD: u64 = 0x1000;
const CLONE_PARENT: u64 = 0x8000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
/// The namespaces that the engine does not have: time, cgroup, uts, ipc, pid, net.
const CLONE_OTHER_NS: u64 = 0x80 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x2000_0000 | 0x4000_0000;
/// The signal to send when the task ends, in the flags of clone(2).
const CSIGNAL: u64 = 0xff;

impl Task {
    /// Whether the task has exited.
    pub(super) fn has_exited(&self) -> bool {
        self.ids.tid == 0
    }

    /// A task that shares with this one what `flags` say. Kernel: kernel/fork.c `copy_process()`.
    fn copy_process(&self, flags: u64) -> Result<Task> {
        let has = |flag: u64| flags & flag != 0;
        if has(CLONE_OTHER_NS | CLONE_PIDFD) {
            return Err(Errno::EINVAL);
        }
        let mut child = self.clone_with(CloneFlags::from_bits(flags)?)?;
        if has(CLONE_PARENT) {
            child.ids.ppid = self.ids.ppid;
        }
        Ok(child)
    }
}

impl Call<'_> {
    pub(super) fn fork(&mut self) -> Answer {
        self.do_clone(0, 0)
    }

    pub(super) fn vfork(&mut self) -> Answer {
        self.do_clone(CLONE_VFORK | CLONE_VM, 0)
    }

    pub(super) fn clone(&mut self) -> Answer {
        self.do_clone(u64::from(self.uint(0)) & !CSIGNAL, self.args[2])
    }

    /// Kernel: kernel/fork.c `copy_clone_args_from_user()`.
    pub(super) fn clone3(&mut self) -> Answer {
        const CLONE_ARGS_SIZE_VER0: u64 = 64;
        let size = self.args[1];
        if size > 4096 {
            return Err(Errno::E2BIG);
        }
        if size < CLONE_ARGS_SIZE_VER0 {
            return Err(Errno::EINVAL);
        }
        let [flags, _pidfd, _child_tid, parent_tid, _exit_signal, _stack, _stack_size, _tls, ..]: [u64; 11] =
            self.extensible(self.args[0], size)?;
        if flags & CSIGNAL != 0 {
            return Err(Errno::EINVAL);
        }
        self.do_clone(flags, parent_tid)
    }

    fn do_clone(&mut self, flags: u64, parent_tid: u64) -> Answer {
        let child = self.task.copy_process(flags)?;
        let tid = child.ids.tid;
        if flags & CLONE_PARENT_SETTID != 0 {
            // The task is there, whether its number can be stored or not.
            let _ = self.mem.copy_to_user(parent_tid, &tid.to_ne_bytes());
        }
        self.task.event = Some(Box::new(Event::Cloned { child, flags }));
        Ok(i64::from(tid))
    }

    pub(super) fn execve(&mut self) -> Answer {
        self.do_execveat(AT_FDCWD, 0, 0)
    }

    pub(super) fn execveat(&mut self) -> Answer {
        self.do_execveat(self.int(0), 1, self.int(4))
    }

    /// The path stands in argument `first`, the two vectors behind it.
    fn do_execveat(&mut self, dirfd: i32, first: usize, flags: i32) -> Answer {
        let path = self.name(first);
        let [argv, envp] = [self.args[first + 1], self.args[first + 2]];
        let Call { task, mem, .. } = self;
        let mut vectors = Vectors { mem: &mut **mem, left: ARG_CEILING as usize };
        let strings = || {
            let (argv, envp) = (vectors.pointers(argv)?, vectors.pointers(envp)?);
            Ok([vectors.strings(&argv)?, vectors.strings(&envp)?])
        };
        if let Some(exec) = task.execveat_late(dirfd, &path, flags, strings)? {
            task.event = Some(Box::new(Event::Executed(exec)));
        }
        Ok(0)
    }

    pub(super) fn exit(&mut self) -> Answer {
        self.do_exit(false)
    }

    pub(super) fn exit_group(&mut self) -> Answer {
        self.do_exit(true)
    }

    fn do_exit(&mut self, group: bool) -> Answer {
        let status = self.int(0);
        self.task.release();
        self.task.event = Some(Box::new(Event::Exited { status, group }));
        Ok(0)
    }
}

/// Argument and environment vectors in memory, of which only so much is read as a program could be given.
struct Vectors<'a> {
    mem: &'a mut dyn super::UserMemory,
    /// Bytes that may still be read.
    left: usize,
}

impl Vectors<'_> {
    fn take(&mut self, bytes: usize) -> Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or(Errno::E2BIG)?;
        Ok(())
    }

    /// The pointers from `address` up to a null pointer; none for a null `address`. Kernel: fs/exec.c `count()`.
    fn pointers(&mut self, address: u64) -> Result<Vec<u64>> {
        let mut pointers = Vec::new();
        if address == 0 {
            return Ok(pointers);
        }
        loop {
            let at = address.checked_add(pointers.len() as u64 * 8).ok_or(Errno::EFAULT)?;
            let mut bytes = [0; 8];
            self.mem.copy_from_user(&mut bytes, at)?;
            match u64::from_ne_bytes(bytes) {
                0 => return Ok(pointers),
                pointer => pointers.push(pointer),
            }
            self.take(8)?;
        }
    }

    /// Kernel: fs/exec.c `copy_strings()`.
    fn strings(&mut self, pointers: &[u64]) -> Result<Vec<Vec<u8>>> {
        let mut buffer = vec![0; MAX_ARG_STRLEN];
        let mut strings = Vec::with_capacity(pointers.len());
        for &pointer in pointers {
            let len = self.mem.strncpy_from_user(&mut buffer, pointer)?;
            if len == MAX_ARG_STRLEN {
                return Err(Errno::E2BIG);
            }
            self.take(len + 1)?;
            strings.push(buffer[..len].to_vec());
        }
        Ok(strings)
    }
}
