//! What all tasks share: the store, its mounts and settings, and what is open.

pub(crate) mod mount_lock;
pub(crate) mod mount_tree;
pub(crate) mod names;
pub(crate) mod owners;
pub(crate) mod proc;
pub(crate) mod propagate;
pub(crate) mod ram;
pub(crate) mod security;
pub(crate) mod sysctl;
pub mod trace;
pub(crate) mod vfs;
pub(crate) mod vfsmount;
pub(crate) mod watch;

use crate::base::errno::Result;
use crate::base::uapi::{S_IFDIR, S_IFIFO, S_IFMT, Timespec};
use crate::base::variants::VariantBits;
use crate::cred::ucounts::UserCounts;
use crate::dcache::inode::{Touch, flags};
use crate::dcache::store::Store;
use crate::file::locks::Locks;
use crate::file::{Closing, FileArc};
use crate::kernel::names::Names;
use crate::kernel::owners::{FilesOwner, FsOwner, Registry};
use crate::kernel::security::Security;
use crate::kernel::sysctl::Settings;
use crate::kernel::trace::Recorder;
use crate::kernel::watch::Watch;
use crate::mount::{self, MountTable, Path};
use crate::perm::Protected;
use crate::perm::acl::Acl;
use rcuwalk_sync::lock::{Mutex, PoisonError};
use rcuwalk_sync::{Budget, Charge, Counter, Handle, PerCpu, Racy32};
use std::sync::Arc;

/// Gives the present time. Inode times are stamped with it.
pub type Clock = Box<dyn Fn() -> Timespec + Send + Sync>;

/// How paths are walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WalkMode {
    /// A path that was walked before is answered from the whole-path table, if nothing on its way changed since; others
    /// are walked as by [`Rcu`](WalkMode::Rcu). The default.
    #[default]
    Direct,
    /// Lockless, falling back to references when something changes on the way.
    Rcu,
    /// Holding a reference to every directory on the way: the fallback alone, for comparison and tests.
    RefOnly,
}

impl WalkMode {
    /// The mode that this one amounts to: the whole-path table skips the checks that a hook would be asked in.
    pub(super) fn if_hooked(self, hooked: bool) -> WalkMode {
        if hooked && self == WalkMode::Direct { WalkMode::Rcu } else { self }
    }
}

/// Why a lockless walk gave up. Not an answer; counted, and the walk is made again holding references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Bail {
    /// A dentry on the way was renamed, removed or changed its "may search" bit.
    DentryMoved,
    /// The inode that decides changed while it was read.
    InodeChanged,
    /// A directory changed its entries while a name was proved missing.
    DirChanged,
    /// The hash chain led into another one, or the table was being replaced.
    Astray,
    /// The process changed its root or current directory.
    FsChanged,
    /// Something would have to be written: the access time of a link.
    MayBlock,
    /// Something was mounted or unmounted, somewhere.
    MountMoved,
}

impl Bail {
    pub(crate) const ALL: [(Bail, &'static str); 7] = [
        (Bail::DentryMoved, "dentry_moved"),
        (Bail::InodeChanged, "inode_changed"),
        (Bail::DirChanged, "dir_changed"),
        (Bail::Astray, "astray"),
        (Bail::FsChanged, "fs_changed"),
        (Bail::MayBlock, "may_block"),
        (Bail::MountMoved, "mount_moved"),
    ];
}

/// The bit of `walk_mode` beside [`WalkMode::RefOnly`]: a recording runs, which also keeps walks from being lockless.
const RECORDING: u32 = 4;

/// What all tasks share.
pub(crate) struct Kernel {
    pub(crate) store: Store,
    pub(crate) mounts: MountTable,
    /// A [`WalkMode`] and [`RECORDING`]; never [direct](WalkMode::Direct) where a hook is to be asked.
    walk_mode: Racy32,
    pub(crate) security: Option<Box<dyn Security>>,
    /// Whether file systems that are mounted later have the "may search" bit, unless they say otherwise.
    pub(crate) fastperm: bool,
    pub(crate) variants: VariantBits,
    /// Directories searched with the stored bit, and without; counted only on request.
    pub(crate) searches: PerCpu<[Counter; 2]>,
    pub(crate) settings: Settings,
    /// What everything that tenants make may take, if that is limited.
    pub(crate) memory: Option<Arc<Budget>>,
    pub(crate) files_owners: Registry<FilesOwner>,
    clock: Clock,
    /// Walks bail on many threads at once, and all for the same reasons.
    bails: PerCpu<[Counter; Bail::ALL.len()]>,
    pub(crate) names: Names,
    root: Path,
    pub(crate) fs_owners: Registry<FsOwner>,
    pub(crate) users: UserCounts,
    pub(crate) locks: Locks,
    /// How many [`ExecFile`](crate::ExecFile)s there are, each an open file that no descriptor stands for. Changes under the
    /// lock of the tree.
    pub(crate) exec_files: Racy32,
    pub(crate) recorder: Recorder,
    pub(crate) watch: Watch,
    /// The number that a task got last.
    last_tid: Mutex<i32>,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").field("usage", &self.store.usage()).finish_non_exhaustive()
    }
}

/// `st_size` of an empty directory, and what each entry adds, as on tmpfs.
pub(crate) const EMPTY_DIR_SIZE: u64 = 40;
pub(crate) const DIRENT_SIZE: u64 = 20;

impl Kernel {
    pub(crate) fn root(&self) -> Path {
        self.root
    }

    /// The number of a new task. They begin again at 1 after 2,147,483,647, also those still in use.
    pub(crate) fn new_tid(&self) -> i32 {
        let mut last = self.last_tid.lock().unwrap_or_else(PoisonError::into_inner);
        *last = last.checked_add(1).unwrap_or(1);
        *last
    }

    #[inline(always)]
    pub(crate) fn walk_mode(&self) -> WalkMode {
        const DIRECT: u32 = WalkMode::Direct as u32;
        const RCU: u32 = WalkMode::Rcu as u32;
        match self.walk_mode.get() {
            DIRECT => WalkMode::Direct,
            RCU => WalkMode::Rcu,
            // Also whenever a recording runs.
            _ => WalkMode::RefOnly,
        }
    }

    /// Whether calls are to tell what they do ([`crate::kernel::trace`]).
    #[inline(always)]
    pub(crate) fn is_recording(&self) -> bool {
        self.walk_mode.get() & RECORDING != 0
    }

    pub(crate) fn set_recording(&self, yes: bool) {
        let word = self.walk_mode.get();
        self.walk_mode.set(if yes { word | RECORDING } else { word & !RECORDING });
    }

    /// The default ACL of a directory; for callers that hold the lock.
    pub(crate) fn default_acl(&self, dir: Handle) -> Result<Option<Acl>> {
        let blob = self.store.inode_rest(dir).default_acl.get();
        if blob == 0 { Ok(None) } else { self.store.acl(blob).map(Some) }
    }

    pub(crate) fn protected(&self) -> Protected {
        self.settings.protected()
    }

    /// Counts memory until the charge is dropped.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn charge(&self, bytes: u64) -> Result<Charge> {
        Ok(Charge::new(self.memory.as_ref(), bytes)?)
    }

    pub(crate) fn now(&self) -> Timespec {
        (self.clock)()
    }

    pub(crate) fn count_bail(&self, bail: Bail) {
        self.bails.here()[bail as usize].add(1);
    }

    /// Whether reading this inode through this mount would change its access time.
    ///
    /// Kernel: fs/inode.c `atime_needs_update()`.
    pub(crate) fn atime_needs_update(&self, mnt: Handle, inode: Handle) -> bool {
        let stat = self.store.fill_kstat(inode, false);
        let is_dir = stat.mode & S_IFMT == S_IFDIR;
        let mnt_flags = self.mount(mnt).flags.get();
        if stat.iflags & flags::NOATIME != 0
            || self.mount_rdonly(mnt)
            || mnt_flags & mount::flags::NOATIME != 0
            || is_dir && mnt_flags & mount::flags::NODIRATIME != 0
            || mnt_flags & mount::flags::IDMAPPED != 0
                && self.attr(mnt, self.store.inode(inode)).has_unmapped_id()
        {
            return false;
        }
        if mnt_flags & mount::flags::RELATIME == 0 {
            return true;
        }
        let t = stat.times;
        t.mtime >= t.atime || t.ctime >= t.atime || self.now().sec - t.atime.sec >= 24 * 60 * 60
    }

    /// Stamps times of an inode with the present.
    pub(crate) fn touch_now(&self, inode: Handle, which: Touch) {
        let now = self.now();
        let mut ns = self.store.lock();
        let _change = self.store.open_inode(&mut ns, inode);
        self.store.touch(&mut ns, inode, which, now);
    }

    /// Stamps the access time if reading through this mount does that. Kernel: fs/inode.c `touch_atime()`.
    pub(crate) fn touch_atime(&self, mnt: Handle, inode: Handle) {
        if self.atime_needs_update(mnt, inode) {
            self.touch_now(inode, Touch::A);
        }
    }

    /// Gives an open file back; closes it if this was the last use. Kernel: fs/file_table.c `fput()`.
    #[inline]
    pub(crate) fn fput(&self, file: FileArc) {
        if let Some(mut file) = FileArc::into_unique(file) {
            self.release(file.close());
        }
    }

    /// Gives back what a file held that was closed for the last time. Kernel: fs/file_table.c `__fput()`.
    #[inline(always)]
    pub(crate) fn release(&self, file: Closing) {
        self.locks.remove_file(&file);
        if file.mode.writer {
            let ns = self.store.lock();
            self.store.put_write_access(&ns, file.inode);
            self.put_mount_writer(&ns, file.path.mnt);
        }
        if self.store.inode(file.inode).attr().mode & S_IFMT == S_IFIFO && !file.mode.path {
            let ns = self.store.lock();
            self.store.count_fifo_ends(&ns, file.inode, [file.mode.read, file.mode.write], -1);
        }
        if file.mode.need_unmount {
            self.dissolve(file.path.mnt);
        }
        self.path_put(file.path);
    }
}
