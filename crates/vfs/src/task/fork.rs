//! Processes and threads: what they share, and what a new one gets.
//!
//! Kernel: kernel/fork.c, fs/fs_struct.c, kernel/exit.c.

use crate::base::errno::{Errno, Result};
use crate::base::flags::UnshareFlags;
use crate::base::uapi::*;
use crate::cred::Cred;
use crate::cred::ucounts::{Counted, Ucount, UserCount};
use crate::cred::userns::USERNS_BYTES;
use crate::kernel::Kernel;
use crate::kernel::owners::{FilesOwner, FsOwner, FsUse};
use crate::kernel::sysctl::Sysctl;
use crate::task::{Ids, Task};
use rcuwalk_sync::{Beyond, Charge, MODELLED, Racy32, Racy64};
use std::sync::Arc;

/// `RLIMIT_NOFILE` of a fresh task.
const DEFAULT_NOFILE: u64 = 1024;
/// The hard one: as far as `fs.nr_open` goes unless it is changed.
const HARD_NOFILE: u64 = 1 << 20;

/// `RLIMIT_STACK` of a fresh task, in bytes: the kernel's `_STK_LIM`.
pub(crate) const STACK_DEFAULT: u64 = 8 << 20;

/// What a task counts for as memory, its descriptors apart; bytes.
const TASK_BYTES: u64 = 2048;

/// The owner of root and current directory may leave its place in a list behind for as long again.
const _: () = assert!(
    MODELLED
        || size_of::<Task>()
            + size_of::<Process>()
            + 2 * size_of::<FsOwner>()
            + size_of::<Cred>()
            + size_of::<UserCount>()
            <= TASK_BYTES as usize - 256
);

/// Counts a task that the host makes, whatever the limit.
pub(crate) fn task_charge(kernel: &Kernel) -> Charge {
    Charge::with(kernel.memory.as_ref(), TASK_BYTES, Beyond::Counted).unwrap_or_default()
}

/// What the threads of a process share, beside what they may share with others. Kernel: `struct signal_struct`.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) limits: Limits,
    /// 1 unless others of the same user may not look into it. Kernel: `get_dumpable()`, of the memory.
    pub(crate) dumpable: Racy32,
}

impl Process {
    pub(crate) fn new(limits: Limits, dumpable: bool) -> Arc<Process> {
        Arc::new(Process { limits, dumpable: Racy32::new(u32::from(dumpable)) })
    }

    /// Whether there is no other thread. Kernel: `thread_group_empty()`.
    pub(crate) fn has_one_thread(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
    }
}

/// A resource limit. Kernel: `struct rlimit64`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rlimit {
    /// The soft limit, which is in force; `u64::MAX` is none.
    pub cur: u64,
    /// The hard limit, up to which the soft one can be raised.
    pub max: u64,
}

/// The resources that matter to pathnames. Kernel: `RLIMIT_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    FileSize,
    Stack,
    Processes,
    Descriptors,
}

impl Resource {
    pub(crate) fn of(number: u32) -> Result<Resource> {
        match number {
            RLIMIT_FSIZE => Ok(Resource::FileSize),
            RLIMIT_STACK => Ok(Resource::Stack),
            RLIMIT_NPROC => Ok(Resource::Processes),
            RLIMIT_NOFILE => Ok(Resource::Descriptors),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// The limits of a process, soft and hard, in the order of [`Resource`].
#[derive(Debug)]
pub(crate) struct Limits([[Racy64; 2]; 4]);

impl Default for Limits {
    fn default() -> Self {
        let limit = |soft, hard| [Racy64::new(soft), Racy64::new(hard)];
        let none = u64::MAX;
        Limits([
            limit(none, none),
            limit(STACK_DEFAULT, none),
            limit(none, none),
            limit(DEFAULT_NOFILE, HARD_NOFILE),
        ])
    }
}

impl Limits {
    fn copy(&self) -> Limits {
        Limits([0, 1, 2, 3].map(|of| [0, 1].map(|which| Racy64::new(self.0[of][which].get()))))
    }

    /// The soft limit.
    #[inline(always)]
    pub(crate) fn soft(&self, resource: Resource) -> u64 {
        self.0[resource as usize][0].get()
    }

    fn get(&self, resource: Resource) -> Rlimit {
        let [cur, max] = [0, 1].map(|which| self.0[resource as usize][which].get());
        Rlimit { cur, max }
    }

    fn set(&self, resource: Resource, Rlimit { cur, max }: Rlimit) {
        let [soft, hard] = &self.0[resource as usize];
        soft.set(cur);
        hard.set(max);
    }

    /// Sets the soft limit, and raises the hard one if it has to be.
    fn set_soft(&self, resource: Resource, cur: u64) {
        self.set(resource, Rlimit { cur, max: self.get(resource).max.max(cur) });
    }
}

/// What a new task shares with the one that makes it, and what new namespaces it gets: the flags of clone(2) that matter to
/// pathnames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
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
    setters! {
        with_fs fs: bool;
        with_files files: bool;
        with_thread thread: bool;
        with_new_ns new_ns: bool;
        with_new_user new_user: bool;
    }
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
    /// shared. Kernel: `fork()`.  Differs: `RLIMIT_NPROC` is not asked; [`clone_with`](Self::clone_with) does.
    pub fn fork(&self) -> Task {
        let files = self.files.duplicate(Beyond::Counted);
        let files = files.unwrap_or_else(|_| unreachable!("nothing is refused"));
        let user = (self.user.user.count_task(), task_charge(&self.kernel));
        self.child(Arc::new(Cred::clone(&self.cred)), user, self.copy_fs(), files, false)
    }

    /// Another thread of the same process: root, current directory, umask, descriptor table and limits are shared, the
    /// credential is the very same one. Kernel: `clone(CLONE_THREAD | CLONE_FS | CLONE_FILES)`.
    pub fn thread(&self) -> Task {
        let (fs, files) = (Arc::clone(&self.fs.owner), Arc::clone(&self.files));
        let user = (self.user.user.count_task(), task_charge(&self.kernel));
        self.child(Arc::clone(&self.cred), user, fs, files, true)
    }

    /// A new task that shares with this one what `flags` say, and has copies of the rest. Kernel: kernel/fork.c
    /// `copy_process()`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (flags that contradict each other), `EPERM` (`new_ns` without `CAP_SYS_ADMIN` in the child's user
    /// namespace; `new_user` in a changed root), `ENOSPC` (namespaces above each other, mounts, `user.max_*`), `EAGAIN` (more tasks of
    /// the user than `RLIMIT_NPROC`), `ENOMEM`.
    ///
    /// ```
    /// # use rcuwalk::{CloneFlags, Cred, Vfs};
    /// # let vfs = Vfs::new()?;
    /// let task = vfs.task(Cred::root());
    /// task.mkdir(b"/d", 0o755)?;
    /// let child = task.clone_with(CloneFlags::default().with_fs(true))?;
    /// child.chdir(b"/d")?;
    /// assert_eq!(task.getcwd()?, b"/d");
    /// # Ok::<(), rcuwalk::Errno>(())
    /// ```
    pub fn clone_with(&self, flags: CloneFlags) -> Result<Task> {
        flags.check()?;
        let cred = if flags.new_user {
            Arc::new(self.unshare_user()?)
        } else if flags.thread {
            Arc::clone(&self.cred)
        } else {
            Arc::new(Cred::clone(&self.cred))
        };
        let user = (self.count_child(&cred)?, self.kernel.charge(TASK_BYTES)?);
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
        let files =
            if flags.files { Arc::clone(&self.files) } else { self.files.duplicate(Beyond::Refused)? };
        Ok(self.child(cred, user, fs, files, flags.thread))
    }

    /// A credential in a new user namespace. Kernel: kernel/user_namespace.c `create_user_ns()`.
    fn unshare_user(&self) -> Result<Cred> {
        let counted = self.kernel.count_namespace(&self.cred, self.cred.user_ns(), Ucount::UserNamespaces)?;
        let new = self.cred.unshare_user(self.chrooted())?;
        new.user_ns().set_counted(counted, self.kernel.charge(USERNS_BYTES)?);
        if self.cred.uid() != 0 || !self.cred.user_ns().is_init() {
            new.user_ns().limit_processes(self.process.limits.soft(Resource::Processes));
        }
        Ok(new)
    }

    /// Whose task one with this credential is.
    pub(crate) fn user_of(&self, cred: &Cred) -> Arc<UserCount> {
        if self.user.user.is_of(cred) { Arc::clone(&self.user.user) } else { self.kernel.users.of(cred) }
    }

    /// Counts a child with this credential, if it may be made. Kernel: kernel/fork.c `copy_process()`.
    fn count_child(&self, cred: &Cred) -> Result<Counted> {
        let exempt =
            cred.uid() == 0 || self.cred.capable(CAP_SYS_RESOURCE) || self.cred.capable(CAP_SYS_ADMIN);
        let counted = self.user_of(cred).count_task();
        let too_many = self.has_too_many_tasks(&counted.user);
        if too_many && !exempt { Err(Errno::EAGAIN) } else { Ok(counted) }
    }

    fn child(
        &self,
        cred: Arc<Cred>,
        (user, charge): (Counted, Charge),
        fs: Arc<FsOwner>,
        files: Arc<FilesOwner>,
        thread: bool,
    ) -> Task {
        let tid = self.kernel.new_tid();
        let (ids, process) = if thread {
            (Ids { tid, ..self.ids }, Arc::clone(&self.process))
        } else {
            (
                Ids { tid, tgid: tid, ppid: self.ids.tgid },
                Process::new(self.process.limits.copy(), self.dumpable()),
            )
        };
        let nproc_exceeded = Racy32::new(self.nproc_exceeded.get());
        self.nproc_exceeded.set(0);
        Task {
            kernel: Arc::clone(&self.kernel),
            cred,
            user,
            _charge: charge,
            nproc_exceeded,
            fs: FsUse::new(fs, ids.tgid),
            files,
            process,
            no_new_privs: self.no_new_privs,
            exe: self.exe.clone(),
            comm: self.comm,
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
    /// `ENOSPC` (too many namespaces above each other; too many mounts; `user.max_*`), `ENOMEM`.
    ///
    /// Kernel: kernel/fork.c `ksys_unshare()`.
    pub fn unshare(&mut self, flags: impl Into<UnshareFlags>) -> Result<()> {
        let flags = flags.into().bits();
        const ALONE: u64 = CLONE_THREAD | CLONE_SIGHAND | CLONE_VM | CLONE_NEWUSER;
        if flags & !(CLONE_FS | CLONE_FILES | CLONE_NEWNS | ALONE) != 0 {
            return Err(Errno::EINVAL);
        }
        if flags & ALONE != 0 && !self.process.has_one_thread() {
            return Err(Errno::EINVAL);
        }
        let cred = if flags & CLONE_NEWUSER != 0 { Some(self.unshare_user()?) } else { None };
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
            self.unshare_files()?;
        }
        if let Some(cred) = cred {
            self.set_cred(cred);
        }
        Ok(())
    }

    /// Makes a copy of the descriptor table this task's own, if others use it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn unshare_files(&mut self) -> Result<()> {
        if Arc::strong_count(&self.files) > 1 {
            self.files = self.files.duplicate(Beyond::Refused)?;
        }
        Ok(())
    }
}

/// Limits of the process: its threads share them, its children start with them.
impl Task {
    /// The limits of a resource: `RLIMIT_FSIZE`, `RLIMIT_STACK`, `RLIMIT_NPROC` or `RLIMIT_NOFILE`.
    ///
    /// # Errors
    ///
    /// `EINVAL` (another resource).
    pub fn getrlimit(&self, resource: u32) -> Result<Rlimit> {
        Ok(self.process.limits.get(Resource::of(resource)?))
    }

    /// Sets the limits of a resource: [`getrlimit`](Self::getrlimit) says which. What would send `SIGXFSZ` only fails, with
    /// `EFBIG`. Arguments and environment of execve may take a quarter of `RLIMIT_STACK`, but at least 128 KiB and at most
    /// 6 MiB. Beyond `RLIMIT_NPROC`, clone is `EAGAIN`, and so is the execve that follows a change of the user id.
    ///
    /// # Errors
    ///
    /// `EINVAL` (another resource; a soft limit above the hard one), `EPERM` (raising the hard limit without
    /// `CAP_SYS_RESOURCE`; `RLIMIT_NOFILE` beyond `fs.nr_open`).
    ///
    /// Kernel: kernel/sys.c `do_prlimit()`.
    ///
    /// ```
    /// use rcuwalk::{Cred, Errno, Rlimit, Vfs, uapi::*};
    /// let user = Vfs::new()?.task(Cred::user(1000, 1000, &[]));
    /// user.setrlimit(RLIMIT_NOFILE, Rlimit { cur: 1, max: 1 })?;
    /// user.open(b"/", O_RDONLY, 0)?;
    /// assert_eq!(user.open(b"/", O_RDONLY, 0), Err(Errno::EMFILE));
    /// assert_eq!(user.setrlimit(RLIMIT_NOFILE, Rlimit { cur: 2, max: 2 }), Err(Errno::EPERM));
    /// # Ok::<(), Errno>(())
    /// ```
    pub fn setrlimit(&self, resource: u32, new: Rlimit) -> Result<()> {
        let resource = Resource::of(resource)?;
        if new.cur > new.max {
            return Err(Errno::EINVAL);
        }
        let too_many =
            resource == Resource::Descriptors && new.max > self.kernel.settings.get(Sysctl::NrOpen);
        let raises = new.max > self.process.limits.get(resource).max;
        if too_many || raises && !self.cred.capable(CAP_SYS_RESOURCE) {
            return Err(Errno::EPERM);
        }
        self.process.limits.set(resource, new);
        Ok(())
    }

    /// Sets `RLIMIT_NOFILE` (soft) for the task, whatever its hard limit is.
    pub fn set_nofile_limit(&self, limit: usize) {
        self.process.limits.set_soft(Resource::Descriptors, limit as u64);
    }

    /// Descriptors are numbered below it: what the process's limit and that of all processes leave.
    #[inline]
    pub(crate) fn nofile_limit(&self) -> usize {
        let soft = self.process.limits.soft(Resource::Descriptors);
        soft.min(self.kernel.settings.get(Sysctl::NrOpen)) as usize
    }

    /// Sets `RLIMIT_FSIZE` (soft), in bytes, for the task, whatever its hard limit is.
    pub fn set_fsize_limit(&self, bytes: u64) {
        self.process.limits.set_soft(Resource::FileSize, bytes);
    }

    pub(crate) fn fsize_limit(&self) -> u64 {
        self.process.limits.soft(Resource::FileSize)
    }

    /// Sets `RLIMIT_STACK` (soft), in bytes, for the task, whatever its hard limit is.
    pub fn set_stack_limit(&self, bytes: u64) {
        self.process.limits.set_soft(Resource::Stack, bytes);
    }

    pub(crate) fn stack_limit(&self) -> u64 {
        self.process.limits.soft(Resource::Stack)
    }

    /// Whether the user has more tasks than the process's limit allows.
    fn has_too_many_tasks(&self, user: &UserCount) -> bool {
        user.has_more_tasks_than(self.process.limits.soft(Resource::Processes))
    }

    /// Commits a credential with another real user id. Nothing fails if that user has too many tasks already: what does is
    /// the execve that follows, if he still has then.
    ///
    /// Kernel: kernel/sys.c `flag_nproc_exceeded()`.
    pub(crate) fn change_user(&mut self, new: Cred) {
        if !self.user.user.is_of(&new) {
            // This task is not the user's yet.
            let exceeded = new.uid() != 0 && self.has_too_many_tasks(&self.kernel.users.of(&new));
            self.nproc_exceeded.set(u32::from(exceeded));
        }
        self.set_cred(new);
    }

    /// Whether execve has to make up for a change of the user id that nothing could stop.
    ///
    /// # Errors
    ///
    /// `EAGAIN`.
    ///
    /// Kernel: fs/exec.c `do_execveat_common()`.
    pub(crate) fn check_nproc(&self) -> Result<()> {
        if self.nproc_exceeded.get() == 0 {
            return Ok(());
        }
        if self.has_too_many_tasks(&self.user.user) {
            return Err(Errno::EAGAIN);
        }
        self.nproc_exceeded.set(0);
        Ok(())
    }
}
