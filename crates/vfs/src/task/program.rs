//! The program that a task runs, or is to run, and what a raw call leaves to the caller.

use crate::base::errno::{Errno, Result};
use crate::cred::Cred;
use crate::file::FileArc;
use crate::kernel::Kernel;
use crate::task::Task;
use std::sync::Arc;

/// A file that is being executed. While it is, nobody can open it for writing (`ETXTBSY`).
#[derive(Debug)]
pub struct ExecFile {
    kernel: Arc<Kernel>,
    /// Taken by drop.
    file: Option<FileArc>,
}

impl Drop for ExecFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            let store = &self.kernel.store;
            let ns = store.lock();
            store.allow_write_access(&ns, file.inode);
            self.kernel.exec_files.set(self.kernel.exec_files.get().wrapping_sub(1));
            drop(ns);
            self.kernel.fput(file);
        }
    }
}

impl ExecFile {
    /// Denies writing to `file`, which stays open.
    ///
    /// # Errors
    ///
    /// `ETXTBSY` if a task has it open for writing.
    pub(crate) fn new(kernel: &Arc<Kernel>, file: FileArc) -> Result<ExecFile> {
        let store = &kernel.store;
        let ns = store.lock();
        let denied = store.deny_write_access(&ns, file.inode);
        kernel.exec_files.set(kernel.exec_files.get().wrapping_add(u32::from(denied.is_ok())));
        drop(ns);
        match denied {
            Ok(()) => Ok(ExecFile { kernel: Arc::clone(kernel), file: Some(file) }),
            Err(errno) => {
                kernel.fput(file);
                Err(errno)
            }
        }
    }

    pub(crate) fn file(&self) -> &FileArc {
        match &self.file {
            Some(file) => file,
            None => unreachable!("taken only by drop"),
        }
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.kernel.store.inode(self.file().inode).size.get()
    }

    /// The inode number.
    pub fn ino(&self) -> u64 {
        self.kernel.store.inode(self.file().inode).ino.get()
    }

    /// Reads at byte `offset`; gives the number of bytes, fewer than asked for at the end. Who executes a file may read it
    /// this way, whatever its permissions.
    ///
    /// # Errors
    ///
    /// `ENODATA` if the file was imported without its contents.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.kernel.read_at(self.file(), buf, offset)
    }

    /// Fills `buf` from byte `offset`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (beyond the largest offset), `EIO` (the file ends before that), `ENODATA`.
    ///
    /// Kernel: fs/binfmt_elf.c `elf_read()`.
    pub(crate) fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|&end| i64::try_from(end).is_ok());
        end.ok_or(Errno::EINVAL)?;
        if self.read_at(buf, offset)? == buf.len() { Ok(()) } else { Err(Errno::EIO) }
    }
}

/// The program interpreter that an ELF file asks for: the dynamic loader.
#[derive(Debug)]
#[non_exhaustive]
pub struct Interpreter {
    /// Its path, as the file has it.
    pub path: Vec<u8>,
    /// The file.
    pub file: ExecFile,
}

/// A program that is about to run: what a loader needs. The task has the new credential already.
#[derive(Debug)]
#[non_exhaustive]
pub struct Exec {
    /// The file to load, at the end of a chain of scripts. The task keeps it, too, for as long as it runs the program.
    pub file: Arc<ExecFile>,
    /// The path by which that file was opened: the interpreter of the last script, or `filename`.
    pub interp: Vec<u8>,
    /// The dynamic loader, if the file asks for one.
    pub interpreter: Option<Interpreter>,
    /// Arguments; at least one. Those of scripts stand in front.
    pub argv: Vec<Vec<u8>>,
    /// Environment.
    pub envp: Vec<Vec<u8>>,
    /// What was executed, `AT_EXECFN`: the path as given, or `/dev/fd/N/path` for one relative to a descriptor.
    pub filename: Vec<u8>,
    /// The credential that the task now has.
    pub cred: Arc<Cred>,
    /// `AT_SECURE`: the program has privileges that who started it has not, and must not trust its environment.
    pub secureexec: bool,
    /// Whether others of the same user may look into the process; not if the program cannot be read, or ids changed.
    pub dumpable: bool,
}

/// What a raw call leaves to the program that runs the task: the engine runs none itself.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The call made a task, and answered its number. In the child, it answers 0.
    Cloned {
        /// The new task.
        child: Task,
        /// `CLONE_*`, as they were given, for what the engine does not model: memory, stacks, signals, thread-local storage.
        flags: u64,
    },
    /// The task is to run another program. The call answered 0.
    Executed(Exec),
    /// The task has ended: its descriptors are closed, and every further call is `ESRCH`. The call answered 0.
    Exited {
        /// The status, of which a parent sees the lowest eight bits.
        status: i32,
        /// Whether all threads of the process end with it. The program that runs the tasks
        /// has to end the others.
        group: bool,
    },
}
