//! The handle that users hold, and how a file system is made.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::{S_IFDIR, Timespec};
use crate::base::variants::VariantBits;
use crate::cred::ucounts::UserCounts;
use crate::cred::userns::UserNamespace;
use crate::dcache::inode::Times;
use crate::dcache::pathtable::{PathTable, PathTableOptions};
use crate::dcache::store::{Capacity, InodeInit, Room, Store};
use crate::file::locks::Locks;
use crate::kernel::names::{CacheInfo, InitOnAlloc, Names};
use crate::kernel::owners::Registry;
use crate::kernel::security::Security;
use crate::kernel::sysctl::Settings;
use crate::kernel::trace::Recorder;
use crate::kernel::watch::Watch;
use crate::kernel::{Bail, Clock, EMPTY_DIR_SIZE, Kernel, RECORDING, WalkMode};
use crate::mount::{self, MountTable, Path, ROOT_MOUNT, ROOT_SB};
use crate::perm::Protected;
use crate::tmpfs::ispace::InodeSpace;
use crate::tmpfs::pages::PageBudget;
use rcuwalk_sync::lock::Mutex;
use rcuwalk_sync::{Budget, MODELLED, PerCpu, Racy32};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

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
    capacity: Option<Capacity>,
    protected: Protected,
    clock: Clock,
    dev: u64,
    mount_flags: u32,
    pages: u64,
    inodes: u64,
    memory: Option<u64>,
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
#[non_exhaustive]
pub struct Stats {
    /// Slots in use: one for each name, and for each open file that lost its name.
    pub entries: u32,
    /// The most slots there can be: see [`VfsBuilder::capacity`].
    pub capacity: u32,
    /// Bytes of long names, link bodies and ACLs.
    pub blob_bytes: u64,
    /// Bytes that count against [`VfsBuilder::memory_limit`]; 0 if there is none.
    pub memory: u64,
    /// Lockless walks that gave up, by reason, since the file system was made.
    pub bails: Vec<(&'static str, u64)>,
    /// The caches of buffers.
    pub caches: Vec<CacheInfo>,
    /// Paths that the whole-path table took in since then.
    pub paths_remembered: u64,
    /// Directories that were searched without a permission check, because it was known that anybody may,
    /// while [`Vfs::set_count_searches`] had them counted.
    pub searches_spared: u64,
    /// Directories whose permissions were checked, likewise.
    pub searches_checked: u64,
}

/// Restrictions of the mount, as mount(8)'s options of the same names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
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
    setters! {
        with_read_only read_only: bool;
        with_noexec noexec: bool;
        with_nosuid nosuid: bool;
        with_nodev nodev: bool;
        with_nosymfollow nosymfollow: bool;
        with_noatime noatime: bool;
        with_nodiratime nodiratime: bool;
        with_strictatime strictatime: bool;
    }
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
            capacity: None,
            protected: Protected::default(),
            clock: Box::new(system_time),
            dev: 0x1d,
            mount_flags: MountOptions::default().flags(),
            pages: u64::MAX,
            inodes: 0,
            memory: None,
            path_table: PathTableOptions::default(),
            init_on_alloc: InitOnAlloc::default(),
            security: None,
            fastperm: true,
        }
    }
}

impl VfsBuilder {
    /// The most names and inodes there can be; 16,777,215 unless set, or as many as leave half of the address space to others if
    /// the system limits that (`RLIMIT_AS`): [`Stats::capacity`] tells. Room is reserved for them as address space, about
    /// 300 bytes each, and costs memory only where it is used.
    #[must_use]
    pub fn capacity(mut self, objects: u32) -> Self {
        let objects = objects.clamp(16, 1 << 28);
        let blob_words = objects.saturating_mul(8);
        self.capacity = Some(Capacity { objects: objects.saturating_add(2), blob_words });
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

    /// The most bytes of memory that everything in the file system may take, all mounts together: names, inodes, contents, bodies
    /// of links, extended attributes, mounts, idmaps, namespaces, tasks, descriptors, file locks, and the whole-path table; without
    /// limit unless set. What does not fit is `ENOMEM` (a lock on a range `ENOLCK`), and leaves things as they were. What goes
    /// gives its part back. Tasks that the host makes with [`Vfs::task`], [`Task::fork`](crate::Task::fork) and
    /// [`Task::thread`](crate::Task::thread) count, but are never refused.
    ///
    /// The whole-path table gets a sixteenth of it at most. It is counted coarsely, and not below what is taken: by 64 names, by 64 KiB
    /// of long names and link bodies, by the page of contents, whether written or reserved. `docs/tenancy.md` has the figures, and
    /// says what else bounds what tenants can do.
    ///
    /// ```
    /// use rcuwalk::{Cred, Errno, Vfs, uapi::*};
    ///
    /// let vfs = Vfs::builder().memory_limit(4 << 20).build()?;
    /// let task = vfs.task(Cred::root());
    /// let fd = task.open(b"/f", O_CREAT | O_RDWR, 0o644)?;
    /// let mut written = 0;
    /// while task.pwrite(fd, &[1; 4096], written).is_ok() {
    ///     written += 4096;
    /// }
    /// assert_eq!(task.pwrite(fd, &[1; 4096], written), Err(Errno::ENOMEM));
    /// task.ftruncate(fd, 0)?;
    /// assert_eq!(task.pwrite(fd, &[1; 4096], 0), Ok(4096));
    /// # Ok::<(), Errno>(())
    /// ```
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// The whole-path table, which answers for paths that were walked before ([`WalkMode::Direct`]).
    #[must_use]
    pub fn path_table(mut self, options: PathTableOptions) -> Self {
        self.path_table = options;
        self
    }

    /// Which buffers are cleared before they are used; all but those of caches that opted out unless set. The environment
    /// variable `RCUWALK_INIT_ON_ALLOC` (`on`, `off`, `force`, `skip=NAME,...`) overrides this: the operator decides.
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
    /// `ENOMEM` if the system refuses the address space for a capacity that was set, or any at all, or [`memory_limit`](Self::memory_limit) is too low even
    /// for an empty file system.
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
        let most = self.memory.map_or(u64::MAX, |bytes| bytes / 16);
        let paths = PathTable::new(self.path_table.within(most), key)?;
        let memory = self.memory.map(|bytes| Arc::new(Budget::new(bytes)));
        if memory.as_ref().is_some_and(|memory| !memory.charge(paths.bytes())) {
            return Err(Errno::ENOMEM);
        }
        let (mounts, state) = MountTable::new(memory.clone())?;
        let store = Store::new(room(self.capacity, memory.as_ref())?, seed, state, paths);
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
            walk_mode: Racy32::new(WalkMode::default().if_hooked(hooked) as u32),
            security: self.security,
            fastperm: self.fastperm,
            variants: VariantBits::default(),
            searches: PerCpu::new(),
            settings: Settings::new(self.protected),
            files_owners: Registry::default(),
            clock: self.clock,
            bails: PerCpu::new(),
            names: Names::new(self.init_on_alloc),
            root: Path::default(),
            fs_owners: Registry::default(),
            users: UserCounts::default(),
            locks: Locks::new(memory.clone()),
            memory,
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

/// Room for a capacity that was set, or for the usual one if that can be had.
fn room(capacity: Option<Capacity>, memory: Option<&Arc<Budget>>) -> Result<Room> {
    const USUAL: Capacity = Capacity { objects: 1 << 24, blob_words: 1 << 27 };
    capacity.map_or_else(|| Room::at_most(USUAL, memory), |capacity| Room::new(capacity, memory))
}

fn system_time() -> Timespec {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or(Duration::ZERO);
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

    /// How paths are walked from now on.
    pub fn set_walk_mode(&self, mode: WalkMode) {
        let word = &self.0.walk_mode;
        word.set(word.get() & RECORDING | mode.if_hooked(self.0.is_hooked()) as u32);
    }

    /// Whether walks count in [`Stats`] how many permission checks were spared, and how many were not. They are slower
    /// then, and answers from the whole-path table search nothing.
    ///
    /// ```
    /// use rcuwalk::{Cred, Vfs, WalkMode};
    ///
    /// let vfs = Vfs::new()?;
    /// let root = vfs.task(Cred::root());
    /// root.mkdir(b"/open", 0o755)?;
    /// root.mkdir(b"/shut", 0o700)?;
    /// vfs.set_walk_mode(WalkMode::Rcu);
    /// let counts = || (vfs.stats().searches_spared, vfs.stats().searches_checked);
    /// root.stat(b"/open/.")?;
    /// assert_eq!(counts(), (0, 0));
    /// vfs.set_count_searches(true);
    /// root.stat(b"/open/.")?;
    /// assert_eq!(counts(), (2, 0), "the root directory and /open");
    /// root.stat(b"/shut/.")?;
    /// assert_eq!(counts(), (3, 1), "not everybody may search /shut");
    /// # Ok::<(), rcuwalk::Errno>(())
    /// ```
    pub fn set_count_searches(&self, on: bool) {
        self.0.variants.set_count_searches(on);
    }

    /// Which old ways are taken from now on.
    #[cfg(feature = "__variants")]
    #[doc(hidden)]
    pub fn set_variants(&self, variants: crate::Variants) {
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
        let ns = self.0.store.lock();
        self.0.set_mnt_flags(&ns, ROOT_MOUNT, options.flags());
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
            capacity: self.0.store.capacity(),
            blob_bytes,
            memory: self.0.memory.as_ref().map_or(0, |memory| memory.used()),
            bails,
            caches,
            paths_remembered: self.0.store.paths.remembered(),
            searches_spared,
            searches_checked,
        }
    }
}
