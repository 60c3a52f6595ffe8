//! Processes and threads: what they share, and what a new one gets.
//!
//! Kernel: kernel/fork.c, fs/fs_struct.c, kernel/exit.c.

use crate::cred::Cred;
use crate::errno::{Errno, Result};
use crate::exec::STACK_DEFAULT;
use crate::files::{FileArc, Files, Removed};
use crate::fs_struct::{FsStruct, Place};
use crate::kernel::Kernel;
use crate::mount::Path;
use crate::namespace::MntNamespace;
use crate::store::Namespace;
use crate::sysctl::Sysctl;
use crate::task::{Ids, Task};
use crate::uapi::*;
use rcuwalk_sync::lock::{Mutex, PoisonError};
use rcuwalk_sync::{Racy32, Racy64};
use std::sync::{Arc, Weak};

/// `RLIMIT_NOFILE` of a fresh task.
const DEFAULT_NOFILE: u64 = 1024;

/// What the threads of a process share, beside what they may share with others. Kernel: `struct signal_struct`.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) limits: Limits,
}

impl Process {
    pub(crate) fn new(limits: Limits) -> Arc<Process> {
        Arc::new(Process { limits })
    }

    /// Whether there is no other thread. Kernel: `thread_group_empty()`.
    pub(crate) fn has_one_thread(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
    }
}

/// Soft resource limits.
#[derive(Debug)]
pub(crate) struct Limits {
    fsize: Racy64,
    stack: Racy64,
    nofile: Racy64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            fsize: Racy64::new(u64::MAX),
            stack: Racy64::new(STACK_DEFAULT),
            nofile: Racy64::new(DEFAULT_NOFILE),
        }
    }
}

impl Limits {
    fn copy(&self) -> Limits {
        let copy = |limit: &Racy64| Racy64::new(limit.get());
        Limits { fsize: copy(&self.fsize), stack: copy(&self.stack), nofile: copy(&self.nofile) }
    }

    /// `RLIMIT_NOFILE`.
    pub(crate) fn nofile(&self) -> u64 {
        self.nofile.get()
    }
}

/// An [`FsStruct`] with the references it holds.
#[derive(Debug)]
pub(crate) struct FsOwner {
    kernel: Arc<Kernel>,
    pub(crate) fs: FsStruct,
    /// Who shares root and current directory shares the mounts they are in.
    pub(crate) mnt_ns: Arc<MntNamespace>,
    /// The number of the process of each task that uses it. Kernel: `fs_struct.users`.
    users: Mutex<Vec<i32>>,
}

impl Drop for FsOwner {
    fn drop(&mut self) {
        for place in [Place::Root, Place::Pwd] {
            self.kernel.path_put(self.fs.peek(place));
        }
    }
}

impl FsOwner {
    /// At the root of the first mount.
    pub(crate) fn new(kernel: &Arc<Kernel>, umask: u32) -> Arc<FsOwner> {
        let root = kernel.root();
        kernel.path_get(root);
        kernel.path_get(root);
        FsOwner::holding(kernel, [root, root], umask, MntNamespace::init(kernel))
    }

    /// At `root` and `pwd`, whose references pass to the new owner.
    pub(crate) fn holding(
        kernel: &Arc<Kernel>,
        [root, pwd]: [Path; 2],
        umask: u32,
        mnt_ns: Arc<MntNamespace>,
    ) -> Arc<FsOwner> {
        let fs = FsStruct::new(root, pwd, umask);
        let owner = Arc::new(FsOwner { kernel: Arc::clone(kernel), fs, mnt_ns, users: Mutex::default() });
        kernel.fs_owners.add(&owner);
        owner
    }

    fn users(&self) -> rcuwalk_sync::lock::MutexGuard<'_, Vec<i32>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The use that one task makes of an [`FsOwner`].
#[derive(Debug)]
pub(crate) struct FsUse {
    owner: Arc<FsOwner>,
    tgid: i32,
}

impl FsUse {
    pub(crate) fn new(owner: Arc<FsOwner>, tgid: i32) -> FsUse {
        owner.users().push(tgid);
        FsUse { owner, tgid }
    }

    /// Whether no other task uses it.
    pub(crate) fn is_sole(&self) -> bool {
        self.owner.users().len() == 1
    }

    /// Whether a task of another process uses it, too. Kernel: fs/exec.c `check_unsafe_exec()`.
    pub(crate) fn is_shared_with_others(&self) -> bool {
        self.owner.users().iter().any(|&tgid| tgid != self.tgid)
    }
}

impl std::ops::Deref for FsUse {
    type Target = FsOwner;

    #[inline(always)]
    fn deref(&self) -> &FsOwner {
        &self.owner
    }
}

impl Drop for FsUse {
    fn drop(&mut self) {
        let mut users = self.owner.users();
        if let Some(at) = users.iter().position(|&tgid| tgid == self.tgid) {
            users.swap_remove(at);
        }
    }
}

/// Everything of a kind that the tasks of a [`Kernel`] share, for those who look at all of it.
#[derive(Debug)]
pub(crate) struct Registry<T>(Mutex<Vec<Weak<T>>>);

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Registry(Mutex::default())
    }
}

impl<T> Registry<T> {
    fn list(&self) -> rcuwalk_sync::lock::MutexGuard<'_, Vec<Weak<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, owner: &Arc<T>) {
        let mut list = self.list();
        if list.len() == list.capacity() {
            // Before it would grow: that keeps it within twice what there is.
            list.retain(|owner| owner.strong_count() != 0);
            let live = list.len();
            list.reserve(live + 8);
        }
        list.push(Arc::downgrade(owner));
    }

    /// Those that are in use. They must not be dropped under the lock of the name space, which their own drop takes.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.list().iter().filter_map(Weak::upgrade).collect()
    }
}

impl Kernel {
    /// Moves each process whose root or current directory is `from` to `to`. Kernel: fs/fs_struct.c `chroot_fs_refs()`.
    pub(crate) fn chroot_fs_refs(&self, ns: &mut Namespace, owners: &[Arc<FsOwner>], from: Path, to: Path) {
        for owner in owners {
            for place in [Place::Root, Place::Pwd] {
                self.path_get(to);
                let unused = if owner.fs.replace_if(place, from, to) { from } else { to };
                self.path_put_locked(ns, unused);
            }
        }
    }
}

/// A [`Files`] with the references it holds.
#[derive(Debug)]
pub(crate) struct FilesOwner {
    kernel: Arc<Kernel>,
    pub(crate) table: Files,
    /// By which number its POSIX locks are known; 0 while it never had any.
    pub(crate) lock_owner: Racy64,
}

impl Drop for FilesOwner {
    fn drop(&mut self) {
        self.table.drain().into_iter().for_each(|file| self.filp_close(file));
    }
}

impl FilesOwner {
    /// An empty table.
    pub(crate) fn new(kernel: &Arc<Kernel>) -> Arc<FilesOwner> {
        FilesOwner::with(kernel, Files::default())
    }

    /// A table of the same open files.
    pub(crate) fn duplicate(&self) -> Arc<FilesOwner> {
        FilesOwner::with(&self.kernel, self.table.duplicate())
    }

    fn with(kernel: &Arc<Kernel>, table: Files) -> Arc<FilesOwner> {
        let kernel = Arc::clone(kernel);
        let owner = Arc::new(FilesOwner { kernel, table, lock_owner: Racy64::new(0) });
        owner.kernel.files_owners.add(&owner);
        owner
    }

    /// Closes `fd`. Kernel: fs/open.c `close()`.
    ///
    /// # Errors
    ///
    /// `EBADF`.
    #[inline]
    pub(crate) fn close(&self, fd: i32) -> Result<()> {
        match self.table.remove(fd)? {
            Removed::Last(file) => {
                self.kernel.locks.remove_posix(file.inode, file.mode, self);
                self.kernel.release(file);
            }
            Removed::Shared(file) => self.filp_close(file),
        }
        Ok(())
    }

    /// Gives back a file that was taken out of the table. Kernel: fs/open.c `filp_close()`.
    #[inline]
    pub(crate) fn filp_close(&self, file: FileArc) {
        self.kernel.locks.remove_posix(file.inode, file.mode, self);
        self.kernel.fput(file);
    }
}

/// What a new task shares with the one that makes it, and what new namespaces it gets: the flags of clone(2) that matter to
/// pathnames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CloneFlags {
    /// `CLONE_FS`: root, current directory and umask are shared.
    pub fs: bool,
    /// `CLONE_FILES`: the descriptor table is shared.
    pub files: bool,
    /// `CLONE_THREAD`: a thread of the same process, with the very same credential.
    pub thread: bool,
    /// `CLONE_NEWNS`: a copy of the mount tree.
    pub new_ns: bool,
    /// `CLONE_NEWUSER`: a new user namespace.
    pub new_user: bool,
}

impl CloneFlags {
    /// Reads the flags of clone(2). Those that have nothing to do with pathnames are ignored, the signal in the lowest byte
    /// among them.
    ///
    /// # Errors
    ///
    /// `EINVAL`: `CLONE_FS` together with `CLONE_NEWNS` or `CLONE_NEWUSER`; `CLONE_THREAD` without `CLONE_SIGHAND`, or with
    /// `CLONE_NEWUSER`; `CLONE_SIGHAND` without `CLONE_VM`.
    ///
    /// Kernel: kernel/fork.c `copy_process()`.
    pub fn from_bits(bits: u64) -> Result<CloneFlags> {
        let has = |flag| bits & flag != 0;
        if has(CLONE_THREAD) && !has(CLONE_SIGHAND) || has(CLONE_SIGHAND) && !has(CLONE_VM) {
            return Err(Errno::EINVAL);
        }
        let flags = CloneFlags {
            fs: has(CLONE_FS),
            files: has(CLONE_FILES),
            thread: has(CLONE_THREAD),
            new_ns: has(CLONE_NEWNS),
            new_user: has(CLONE_NEWUSER),
        };
        flags.check()?;
        Ok(flags)
    }

    fn check(self) -> Result<()> {
        let contradicts = self.fs && (self.new_ns || self.new_user) || self.thread && self.new_user;
        if contradicts { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

impl Task {
    /// A child process: copies of the credential, root, current directory, umask and descriptor table; open files are
    /// shared. Kernel: `fork()`.
    pub fn fork(&self) -> Task {
        let files = self.files.duplicate();
        self.child(Arc::new(Cred::clone(&self.cred)), self.copy_fs(), files, false)
    }

    /// Another thread of the same process: root, current directory, umask, descriptor table and limits are shared, the
    /// credential is the very same one. Kernel: `clone(CLONE_THREAD | CLONE_FS | CLONE_FILES)`.
    pub fn thread(&self) -> Task {
        let (fs, files) = (Arc::clone(&self.fs.owner), Arc::clone(&self.files));
        self.child(Arc::clone(&self.cred), fs, files, true)
    }

    /// A new task that shares with this one what `flags` say, and has copies of the rest. Kernel: kernel/fork.c
    /// `copy_process()`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (flags that contradict each other), `EPERM` (`new_ns` without `CAP_SYS_ADMIN` in the child's user
    /// namespace; `new_user` in a changed root), `ENOSPC` (namespaces above each other, mounts).
    ///
    /// ```
    /// # use rcuwalk::{CloneFlags, Cred, Vfs};
    /// # let vfs = Vfs::new()?;
    /// let task = vfs.task(Cred::root());
    /// task.mkdir(b"/d", 0o755)?;
    /// let child = task.clone_with(CloneFlags { fs: true, ..CloneFlags::default() })?;
    /// child.chdir(b"/d")?;
    /// assert_eq!(task.getcwd()?, b"/d");
    /// # Ok::<(), rcuwalk::Errno>(())
    /// ```
    pub fn clone_with(&self, flags: CloneFlags) -> Result<Task> {
        flags.check()?;
        let cred = if flags.new_user {
            Arc::new(self.cred.unshare_user(self.chrooted())?)
        } else if flags.thread {
            Arc::clone(&self.cred)
        } else {
            Arc::new(Cred::clone(&self.cred))
        };
        let fs = if flags.new_ns {
            if !cred.capable_here(CAP_SYS_ADMIN) {
                return Err(Errno::EPERM);
            }
            self.copy_mnt_ns(Arc::clone(cred.user_ns()))?
        } else if flags.fs {
            Arc::clone(&self.fs.owner)
        } else {
            self.copy_fs()
        };
        let files = if flags.files { Arc::clone(&self.files) } else { self.files.duplicate() };
        Ok(self.child(cred, fs, files, flags.thread))
    }

    fn child(&self, cred: Arc<Cred>, fs: Arc<FsOwner>, files: Arc<FilesOwner>, thread: bool) -> Task {
        let new = self.kernel.new_ids(self.ids.tgid);
        let (ids, process) = if thread {
            (Ids { tid: new.tid, ..self.ids }, Arc::clone(&self.process))
        } else {
            (new, Process::new(self.process.limits.copy()))
        };
        Task {
            kernel: Arc::clone(&self.kernel),
            cred,
            fs: FsUse::new(fs, ids.tgid),
            files,
            process,
            no_new_privs: self.no_new_privs,
            exe: self.exe.clone(),
            ids,
            event: None,
            passed: Racy32::default(),
        }
    }

    /// Makes copies of what this task shares with others. `flags`: `CLONE_FS` (root, current directory and umask),
    /// `CLONE_FILES` (the descriptor table), `CLONE_NEWNS` (the mount tree), `CLONE_NEWUSER` (a new user namespace, in which
    /// this task has every capability and no id is mapped yet). `CLONE_THREAD`, `CLONE_SIGHAND` and `CLONE_VM` demand that
    /// the process has no other thread, and so does `CLONE_NEWUSER`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (flags; other threads), `EPERM` (`CLONE_NEWNS` without `CAP_SYS_ADMIN`; `CLONE_NEWUSER` in a changed root),
    /// `ENOSPC` (too many namespaces above each other; too many mounts).
    ///
    /// Kernel: kernel/fork.c `ksys_unshare()`.
    pub fn unshare(&mut self, flags: u64) -> Result<()> {
        const ALONE: u64 = CLONE_THREAD | CLONE_SIGHAND | CLONE_VM | CLONE_NEWUSER;
        if flags & !(CLONE_FS | CLONE_FILES | CLONE_NEWNS | ALONE) != 0 {
            return Err(Errno::EINVAL);
        }
        if flags & ALONE != 0 && !self.process.has_one_thread() {
            return Err(Errno::EINVAL);
        }
        let cred =
            if flags & CLONE_NEWUSER != 0 { Some(self.cred.unshare_user(self.chrooted())?) } else { None };
        let new_ns = flags & CLONE_NEWNS != 0;
        if new_ns && !cred.as_ref().unwrap_or(&self.cred).capable_here(CAP_SYS_ADMIN) {
            return Err(Errno::EPERM);
        }
        if new_ns {
            let user_ns = Arc::clone(cred.as_ref().unwrap_or(&self.cred).user_ns());
            self.fs = FsUse::new(self.copy_mnt_ns(user_ns)?, self.ids.tgid);
        } else if flags & (CLONE_FS | CLONE_NEWUSER) != 0 {
            self.fs = FsUse::new(self.copy_fs(), self.ids.tgid);
        }
        if flags & CLONE_FILES != 0 {
            self.unshare_files();
        }
        if let Some(cred) = cred {
            self.set_cred(cred);
        }
        Ok(())
    }

    /// Makes a copy of the descriptor table this task's own, if others use it.
    pub(crate) fn unshare_files(&mut self) {
        if Arc::strong_count(&self.files) > 1 {
            self.files = self.files.duplicate();
        }
    }
}

/// Limits of the process: its threads share them, its children start with them.
impl Task {
    /// Sets `RLIMIT_NOFILE` (soft): descriptors are numbered below it.
    pub fn set_nofile_limit(&self, limit: usize) {
        self.process.limits.nofile.set(limit as u64);
    }

    /// Descriptors are numbered below it: what the process's limit and that of all processes leave.
    #[inline]
    pub(crate) fn nofile_limit(&self) -> usize {
        self.process.limits.nofile().min(self.kernel.settings.get(Sysctl::NrOpen)) as usize
    }

    /// Sets `RLIMIT_FSIZE` (soft), in bytes. What would send `SIGXFSZ` only fails, with `EFBIG`.
    pub fn set_fsize_limit(&self, bytes: u64) {
        self.process.limits.fsize.set(bytes);
    }

    pub(crate) fn fsize_limit(&self) -> u64 {
        self.process.limits.fsize.get()
    }

    /// Sets `RLIMIT_STACK` (soft), in bytes: execve lets arguments and environment take a quarter of it, but at least
    /// 128 KiB and at most 6 MiB.
    pub fn set_stack_limit(&self, bytes: u64) {
        self.process.limits.stack.set(bytes);
    }

    pub(crate) fn stack_limit(&self) -> u64 {
        self.process.limits.stack.get()
    }
}
