//! The file system as a whole: the store, its mounts and settings, and the handle that users hold.

pub(crate) mod security;
pub(crate) mod sysctl;
pub mod trace;

use crate::base::errno::Result;
use crate::base::uapi::{PATH_MAX, S_IFDIR, S_IFIFO, S_IFMT, Timespec};
use crate::base::variants::{VariantBits, Variants};
use crate::cred::Cred;
use crate::cred::userns::UserNamespace;
use crate::dcache::inode::{Times, Touch, flags};
use crate::dcache::ispace::InodeSpace;
use crate::dcache::pages::PageBudget;
use crate::dcache::store::{Capacity, InodeInit, Store};
use crate::file::locks::Locks;
use crate::file::{Closing, FileArc};
use crate::kernel::security::Security;
use crate::kernel::sysctl::Settings;
use crate::kernel::trace::Recorder;
use crate::mount::{self, MountTable, Path, ROOT_MOUNT, ROOT_SB};
use crate::namei::Bail;
use crate::namei::pathtable::{PathTable, PathTableOptions};
use crate::perm::Protected;
use crate::perm::acl::Acl;
use crate::syscall::EMBEDDED_NAME_MAX;
use crate::task::fork::{FilesOwner, FsOwner, Registry, UserCounts};
use crate::task::{Ids, Task};
use crate::trees::changes::Watch;
use crate::trees::loader::Loader;
use rcuwalk_sync::fill::Site;
use rcuwalk_sync::lock::{Mutex, PoisonError};
use rcuwalk_sync::slab::{Cache, CacheInfo, Init, Policy as InitOnAlloc, Slabs};
use rcuwalk_sync::{Counter, Handle, MODELLED, PerCpu, Racy32};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

/// Gives the present time. Inode times are stamped with it.
pub type Clock = Box<dyn Fn() -> Timespec + Send + Sync>;

/// How paths are walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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

/// The bit of `walk_mode` beside [`WalkMode::RefOnly`]: a recording runs, which also keeps walks from being lockless.
const RECORDING: u32 = 4;

/// The bit that keeps walks from being [direct](WalkMode::Direct) for good: a hook is to be asked.
const HOOKED: u32 = 8;

/// What all tasks share.
pub(crate) struct Kernel {
    pub(crate) store: Store,
    pub(crate) mounts: MountTable,
    /// A [`WalkMode`], [`RECORDING`] and [`HOOKED`].
    walk_mode: Racy32,
    pub(crate) security: Option<Box<dyn Security>>,
    /// Whether file systems that are mounted later have the "may search" bit, unless they say otherwise.
    pub(crate) fastperm: bool,
    pub(crate) variants: VariantBits,
    /// Directories searched with the stored bit, and without; counted only on request.
    pub(crate) searches: PerCpu<[Counter; 2]>,
    pub(crate) settings: Settings,
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

/// An in-memory file system with Linux's rules. Cloning gives another handle to the same one; any number of threads may
/// use it.
///
/// A fresh one holds an empty root directory, `root:root`, mode 0755.
///
/// ```
/// use rcuwalk::{Cred, Errno, Vfs};
///
/// let vfs = Vfs::new()?;
/// let root = vfs.task(Cred::root());
/// root.mkdir(b"/secret", 0o700)?;
/// root.creat(b"/secret/plan", 0o644)?;
///
/// let user = vfs.task(Cred::user(1000, 1000, &[]));
/// assert_eq!(user.stat(b"/secret/plan"), Err(Errno::EACCES));
/// # Ok::<(), Errno>(())
/// ```
#[derive(Debug, Clone)]
pub struct Vfs(pub(crate) Arc<Kernel>);

/// Settings of a new [`Vfs`].
pub struct VfsBuilder {
    capacity: Capacity,
    protected: Protected,
    clock: Clock,
    dev: u64,
    mount_flags: u32,
    pages: u64,
    inodes: u64,
    path_table: PathTableOptions,
    init_on_alloc: InitOnAlloc,
    security: Option<Box<dyn Security>>,
    fastperm: bool,
}

impl std::fmt::Debug for VfsBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VfsBuilder").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

/// What a [`Vfs`] holds, and how its walks went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Slots in use: one for each name, and for each open file that lost its name.
    pub entries: u32,
    /// Bytes of long names, link bodies and ACLs.
    pub blob_bytes: u64,
    /// Lockless walks that gave up, by reason, since the file system was made.
    pub bails: Vec<(&'static str, u64)>,
    /// The caches of buffers.
    pub caches: Vec<CacheInfo>,
    /// Paths that the whole-path table took in since then.
    pub paths_remembered: u64,
    /// Directories that were searched without a permission check, because it was known that anybody may
    /// ([`SearchCheck`](crate::SearchCheck)), while [`Variants::count_searches`] was set.
    pub searches_spared: u64,
    /// Directories whose permissions were checked, likewise.
    pub searches_checked: u64,
}

/// Restrictions of the mount, as mount(8)'s options of the same names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MountOptions {
    /// `ro`: nothing can be changed through it (`EROFS`).
    pub read_only: bool,
    /// `noexec`: no file can be executed (`EACCES`).
    pub noexec: bool,
    /// `nosuid`: set-id bits and file capabilities have no effect.
    pub nosuid: bool,
    /// `nodev`: no device can be opened (`EACCES`).
    pub nodev: bool,
    /// `nosymfollow`: no link is followed (`ELOOP`).
    pub nosymfollow: bool,
    /// `noatime`: access times do not change.
    pub noatime: bool,
    /// `nodiratime`: access times of directories do not change.
    pub nodiratime: bool,
    /// `strictatime`: access times change with every access, and not, as by default, at most once a day or after a
    /// modification.
    pub strictatime: bool,
}

impl MountOptions {
    pub(crate) fn flags(self) -> u32 {
        [
            (self.read_only, mount::flags::RDONLY),
            (self.noexec, mount::flags::NOEXEC),
            (self.nosuid, mount::flags::NOSUID),
            (self.nodev, mount::flags::NODEV),
            (self.nosymfollow, mount::flags::NOSYMFOLLOW),
            (self.noatime, mount::flags::NOATIME),
            (self.nodiratime, mount::flags::NODIRATIME),
            (!self.strictatime, mount::flags::RELATIME),
        ]
        .into_iter()
        .filter(|(on, _)| *on)
        .fold(0, |all, (_, flag)| all | flag)
    }
}

impl Default for VfsBuilder {
    fn default() -> Self {
        VfsBuilder {
            capacity: Capacity { objects: 1 << 24, blob_words: 1 << 27 },
            protected: Protected::default(),
            clock: Box::new(system_time),
            dev: 0x1d,
            mount_flags: MountOptions::default().flags(),
            pages: u64::MAX,
            inodes: 0,
            path_table: PathTableOptions::default(),
            init_on_alloc: InitOnAlloc::default(),
            security: None,
            fastperm: true,
        }
    }
}

impl VfsBuilder {
    /// The most names and inodes there can be; 16,777,215 unless set. Room is reserved for them as address space, about
    /// 200 bytes each, and costs memory only where it is used.
    #[must_use]
    pub fn capacity(mut self, objects: u32) -> Self {
        let objects = objects.clamp(16, 1 << 28);
        self.capacity =
            Capacity { objects: objects.saturating_add(2), blob_words: objects.saturating_mul(8) };
        self
    }

    /// The `fs.protected_*` settings; all off unless set.
    #[must_use]
    pub fn protected(mut self, protected: Protected) -> Self {
        self.protected = protected;
        self
    }

    /// Where inode times come from; the system's clock unless set.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The device number (`st_dev`) of the file system.
    #[must_use]
    pub fn dev(mut self, dev: u64) -> Self {
        self.dev = dev;
        self
    }

    /// What the mount forbids.
    #[must_use]
    pub fn mount_options(mut self, options: MountOptions) -> Self {
        self.mount_flags = options.flags();
        self
    }

    /// The most bytes that the contents of all files may take, counted in pages of 4096; without limit unless set.
    /// Writing more is `ENOSPC`.
    #[must_use]
    pub fn size_limit(mut self, bytes: u64) -> Self {
        self.pages = bytes / 4096;
        self
    }

    /// The most inodes there may be, further names of files counted; without limit unless set. Extended attributes take from
    /// the same account: 1,024 bytes of them, 40 added for each, count for one inode. What does not fit is `ENOSPC`.
    #[must_use]
    pub fn inode_limit(mut self, inodes: u64) -> Self {
        self.inodes = inodes;
        self
    }

    /// The whole-path table, which answers for paths that were walked before ([`WalkMode::Direct`]).
    #[must_use]
    pub fn path_table(mut self, options: PathTableOptions) -> Self {
        self.path_table = options;
        self
    }

    /// Which buffers are cleared before they are used; all but those of caches that opted out unless set. The environment
    /// variable `RCUWALK_INIT_ON_ALLOC` (`on`, `off`, `force`, `skip=NAME,...`) has the last word, for whoever runs the program.
    #[must_use]
    pub fn init_on_alloc(mut self, policy: InitOnAlloc) -> Self {
        self.init_on_alloc = policy;
        self
    }

    /// A hook that may forbid what permission bits and ACLs allow; none unless set.
    #[must_use]
    pub fn security(mut self, hook: Box<dyn Security>) -> Self {
        self.security = Some(hook);
        self
    }

    /// Whether the file system at the root opts in to the "may search" bit, with which a walk needs no check of a directory
    /// that anybody may search; it does unless set. So do file systems that are mounted later, unless
    /// [`NewMount::fastperm`](crate::NewMount::fastperm) says otherwise of one. Answers are the same either way.
    ///
    /// Kernel: include/linux/fs.h `IOP_FASTPERM_MAY_EXEC`, which a file system sets on an inode that it sets up.
    #[must_use]
    pub fn fastperm(mut self, yes: bool) -> Self {
        self.fastperm = yes;
        self
    }

    /// Makes the file system.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the system refuses the address space for the capacity.
    pub fn build(self) -> Result<Vfs> {
        // The name hash is keyed, so that a hostile tree cannot choose its collisions. A model checker runs one schedule
        // twice, which then has to be the same.
        let random = RandomState::new();
        let mut numbers = 0..;
        let mut key = || {
            let number: u64 = numbers.next().unwrap_or_default();
            if MODELLED { number.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { random.hash_one(number) }
        };
        let seed = key();
        let paths = PathTable::new(self.path_table, key)?;
        let (mounts, state) = MountTable::new()?;
        let store = Store::new(self.capacity, seed, state, paths)?;
        let now = (self.clock)();
        let times = Times { atime: now, mtime: now, ctime: now, btime: now };
        let init = InodeInit {
            mode: S_IFDIR | 0o755,
            nlink: 2,
            size: EMPTY_DIR_SIZE,
            blocks: Some(0),
            times,
            sb: ROOT_SB,
            ..InodeInit::default()
        };
        let limits = (PageBudget::new(self.pages), InodeSpace::new(self.inodes));
        let hooked = self.security.is_some();
        let mut kernel = Kernel {
            store,
            mounts,
            walk_mode: Racy32::new(WalkMode::default() as u32 | if hooked { HOOKED } else { 0 }),
            security: self.security,
            fastperm: self.fastperm,
            variants: VariantBits::new(hooked),
            searches: PerCpu::new(),
            settings: Settings::new(self.protected),
            files_owners: Registry::default(),
            clock: self.clock,
            bails: PerCpu::new(),
            names: Names::new(self.init_on_alloc),
            root: Path::default(),
            fs_owners: Registry::default(),
            users: UserCounts::default(),
            locks: Locks::default(),
            exec_files: Racy32::default(),
            recorder: Recorder::default(),
            watch: Watch::default(),
            last_tid: Mutex::new(0),
        };
        {
            let mut ns = kernel.store.lock();
            let sb = ns.mnt.new_super(self.dev, UserNamespace::init(), limits.0, limits.1, self.fastperm)?;
            debug_assert_eq!(sb, ROOT_SB);
            let dentry = kernel.new_root(&mut ns, &init)?;
            let mnt = kernel.mount_new(&mut ns, sb, dentry, self.mount_flags)?;
            debug_assert_eq!(mnt, ROOT_MOUNT);
            kernel.mount_rootfs(&mut ns, mnt, &init)?;
            drop(ns);
            kernel.root = Path { mnt, dentry };
        }
        Ok(Vfs(Arc::new(kernel)))
    }
}

/// `st_size` of an empty directory, and what each entry adds, as on tmpfs.
pub(crate) const EMPTY_DIR_SIZE: u64 = 40;
pub(crate) const DIRENT_SIZE: u64 = 20;

/// Buffers for names. Kernel: fs/dcache.c `names_cachep`.
pub(crate) struct Names {
    slabs: Slabs,
    /// Room for any name.
    pub(crate) whole: Arc<Cache>,
    /// Room for most; made when a variant wants it.
    small: OnceLock<Arc<Cache>>,
}

impl Names {
    /// The caches, under `policy` or the operator's.
    pub(crate) fn new(policy: InitOnAlloc) -> Names {
        let slabs = Slabs::new(policy.or_operators());
        let whole = Names::cache(&slabs, PATH_MAX);
        Names { slabs, whole, small: OnceLock::new() }
    }

    /// [`NameBuffer::Small`](crate::NameBuffer::Small).
    #[cold]
    pub(crate) fn small(&self) -> &Arc<Cache> {
        self.small.get_or_init(|| Names::cache(&self.slabs, EMBEDDED_NAME_MAX))
    }

    fn cache(slabs: &Slabs, size: usize) -> Arc<Cache> {
        static NAMES: Site = Site::new("names");
        Arc::new(slabs.cache(&NAMES, size, Init::OptOut))
    }

    fn info(&self) -> Vec<CacheInfo> {
        [&self.whole].into_iter().chain(self.small.get()).map(|cache| cache.info()).collect()
    }
}

fn system_time() -> Timespec {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timespec { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }
}

impl Vfs {
    /// An empty file system with the default settings.
    ///
    /// # Errors
    ///
    /// As [`VfsBuilder::build`].
    pub fn new() -> Result<Vfs> {
        Vfs::builder().build()
    }

    /// Settings for a new file system.
    pub fn builder() -> VfsBuilder {
        VfsBuilder::default()
    }

    /// A new process with credential `cred`: its root and current directory are the root of the tree, its umask 022, its
    /// descriptor table empty.
    pub fn task(&self, cred: Cred) -> Task {
        Task::new(&self.0, cred)
    }

    /// Adds whole trees; holds the lock of the tree while it lives.
    pub fn loader(&self) -> Loader<'_> {
        Loader::new(&self.0)
    }

    /// How paths are walked from now on.
    pub fn set_walk_mode(&self, mode: WalkMode) {
        let word = &self.0.walk_mode;
        word.set(word.get() & (RECORDING | HOOKED) | mode as u32);
    }

    /// Which old ways are taken from now on.
    pub fn set_variants(&self, variants: Variants) {
        self.0.variants.set(variants);
    }

    /// Makes the superblock read-only, or writable again: `mount -o remount,ro`. Unlike a read-only mount it also
    /// forbids what is already reached another way, and is reported before missing permission.
    pub fn set_read_only(&self, yes: bool) {
        let mut ns = self.0.store.lock();
        let flags = if yes { mount::flags::SB_RDONLY } else { 0 };
        self.0.set_sb_flags(&mut ns, ROOT_SB, mount::flags::SB_RDONLY, flags);
    }

    /// Changes what the mount forbids: `mount -o remount,bind`.
    pub fn set_mount_options(&self, options: MountOptions) {
        let _ns = self.0.store.lock();
        let flags = &self.0.mount(ROOT_MOUNT).flags;
        flags.set(flags.get() & !mount::flags::USER_SETTABLE | options.flags());
    }

    /// What it holds, and how its walks went.
    pub fn stats(&self) -> Stats {
        let (entries, blob_bytes) = self.0.store.usage();
        let count = |bail: Bail| self.0.bails.iter().map(|counts| counts[bail as usize].get()).sum();
        let bails = Bail::ALL.iter().map(|&(bail, name)| (name, count(bail))).collect();
        let caches = self.0.names.info();
        let searches = |i: usize| self.0.searches.iter().map(|of| of[i].get()).sum();
        let [searches_spared, searches_checked] = [0, 1].map(searches);
        Stats {
            entries,
            blob_bytes,
            bails,
            caches,
            paths_remembered: self.0.store.paths.remembered(),
            searches_spared,
            searches_checked,
        }
    }
}

impl Kernel {
    pub(crate) fn root(&self) -> Path {
        self.root
    }

    /// Numbers for a new process. They begin again at 1 after 2,147,483,647, whoever still has one.
    pub(crate) fn new_ids(&self, ppid: i32) -> Ids {
        let mut last = self.last_tid.lock().unwrap_or_else(PoisonError::into_inner);
        *last = last.checked_add(1).unwrap_or(1);
        Ids { tid: *last, tgid: *last, ppid }
    }

    #[inline(always)]
    pub(crate) fn walk_mode(&self) -> WalkMode {
        const DIRECT: u32 = WalkMode::Direct as u32;
        const RCU: u32 = WalkMode::Rcu as u32;
        const HOOKED_RCU: u32 = HOOKED | RCU;
        match self.walk_mode.get() {
            DIRECT => WalkMode::Direct,
            RCU | HOOKED..=HOOKED_RCU => WalkMode::Rcu,
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
            self.store.count_fifo_ends(&ns, file.inode, file.mode, -1);
        }
        if file.mode.need_unmount {
            self.dissolve(file.path.mnt);
        }
        self.path_put(file.path);
    }
}
