//! A task: the identity that makes the calls, and where it stands.

pub(crate) mod fork;
pub(crate) mod process;
pub(crate) mod program;

use crate::base::errno::{Errno, Result};
use crate::base::flags::OFlags;
use crate::base::uapi::{
    AT_FDCWD, CAP_SYS_CHROOT, F_CREATED_QUERY, F_DUPFD, F_DUPFD_CLOEXEC, F_DUPFD_QUERY, F_GETFD, F_GETFL,
    F_GETSIG, F_SETFD, F_SETFL, F_SETSIG, O_APPEND, O_ASYNC, O_CLOEXEC, O_DIRECT, O_NOATIME, O_NONBLOCK,
    PATH_MAX, S_IFDIR, S_IFIFO, S_IFMT,
};
use crate::cred::ucounts::Counted;
use crate::cred::{Cred, commoncap};
use crate::file::fs_struct::Place;
use crate::file::{File, FileArc, Opening};
#[cfg(doc)]
use crate::flags::FdFlags;
use crate::kernel::Kernel;
use crate::kernel::owners::{FileRef, FilesOwner, FsOwner, FsUse};
use crate::kernel::vfs::Vfs;
use crate::mount::Path;
use crate::namei::{At, Lookup, Position, Walker};
use crate::perm::{self, MAY_CHDIR, MAY_EXEC};
use crate::task::fork::{Limits, Process, task_charge};
use crate::task::program::{Event, ExecFile};
use rcuwalk_sync::{Charge, Racy32};
use std::sync::Arc;

/// A process of a [`Vfs`]: a credential, a root and current directory, a umask and a descriptor table. Its methods are the
/// system calls, with the kernel's argument order, flag words and errors.
///
/// Paths are bytes. Where the kernel would stop at a NUL, a path with one in it names nothing (`ENOENT`) and can create
/// nothing (`EINVAL`). Flags are the raw words of [`crate::base::uapi`], unknown bits included: each call treats them as the
/// kernel does.
///
/// Calls on one task may run on many threads at once, as the threads of one process do. Changing the credential takes
/// `&mut self`, as in the kernel a credential belongs to one thread.
#[derive(Debug)]
pub struct Task {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) cred: Arc<Cred>,
    pub(crate) fs: FsUse,
    pub(crate) files: Arc<FilesOwner>,
    pub(crate) process: Arc<Process>,
    /// It counts as one of its user's.
    pub(crate) user: Counted,
    pub(crate) _charge: Charge,
    /// The user id was changed to that of a user with too many tasks. Kernel: `PF_NPROC_EXCEEDED`.
    pub(crate) nproc_exceeded: Racy32,
    /// Nothing this task executes can give it privileges any more.
    pub(crate) no_new_privs: bool,
    /// The program that runs; its file cannot be written meanwhile. Kernel: `mm->exe_file`.
    pub(crate) exe: Option<Arc<ExecFile>>,
    /// The name of the task, padded with NULs. Kernel: `task_struct.comm`.
    pub(crate) comm: [u8; TASK_COMM_LEN],
    pub(crate) ids: Ids,
    /// What the last raw call leaves to the program that runs the task.
    pub(crate) event: Option<Box<Event>>,
    /// Lookups that the sleeping whole-path table let pass.
    pub(crate) passed: Racy32,
}

/// The numbers of a task, all in one pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ids {
    /// Of the thread.
    pub(crate) tid: i32,
    /// Of the process: its first thread's.
    pub(crate) tgid: i32,
    /// Of the process that made it; 0 if none did.
    pub(crate) ppid: i32,
}

/// Bytes of the name of a task, the NUL included.
pub(crate) const TASK_COMM_LEN: usize = 16;

/// Kernel: `_NSIG`.
const LAST_SIGNAL: i32 = 64;

impl Vfs {
    /// A new process with credential `cred`: its root and current directory are the root of the tree, its umask 022, its
    /// descriptor table empty.
    pub fn task(&self, cred: Cred) -> Task {
        Task::new(&self.0, cred)
    }
}

impl Task {
    pub(crate) fn new(kernel: &Arc<Kernel>, cred: Cred) -> Task {
        let tid = kernel.new_tid();
        let ids = Ids { tid, tgid: tid, ppid: 0 };
        Task {
            kernel: Arc::clone(kernel),
            user: kernel.users.of(&cred).count_task(),
            _charge: task_charge(kernel),
            nproc_exceeded: Racy32::default(),
            cred: Arc::new(cred),
            fs: FsUse::new(FsOwner::new(kernel, 0o022), ids.tgid),
            files: FilesOwner::new(kernel),
            process: Process::new(Limits::default(), true),
            no_new_privs: false,
            exe: None,
            comm: [0; TASK_COMM_LEN],
            ids,
            event: None,
            passed: Racy32::default(),
        }
    }

    /// The file system this task lives in.
    pub fn vfs(&self) -> Vfs {
        Vfs(Arc::clone(&self.kernel))
    }

    /// Root, current directory and umask for a process of its own. Kernel: fs/fs_struct.c `copy_fs_struct()`.
    pub(crate) fn copy_fs(&self) -> Arc<FsOwner> {
        // Nobody can take the places away meanwhile: this task's references keep them while it is borrowed, unless a
        // thread of the same process changes them, which `hold` notices.
        let places = [Place::Root, Place::Pwd].map(|place| self.hold(place));
        FsOwner::holding(&self.kernel, places, self.fs.fs.umask(), Arc::clone(&self.fs.mnt_ns))
    }

    /// Takes references to root or current directory.
    pub(crate) fn hold(&self, place: Place) -> Path {
        let fs = &self.fs.fs;
        loop {
            let start = fs.begin();
            let path = fs.peek(place);
            if self.kernel.hold(path, || !fs.retry(start)) {
                return path;
            }
        }
    }

    /// Gives up descriptors and program, and the number: the task has ended. Kernel: kernel/exit.c `do_exit()`.
    pub(crate) fn release(&mut self) {
        self.files = FilesOwner::new(&self.kernel);
        self.exe = None;
        self.ids.tid = 0;
    }

    /// The credential.
    pub fn cred(&self) -> &Cred {
        &self.cred
    }

    /// Replaces the credential, as a committed change of it does: the process is not [dumpable](Self::dumpable) any more if
    /// effective or filesystem ids change, or capabilities are gained.
    pub fn set_cred(&mut self, cred: Cred) {
        if !commoncap::keeps_dumpable(&self.cred, &cred) {
            self.set_dumpable(false);
        }
        if !self.user.user.is_of(&cred) {
            self.user = self.kernel.users.of(&cred).count_task();
        }
        self.cred = Arc::new(cred);
    }

    #[inline(always)]
    pub(crate) fn walker(&self) -> Walker<'_> {
        Walker { kernel: &self.kernel, cred: &self.cred, fs: &self.fs.fs, passed: &self.passed }
    }

    /// Runs `call` with the start that `dirfd` stands for.
    #[inline(always)]
    pub(crate) fn with_at<R>(&self, dirfd: i32, call: impl FnOnce(At<'_>) -> Result<R>) -> Result<R> {
        if dirfd == AT_FDCWD {
            return call(At::Cwd);
        }
        match self.file_any(dirfd) {
            Ok(file) => call(At::File(&file)),
            Err(_) => call(At::Bad),
        }
    }

    /// The open file behind `fd`, `O_PATH` ones included.
    pub(crate) fn file_any(&self, fd: i32) -> Result<FileRef<'_>> {
        Ok(FileRef::new(&self.kernel, self.files.table.get(fd)?))
    }

    /// The open file behind `fd`; `EBADF` for `O_PATH` ones.
    pub(crate) fn file(&self, fd: i32) -> Result<FileRef<'_>> {
        let file = self.file_any(fd)?;
        if file.mode.path { Err(Errno::EBADF) } else { Ok(file) }
    }

    /// Puts a new file into the table.
    #[inline(always)]
    pub(crate) fn install(&self, opening: Opening, flags: i32) -> Result<i32> {
        let cloexec = flags & O_CLOEXEC != 0;
        let installed = self.files.table.open(opening, &self.cred, cloexec, self.nofile_limit());
        installed.map_err(|(errno, file)| {
            self.kernel.fput(file);
            errno
        })
    }

    fn install_from(&self, file: FileArc, cloexec: bool, from: usize) -> Result<i32> {
        self.files.table.install(file, cloexec, from, self.nofile_limit()).map_err(|(errno, file)| {
            self.kernel.fput(file);
            errno
        })
    }

    /// Closes `fd`.
    ///
    /// # Errors
    ///
    /// `EBADF` if it is not open.
    pub fn close(&self, fd: i32) -> Result<()> {
        self.files.close(fd)
    }

    /// Duplicates `fd` to the lowest free number.
    ///
    /// # Errors
    ///
    /// `EBADF`, `EMFILE`.
    pub fn dup(&self, fd: i32) -> Result<i32> {
        self.install_from(self.files.table.get(fd)?, false, 0)
    }

    /// Duplicates `old` to `new`, closing what was there. With equal numbers it only checks that `old` is open.
    ///
    /// # Errors
    ///
    /// `EBADF`.
    pub fn dup2(&self, old: i32, new: i32) -> Result<i32> {
        if old == new {
            drop(self.file_any(old)?);
            return Ok(new);
        }
        self.dup3(old, new, 0)
    }

    /// Duplicates `old` to `new`, closing what was there; `flags` is 0 or `O_CLOEXEC`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for other flags or equal numbers, `EBADF`.
    pub fn dup3(&self, old: i32, new: i32, flags: impl Into<OFlags>) -> Result<i32> {
        let flags = flags.into().bits();
        if flags & !O_CLOEXEC != 0 || old == new {
            return Err(Errno::EINVAL);
        }
        if let Some(file) = self.files.table.dup_to(old, new, flags & O_CLOEXEC != 0, self.nofile_limit())? {
            self.files.filp_close(file);
        }
        Ok(new)
    }

    /// `F_DUPFD`, `F_DUPFD_CLOEXEC`, `F_DUPFD_QUERY` (1 if `arg` is a duplicate of `fd`, else 0), `F_CREATED_QUERY` (1 if opening
    /// `fd` made the file), `F_GETFD`, `F_SETFD` (`arg`: [`FdFlags`]), `F_GETFL`, `F_SETFL` (`arg`: [`OFlags`]), `F_GETSIG` and
    /// `F_SETSIG`. No signal is ever sent.
    ///
    /// # Errors
    ///
    /// `EBADF`, `EMFILE`, `EINVAL` (another command; a number out of range, a signal above 64 included), `EPERM` (`O_NOATIME` for another's file,
    /// `O_APPEND` other than it is of an append-only one), `EINVAL` (`O_DIRECT` of a directory).
    pub fn fcntl(&self, fd: i32, cmd: i32, arg: impl Into<i32>) -> Result<i32> {
        let (file, arg) = (self.file_any(fd)?, arg.into());
        let of_any = matches!(
            cmd,
            F_DUPFD | F_DUPFD_CLOEXEC | F_DUPFD_QUERY | F_CREATED_QUERY | F_GETFD | F_SETFD | F_GETFL
        );
        if file.mode.path && !of_any {
            return Err(Errno::EBADF);
        }
        match cmd {
            F_DUPFD | F_DUPFD_CLOEXEC => {
                let from = usize::try_from(arg).map_err(|_| Errno::EINVAL)?;
                if from >= self.nofile_limit() {
                    return Err(Errno::EINVAL);
                }
                self.install_from(file.clone(), cmd == F_DUPFD_CLOEXEC, from)
            }
            F_DUPFD_QUERY => Ok(i32::from(FileArc::ptr_eq(&file, &*self.file_any(arg)?))),
            F_CREATED_QUERY => Ok(i32::from(file.mode.created)),
            F_GETSIG => Ok(file.signal.get() as i32),
            F_SETSIG if (0..=LAST_SIGNAL).contains(&arg) => {
                file.signal.set(arg as u32);
                Ok(0)
            }
            F_GETFD => self.files.table.fd_flags(fd),
            F_SETFD => self.files.table.set_fd_flags(fd, arg).map(|()| 0),
            F_GETFL => Ok(file.flags.get() as i32),
            F_SETFL => self.set_status_flags(&file, arg).map(|()| 0),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Kernel: fs/fcntl.c `setfl()`.
    fn set_status_flags(&self, file: &File, flags: i32) -> Result<()> {
        let attr = self.kernel.read_attr(file.path.mnt, file.inode);
        let old = file.flags.get() as i32;
        if (old ^ flags) & O_APPEND != 0 && attr.iflags & perm::IFLAG_APPEND != 0 {
            return Err(Errno::EPERM);
        }
        if flags & !old & O_NOATIME != 0 && !perm::owner_or_capable(&self.cred, &attr) {
            return Err(Errno::EPERM);
        }
        let changeable = O_APPEND | O_NONBLOCK | O_DIRECT | O_NOATIME;
        let changeable = match attr.mode & S_IFMT {
            // To a fifo it means packets; and it sends signals.
            S_IFIFO => changeable | O_ASYNC,
            S_IFDIR if flags & O_DIRECT != 0 => return Err(Errno::EINVAL),
            _ => changeable,
        };
        file.flags.set((old & !changeable | flags & changeable) as u32);
        Ok(())
    }

    /// Sets the umask to `mask & 0777`; gives the old one.
    pub fn umask(&self, mask: u32) -> u32 {
        self.fs.fs.set_umask(mask)
    }

    /// Changes the current directory.
    ///
    /// # Errors
    ///
    /// Those of the walk, `ENOTDIR`, `EACCES`.
    ///
    /// Kernel: fs/open.c `chdir()`.
    pub fn chdir(&self, path: &[u8]) -> Result<()> {
        let to = self.lookup_held(At::Cwd, path, Lookup::DIRECTORY, |p| self.may_enter(p.path()))?;
        self.replace(Place::Pwd, to);
        Ok(())
    }

    /// Changes the current directory to the one behind `fd`, which may be an `O_PATH` one.
    ///
    /// # Errors
    ///
    /// `EBADF`, `ENOTDIR`, `EACCES`.
    pub fn fchdir(&self, fd: i32) -> Result<()> {
        let file = self.file_any(fd)?;
        if self.kernel.store.see(file.path.dentry).meta.file_type() != S_IFDIR {
            return Err(Errno::ENOTDIR);
        }
        self.may_enter(file.path)?;
        self.kernel.path_get(file.path);
        self.replace(Place::Pwd, file.path);
        Ok(())
    }

    /// Changes the root directory of the process; the current directory stays.
    ///
    /// # Errors
    ///
    /// Those of the walk, `ENOTDIR`, `EACCES`, then `EPERM` without `CAP_SYS_CHROOT`.
    pub fn chroot(&self, path: &[u8]) -> Result<()> {
        let to = self.lookup_held(At::Cwd, path, Lookup::DIRECTORY, |p| {
            self.may_enter(p.path())?;
            if self.cred.capable_here(CAP_SYS_CHROOT) { Ok(()) } else { Err(Errno::EPERM) }
        })?;
        self.replace(Place::Root, to);
        Ok(())
    }

    /// Looks `path` up, lets `check` refuse, and gives the place with a reference.
    pub(crate) fn lookup_held(
        &self,
        at: At<'_>,
        path: &[u8],
        lookup: Lookup,
        mut check: impl FnMut(Position) -> Result<()>,
    ) -> Result<Path> {
        loop {
            let m_seq = self.kernel.mounts.seq.begin();
            let position = self.walker().filename_lookup(at, path, lookup, |position| {
                check(position)?;
                Ok(position)
            })?;
            // The walk's own references, if it had any, are gone by now: what it saw may have gone with them.
            if self.kernel.legitimize(position.mnt, position.seen, m_seq).is_ok() {
                return Ok(position.path());
            }
        }
    }

    /// Whether this task may have the directory as current or root directory.
    fn may_enter(&self, place: Path) -> Result<()> {
        let inode = self.kernel.store.d_inode(place.dentry);
        self.kernel.inode_permission(place.mnt, inode, &self.cred, MAY_EXEC | MAY_CHDIR)
    }

    /// Puts a place, whose reference passes along, where the old one was, whose reference is given back.
    fn replace(&self, place: Place, path: Path) {
        let old = self.fs.fs.replace(place, path);
        self.kernel.path_put(old);
    }

    /// The path of the current directory, from the root directory; `(unreachable)` stands before it if it is not below.
    ///
    /// # Errors
    ///
    /// `ENOENT` if it was removed, `ENAMETOOLONG` if the path has more than 4095 bytes.
    ///
    /// Kernel: fs/d_path.c `getcwd()`.
    pub fn getcwd(&self) -> Result<Vec<u8>> {
        let store = &self.kernel.store;
        let ns = store.lock();
        let (root, pwd) = (self.fs.fs.peek(Place::Root), self.fs.fs.peek(Place::Pwd));
        // The root of a file system has no name either, but was not removed.
        let is_root = store.dentry(pwd.dentry).parent.get() == pwd.dentry;
        if !is_root && !store.see(pwd.dentry).meta.is_hashed() {
            return Err(Errno::ENOENT);
        }
        // However deep it lies, no more names are gone through than fit.
        let (mut path, below) = self.kernel.prepend_path(&ns, pwd, root, PATH_MAX);
        drop(ns);
        if !below {
            path.splice(..0, *b"(unreachable)");
        }
        if path.len() >= PATH_MAX { Err(Errno::ENAMETOOLONG) } else { Ok(path) }
    }

    /// [`getcwd`](Self::getcwd) into room of the caller, with a NUL behind it; gives the number of bytes, the NUL included.
    ///
    /// # Errors
    ///
    /// As [`getcwd`](Self::getcwd), then `ERANGE` if the room is too small.
    pub fn getcwd_into(&self, buf: &mut [u8]) -> Result<usize> {
        let mut path = self.getcwd()?;
        path.push(0);
        buf.get_mut(..path.len()).ok_or(Errno::ERANGE)?.copy_from_slice(&path);
        Ok(path.len())
    }
}
