//! Mounts: which tree is seen where.
//!
//! Kernel: fs/mount.h, fs/namespace.c. A mount shows the tree below one dentry, its root, in place of another dentry of
//! another mount, its mountpoint. A hash of (mount, mountpoint) leads a walk from what is covered to what covers it. It is
//! read without a lock, under [`MountTable::seq`], which changes with every mount and unmount, wherever it happens; a
//! dentry that is a mountpoint anywhere says so in its [`Meta`](crate::dcache::Meta), so only walks that come to one look.
//!
//! The lock of the name space serialises all changes. What only they need lies in [`MountState`], behind that lock; the
//! type-stable [`Mount`] holds what walkers read.
//!
//! **References.** A mount is held by the tree it is attached to, and by everybody who stands in it: root, current
//! directory, open file, a walk that holds references. It holds its root dentry and its mountpoint. The first mount is
//! never freed, and so not counted either: with one mount, opening a file counts nothing but its dentry.

pub(crate) mod propagate;

use crate::base::errno::{Errno, Result};
use crate::cred::Cred;
use crate::cred::userns::{IdView, MountIdmap, UserNamespace};
use crate::dcache::inode::{Inode, RacyAcl};
use crate::dcache::ispace::InodeSpace;
use crate::dcache::pages::PageBudget;
use crate::dcache::store::{InodeInit, Namespace, Store, Table};
use crate::kernel::Kernel;
use crate::kernel::trace::Spot;
use crate::namei::{Bail, Position};
use crate::perm::fact::Rule;
use crate::perm::{self, InodeAttr, watched};
use rcuwalk_sync::lock::RwLock;
use rcuwalk_sync::{
    Arena, Chains, ChainsWriter, Handle, Link, LockRef, MODELLED, Nodes, Racy32, Racy64, SeqCount, SeqWrite,
    chains::Found, step, type_stable,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

type_stable! {
    /// One mount. All but the counts is written under the lock; where it is attached, also under [`MountTable::seq`].
    ///
    /// Kernel: fs/mount.h `struct mount`.
    pub(crate) struct Mount {
        /// Bits of [`flags`].
        pub(crate) flags: Racy32,
        /// The dentry that a walk into this mount comes to.
        pub(crate) root: Racy32,
        /// The mount it is attached to; 0 if it is not.
        pub(crate) parent: Racy32,
        /// The dentry it covers.
        pub(crate) mountpoint: Racy32,
        next: Link,
        /// Which [`IdView`] it has; 0 for that of the initial namespace, without an idmap.
        view: Racy32,
        /// The mount namespace it belongs to; 0 if it is detached.
        pub(crate) ns: Racy32,
        /// Its file system: a key of [`MountState::supers`].
        pub(crate) sb: Racy32,
        count: LockRef,
        /// Files open for writing through it.
        pub(crate) writers: Racy32,
        /// `MNT_EXPIRE` was asked for once since it was last used.
        pub(crate) expiring: Racy32,
        /// `st_dev` of what is in it.
        pub(crate) dev: Racy64,
        /// An id that is never used again.
        pub(crate) id: Racy64,
    }
}

impl Mount {
    /// Where it is attached; mount 0 if nowhere.
    #[inline(always)]
    pub(crate) fn place(&self) -> Path {
        Path { mnt: self.parent.get(), dentry: self.mountpoint.get() }
    }
}

const _: () =
    assert!(MODELLED || size_of::<Mount>() <= 64, "a walk that crosses reads one line of the mount");

/// What a mount forbids, how it keeps access times, and what of it cannot be changed. Kernel: include/linux/mount.h
/// `MNT_*`.
pub(crate) mod flags {
    pub(crate) const RDONLY: u32 = 1 << 0;
    pub(crate) const NOSUID: u32 = 1 << 1;
    pub(crate) const NODEV: u32 = 1 << 2;
    pub(crate) const NOEXEC: u32 = 1 << 3;
    pub(crate) const NOSYMFOLLOW: u32 = 1 << 4;
    pub(crate) const NOATIME: u32 = 1 << 5;
    pub(crate) const NODIRATIME: u32 = 1 << 6;
    pub(crate) const RELATIME: u32 = 1 << 7;
    /// What a remount of the mount alone replaces.
    pub(crate) const USER_SETTABLE: u32 = (1 << 8) - 1;
    pub(crate) const ATIME: u32 = NOATIME | NODIRATIME | RELATIME;

    /// The superblock is read-only; every mount of it says so.
    pub(crate) const SB_RDONLY: u32 = 1 << 8;
    /// Mounted from within a user namespace: no device of the file system can be opened.
    pub(crate) const SB_NODEV: u32 = 1 << 9;
    pub(crate) const SB: u32 = SB_RDONLY | SB_NODEV;
    /// Checks tell what they do ([`crate::kernel::trace`]).
    pub(crate) const RECORDED: u32 = 1 << 11;
    /// Ids look different through it.
    pub(crate) const IDMAPPED: u32 = 1 << 12;
    /// Cannot be unmounted by itself: what it covers must stay covered.
    pub(crate) const LOCKED: u32 = 1 << 13;
    pub(crate) const LOCK_READONLY: u32 = 1 << 14;
    pub(crate) const LOCK_NOSUID: u32 = 1 << 15;
    pub(crate) const LOCK_NODEV: u32 = 1 << 16;
    pub(crate) const LOCK_NOEXEC: u32 = 1 << 17;
    pub(crate) const LOCK_ATIME: u32 = 1 << 18;
    /// Permission checks ask a hook as well ([`crate::Security`]).
    pub(crate) const HOOKED: u32 = 1 << 19;
}

/// A place in the tree: a dentry as seen through a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Path {
    pub(crate) mnt: Handle,
    pub(crate) dentry: Handle,
}

/// The first mount, which is there as long as the [`Kernel`].
pub(crate) const ROOT_MOUNT: Handle = 1;

/// What the first mount is mounted over, as on any booted machine: an empty directory that is seen only by those who take
/// the first mount away. The first one of the mount namespace that every fresh task is in. Kernel: `rootfs`.
pub(crate) const ROOTFS_MOUNT: Handle = 2;

/// The first file system.
pub(crate) const ROOT_SB: u32 = 1;

/// The mount namespace that every fresh task is in.
pub(crate) const INIT_MNT_NS: u32 = 1;

/// The most mounts there can be: more are `ENOSPC`. Kernel: the default of `fs.mount-max`, rounded up.
const MAX_MOUNTS: u32 = if MODELLED { 1 << 4 } else { 1 << 17 };

/// The mounts, as walkers read them.
#[derive(Debug)]
pub(crate) struct MountTable {
    mounts: Arena<Mount>,
    chains: Chains,
    /// Changes whenever a mount is attached or detached, anywhere. Kernel: `mount_lock`.
    pub(crate) seq: SeqCount,
    views: Views,
    init_ns: Arc<UserNamespace>,
}

/// How ids look through mounts, by number. Kept until the table is dropped, and found again by what they say, so that
/// a lockless walker may use one without holding it.
#[derive(Debug, Default)]
struct Views {
    /// The chunk of number `n` is the position of its highest bit.
    chunks: [OnceLock<Box<[OnceLock<View>]>>; 20],
    /// Numbers in use.
    next: RwLock<u32>,
}

/// See [`IdView`].
#[derive(Debug)]
struct View {
    sb_ns: Arc<UserNamespace>,
    idmap: Option<MountIdmap>,
}

impl Views {
    fn slot(&self, number: u32) -> &OnceLock<View> {
        let bit = number.ilog2();
        let chunk =
            self.chunks[bit as usize].get_or_init(|| (0..1 << bit).map(|_| OnceLock::new()).collect());
        &chunk[(number - (1 << bit)) as usize]
    }

    fn get(&self, number: u32) -> Option<&View> {
        self.slot(number).get()
    }

    /// The number of this view; the same for the same one.
    fn intern(&self, sb_ns: &Arc<UserNamespace>, idmap: Option<&MountIdmap>) -> Result<u32> {
        if sb_ns.is_init() && idmap.is_none() {
            return Ok(0);
        }
        let mut next = self.next.write().unwrap_or_else(rcuwalk_sync::lock::PoisonError::into_inner);
        let same = |view: &View| view.sb_ns.is(sb_ns) && view.idmap.as_ref() == idmap;
        if let Some(number) = (1..=*next).find(|&number| self.get(number).is_some_and(same)) {
            return Ok(number);
        }
        if *next + 1 >= 1 << self.chunks.len() {
            return Err(Errno::ENOSPC);
        }
        *next += 1;
        let view = View { sb_ns: Arc::clone(sb_ns), idmap: idmap.cloned() };
        self.slot(*next).get_or_init(|| view);
        Ok(*next)
    }
}

/// What only the holder of the lock needs to know about mounts.
#[derive(Debug)]
pub(crate) struct MountState {
    chains: ChainsWriter,
    info: BTreeMap<Handle, MountInfo>,
    /// The mounts that cover a dentry, in whatever namespace.
    covering: HashMap<Handle, Vec<Handle>>,
    /// File systems. Number 0 is none.
    pub(crate) supers: Table<SuperBlock>,
    /// What is known of mount namespaces that is not their tasks' business, by number.
    namespaces: HashMap<u32, NamespaceInfo>,
    next_id: u64,
    next_ns: u32,
    next_group: u32,
    next_minor: u64,
}

/// See [`MountState`].
#[derive(Debug)]
struct NamespaceInfo {
    user_ns: Arc<UserNamespace>,
    /// Mounts in it. Kernel: `mnt_namespace.nr_mounts`.
    mounts: u64,
}

/// See [`MountState`].
#[derive(Debug, Clone, Default)]
pub(crate) struct MountInfo {
    pub(crate) children: Vec<Handle>,
    /// The group it sends to and receives from; 0 if it is not shared.
    pub(crate) shared: u32,
    /// The group it only receives from; 0 if it is no slave.
    pub(crate) master: u32,
    pub(crate) unbindable: bool,
}

/// A file system. Kernel: `struct super_block`.
#[derive(Debug)]
pub(crate) struct SuperBlock {
    pub(crate) root: Handle,
    pub(crate) dev: u64,
    /// Who mounted it.
    pub(crate) user_ns: Arc<UserNamespace>,
    pub(crate) next_ino: u64,
    /// Bits of [`flags::SB`].
    pub(crate) flags: u32,
    /// Its directories have the "may search" bit. Kernel: whether a file system sets `IOP_FASTPERM_MAY_EXEC`.
    pub(crate) fastperm: bool,
    mounts: u32,
    /// Pages of file contents there may be.
    pub(crate) budget: Arc<PageBudget>,
    /// Inodes and extended attributes there may be.
    pub(crate) space: Arc<InodeSpace>,
}

/// How a mount and those below it are taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Umount {
    /// Nobody uses them.
    Sync,
    /// Those who do may go on. Kernel: `MNT_DETACH`.
    Lazy,
    /// Those who do may go on, and see what is mounted there. Kernel: `UMOUNT_CONNECTED`.
    Connected,
}

impl Nodes for MountTable {
    fn link(&self, handle: Handle) -> &Link {
        &self.get(handle).next
    }

    fn hash(&self, handle: Handle) -> u32 {
        let m = self.get(handle);
        mount_hash(m.parent.get(), m.mountpoint.get())
    }
}

fn mount_hash(parent: Handle, mountpoint: Handle) -> u32 {
    (parent.wrapping_mul(0x9e37_79b1) ^ mountpoint).wrapping_mul(0x85eb_ca6b).rotate_left(15)
}

impl MountTable {
    /// An empty table, and the state that belongs to it.
    pub(crate) fn new() -> Result<(MountTable, MountState)> {
        let (chains, writer) = Chains::new(MAX_MOUNTS)?;
        let table = MountTable {
            mounts: Arena::new(MAX_MOUNTS)?,
            chains,
            seq: SeqCount::default(),
            views: Views::default(),
            init_ns: UserNamespace::init(),
        };
        let state = MountState {
            chains: writer,
            info: BTreeMap::new(),
            covering: HashMap::new(),
            supers: Table::default(),
            namespaces: HashMap::new(),
            next_id: 1 << 31,
            next_ns: INIT_MNT_NS,
            next_group: 1,
            next_minor: 0,
        };
        Ok((table, state))
    }

    #[inline(always)]
    pub(crate) fn get(&self, mnt: Handle) -> &Mount {
        self.mounts.get(mnt)
    }

    /// The mount that covers `dentry` of mount `parent`. The caller holds the lock, or checks [`seq`](Self::seq).
    ///
    /// Kernel: fs/namespace.c `__lookup_mnt()`.
    pub(crate) fn lookup(&self, parent: Handle, dentry: Handle) -> Option<Handle> {
        let is = |at: Handle| {
            let m = self.get(at);
            m.parent.get() == parent && m.mountpoint.get() == dentry
        };
        match self.chains.find(self, mount_hash(parent, dentry), is) {
            Found::Hit(mnt) => Some(mnt),
            // Led astray: the count changed then, too.
            Found::Miss | Found::Astray => None,
        }
    }

    /// How ids look through the mount.
    #[inline]
    pub(crate) fn view(&self, mnt: Handle) -> IdView<'_> {
        match self.get(mnt).view.get() {
            0 => IdView { sb_ns: &self.init_ns, idmap: None },
            // A stale number leads to a view too; what it says is thrown away with the rest.
            number => match self.views.get(number) {
                Some(view) => IdView { sb_ns: &view.sb_ns, idmap: view.idmap.as_ref() },
                None => IdView { sb_ns: &self.init_ns, idmap: None },
            },
        }
    }
}

impl MountState {
    pub(crate) fn info(&self, mnt: Handle) -> MountInfo {
        self.info.get(&mnt).cloned().unwrap_or_default()
    }

    pub(crate) fn info_mut(&mut self, mnt: Handle) -> &mut MountInfo {
        self.info.entry(mnt).or_default()
    }

    /// Every mount, attached or not.
    pub(crate) fn all(&self) -> Vec<Handle> {
        self.info.keys().copied().collect()
    }

    /// The mounts attached to this one.
    pub(crate) fn children(&self, mnt: Handle) -> &[Handle] {
        self.info.get(&mnt).map_or(&[], |info| &info.children)
    }

    /// The mounts that cover a dentry, in whatever namespace.
    pub(crate) fn covering(&self, dentry: Handle) -> &[Handle] {
        self.covering.get(&dentry).map_or(&[], Vec::as_slice)
    }

    /// A mount and everything below it, parents first.
    pub(crate) fn subtree(&self, mnt: Handle) -> Vec<Handle> {
        let mut list = vec![mnt];
        let mut at = 0;
        while at < list.len() {
            list.extend_from_slice(self.children(list[at]));
            at += 1;
        }
        list
    }

    /// A number for a new mount namespace.
    pub(crate) fn new_ns(&mut self, user_ns: &Arc<UserNamespace>) -> u32 {
        self.next_ns += 1;
        self.add_ns(self.next_ns, user_ns);
        self.next_ns
    }

    fn add_ns(&mut self, number: u32, user_ns: &Arc<UserNamespace>) {
        self.namespaces.insert(number, NamespaceInfo { user_ns: Arc::clone(user_ns), mounts: 0 });
    }

    /// Nobody is in a mount namespace any more, and its mounts are gone.
    pub(crate) fn remove_ns(&mut self, number: u32) {
        self.namespaces.remove(&number);
    }

    /// The user namespace that a mount namespace belongs to, if there still is one of this number.
    pub(crate) fn user_ns_of(&self, number: u32) -> Option<&Arc<UserNamespace>> {
        self.namespaces.get(&number).map(|info| &info.user_ns)
    }

    /// How many mounts there are in a mount namespace.
    pub(crate) fn mounts_in(&self, number: u32) -> u64 {
        self.namespaces.get(&number).map_or(0, |info| info.mounts)
    }

    /// A number for a new peer group.
    pub(crate) fn new_group(&mut self) -> u32 {
        self.next_group += 1;
        self.next_group
    }

    /// The next inode number of a file system.
    pub(crate) fn next_ino(&mut self, sb: u32) -> u64 {
        self.supers.get_mut(sb).map_or(1, |sb| {
            sb.next_ino += 1;
            sb.next_ino - 1
        })
    }

    /// Gives no inode of a file system a number below `ino` from now on.
    pub(crate) fn skip_inos(&mut self, sb: u32, ino: u64) {
        if let Some(sb) = self.supers.get_mut(sb) {
            sb.next_ino = sb.next_ino.max(ino);
        }
    }

    /// A device number for a new file system without a device, beside those given already.
    pub(crate) fn new_dev(&mut self) -> u64 {
        loop {
            self.next_minor += 1;
            let dev = crate::base::uapi::makedev(0, self.next_minor as u32);
            if self.supers.iter().all(|sb| sb.dev != dev) {
                return dev;
            }
        }
    }

    /// Starts a file system with `root`, whose reference passes to it; it is not mounted yet.
    pub(crate) fn new_super(
        &mut self,
        dev: u64,
        user_ns: Arc<UserNamespace>,
        budget: PageBudget,
        space: InodeSpace,
        fastperm: bool,
    ) -> Result<u32> {
        let flags = if user_ns.is_init() { 0 } else { flags::SB_NODEV };
        let (budget, space) = (Arc::new(budget), Arc::new(space));
        let new =
            SuperBlock { root: 0, dev, user_ns, next_ino: 1, flags, fastperm, mounts: 0, budget, space };
        self.supers.insert(new)
    }
}

impl Kernel {
    /// The mount namespace that a mount shows its tree in, the tree, and the way ids look.
    #[inline(always)]
    pub(crate) fn mount(&self, mnt: Handle) -> &Mount {
        self.mounts.get(mnt)
    }

    /// Whether the mount has any of these [`flags`].
    #[inline(always)]
    pub(crate) fn mount_has(&self, mnt: Handle, flags: u32) -> bool {
        self.mount(mnt).flags.get() & flags != 0
    }

    /// Whether the superblock of the mount is read-only.
    #[inline(always)]
    pub(crate) fn sb_rdonly(&self, mnt: Handle) -> bool {
        self.mount_has(mnt, flags::SB_RDONLY)
    }

    /// Whether nothing can be written through the mount. Kernel: fs/namespace.c `mnt_want_write()`.
    pub(crate) fn mount_rdonly(&self, mnt: Handle) -> bool {
        self.mount_has(mnt, flags::RDONLY | flags::SB_RDONLY)
    }

    /// Whether something can be written through the mount. Kernel: fs/namespace.c `mnt_want_write()`.
    pub(crate) fn want_write(&self, mnt: Handle) -> Result<()> {
        if !self.mount_rdonly(mnt) {
            return Ok(());
        }
        let rule = if self.sb_rdonly(mnt) { Rule::ReadOnlySuperblock } else { Rule::ReadOnlyMount };
        self.refuse(Path { mnt, dentry: self.mount(mnt).root.get() }, rule, Errno::EROFS)
    }

    /// How ids look through the mount.
    pub(crate) fn id_view(&self, mnt: Handle) -> IdView<'_> {
        self.mounts.view(mnt)
    }

    /// What a permission check needs of an inode, as the mount shows it.
    #[inline(always)]
    pub(crate) fn attr(&self, mnt: Handle, inode: &Inode) -> InodeAttr {
        let attr = inode.attr();
        if self.mount_has(mnt, flags::IDMAPPED) { self.map_attr(mnt, attr) } else { attr }
    }

    #[cold]
    fn map_attr(&self, mnt: Handle, attr: InodeAttr) -> InodeAttr {
        let view = self.id_view(mnt);
        InodeAttr { uid: view.make_vfsuid(attr.uid), gid: view.make_vfsgid(attr.gid), ..attr }
    }

    /// The access ACL of an inode, as the mount shows it.
    #[inline(always)]
    pub(crate) fn racy_acl(&self, mnt: Handle, inode: &Inode) -> RacyAcl<'_> {
        let idmapped = self.mount_has(mnt, flags::IDMAPPED);
        let view = if idmapped { Some(self.id_view(mnt)) } else { None };
        RacyAcl { store: &self.store, blob: inode.acl.get(), view }
    }

    /// Takes a reference to a mount that somebody holds.
    #[inline]
    pub(crate) fn mntget(&self, mnt: Handle) {
        if mnt != ROOT_MOUNT {
            self.mount(mnt).count.get();
        }
    }

    /// Takes a reference to a mount unless nobody holds it.
    #[inline]
    #[must_use]
    pub(crate) fn mntget_not_zero(&self, mnt: Handle) -> bool {
        mnt == ROOT_MOUNT || self.mount(mnt).count.get_not_zero()
    }

    /// Gives a reference back that made use of the mount, and frees it if it was the last.
    ///
    /// Kernel: fs/namespace.c `mntput()`.
    #[inline]
    pub(crate) fn mntput(&self, mnt: Handle) {
        self.mount_used(mnt);
        self.mntput_no_expire(mnt);
    }

    /// Notes that a walk ended in this mount, whatever came of it.
    #[inline(always)]
    pub(crate) fn mount_used(&self, mnt: Handle) {
        if mnt != ROOT_MOUNT && self.mount(mnt).expiring.get() != 0 {
            self.mount(mnt).expiring.set(0);
        }
    }

    /// [`mntput`](Self::mntput) of a walk, which is no use of the mount yet.
    #[inline]
    pub(crate) fn mntput_no_expire(&self, mnt: Handle) {
        if mnt != ROOT_MOUNT && self.mount(mnt).count.put() {
            let mut ns = self.store.lock();
            self.mount_free(&mut ns, mnt);
        }
    }

    /// [`mntput`](Self::mntput) while the lock is held.
    pub(crate) fn mntput_locked(&self, ns: &mut Namespace, mnt: Handle) {
        if mnt != ROOT_MOUNT && self.mount(mnt).count.put() {
            self.mount_free(ns, mnt);
        }
    }

    /// References to a mount, that of the tree it is attached to included.
    pub(crate) fn mount_count(&self, mnt: Handle) -> u32 {
        self.mount(mnt).count.count()
    }

    /// Takes a reference to a place that somebody holds.
    pub(crate) fn path_get(&self, path: Path) {
        self.mntget(path.mnt);
        self.store.links(path.dentry).count.get();
    }

    /// Gives the references to a place back. Kernel: fs/namei.c `path_put()`.
    #[inline]
    pub(crate) fn path_put(&self, path: Path) {
        self.store.dput(path.dentry);
        self.mntput(path.mnt);
    }

    /// [`path_put`](Self::path_put) while the lock is held.
    pub(crate) fn path_put_locked(&self, ns: &mut Namespace, path: Path) {
        self.store.put_locked(ns, path.dentry);
        self.mntput_locked(ns, path.mnt);
    }

    /// Takes both references to a place that nobody may hold any more, if afterwards it is `still` the one wanted.
    #[must_use]
    pub(crate) fn hold(&self, path: Path, still: impl FnOnce() -> bool) -> bool {
        if !self.mntget_not_zero(path.mnt) {
            return false;
        }
        if !self.store.links(path.dentry).count.get_not_zero() {
            self.mntput(path.mnt);
            return false;
        }
        let held = still();
        if !held {
            self.path_put(path);
        }
        held
    }

    /// Takes both references to a place that RCU-walk came to, if it is still what it was, and no mount has changed since
    /// `m_seq`.
    ///
    /// Kernel: fs/namei.c `legitimize_path()`.
    #[inline(always)]
    pub(crate) fn legitimize(&self, at: Position, m_seq: u32) -> std::result::Result<(), Bail> {
        if !self.mntget_not_zero(at.mnt) {
            return Err(Bail::MountMoved);
        }
        if step!("legitimize-mounts", self.mounts.seq.retry(m_seq)) {
            self.mntput(at.mnt);
            return Err(Bail::MountMoved);
        }
        // The reference keeps the mount from being used again.
        if !self.store.legitimize(at.seen) {
            self.mntput(at.mnt);
            return Err(Bail::DentryMoved);
        }
        Ok(())
    }

    /// Where `..` goes from the root of a mount: to what it covers, and on while that is again the root of a mount.
    /// `None` beyond `root`, and where a mount is attached nowhere.
    pub(crate) fn mountpoint_above(&self, at: Path, root: Path) -> Option<Path> {
        let mut mnt = at.mnt;
        loop {
            let m = self.mount(mnt);
            let over = m.place();
            if over.mnt == 0 || over == root {
                return None;
            }
            if self.mount(over.mnt).root.get() != over.dentry {
                return Some(over);
            }
            mnt = over.mnt;
        }
    }

    /// Whether `cred` may do `mask` to an inode that is read meanwhile; the caller validates the inode's count.
    #[inline(always)]
    pub(crate) fn racy_permission(&self, mnt: Handle, inode: &Inode, cred: &Cred, mask: u32) -> Result<()> {
        let mnt_flags = self.mount(mnt).flags.get();
        if mnt_flags & (flags::IDMAPPED | flags::RECORDED | flags::HOOKED) != 0 {
            return self.mapped_permission(mnt, inode, cred, mask);
        }
        let acl = RacyAcl { store: &self.store, blob: inode.acl.get(), view: None };
        perm::inode_permission(mnt_flags & flags::SB_RDONLY != 0, &inode.attr(), &acl, cred, mask)
    }

    /// [`racy_permission`](Self::racy_permission) through an idmap, while it is recorded, or with a hook.
    #[cold]
    fn mapped_permission(&self, mnt: Handle, inode: &Inode, cred: &Cred, mask: u32) -> Result<()> {
        let (attr, acl) = (self.attr(mnt, inode), self.racy_acl(mnt, inode));
        let spot = Spot { mount: self.mount(mnt).id.get(), ino: inode.ino.get() };
        watched::inode_permission(self.sb_rdonly(mnt), &attr, &acl, cred, mask, &mut self.asking(spot))?;
        self.security_inode_permission(mnt, inode, cred, mask)
    }

    /// Whether for certain anybody may do `mask` to the inode, which is not writing: every class is granted it, and there is
    /// no ACL. What the answer is made of goes for any mount.
    #[inline(always)]
    pub(crate) fn everyone_may(&self, mnt: Handle, i: &Inode, mask: u32) -> bool {
        let seq = i.seq.begin();
        perm::everyone_may(i.mode.get(), i.acl.get() != 0, mask)
            && !i.seq.retry(seq)
            && !self.mount_has(mnt, flags::RECORDED | flags::HOOKED)
    }

    /// Whether `cred` may do `mask` to the inode; for inodes that somebody holds.
    pub(crate) fn inode_permission(&self, mnt: Handle, inode: Handle, cred: &Cred, mask: u32) -> Result<()> {
        self.store.read_inode(inode, |i| self.racy_permission(mnt, i, cred, mask))
    }

    /// What a permission check needs of an inode, from one instant.
    #[inline(always)]
    pub(crate) fn read_attr(&self, mnt: Handle, inode: Handle) -> InodeAttr {
        self.store.read_inode(inode, |i| self.attr(mnt, i))
    }

    /// Whether `path` is a mountpoint in that mount namespace, or any other place that shows the same dentry is.
    ///
    /// Kernel: fs/namespace.c `is_local_mountpoint()`.
    pub(crate) fn is_local_mountpoint(&self, ns: &Namespace, dentry: Handle, mnt_ns: u32) -> bool {
        self.store.see(dentry).meta.is_mounted()
            && ns.mnt.covering(dentry).iter().any(|&mnt| self.mount(mnt).ns.get() == mnt_ns)
    }

    /// Takes the mounts off a dentry that lost its name: they are other namespaces'.
    ///
    /// Kernel: fs/namespace.c `__detach_mounts()`.
    pub(crate) fn detach_mounts(&self, ns: &mut Namespace, dentry: Handle) {
        while let Some(&mnt) = ns.mnt.covering(dentry).first() {
            self.umount_tree(ns, mnt, Umount::Connected);
        }
    }

    /// The topmost place over `path`: where a walk that comes to it stands. Kernel: fs/namei.c `follow_down()`.
    pub(crate) fn topmost(&self, _: &Namespace, mut path: Path) -> Path {
        while self.store.see(path.dentry).meta.is_mounted()
            && let Some(mnt) = self.mounts.lookup(path.mnt, path.dentry)
        {
            path = Path { mnt, dentry: self.mount(mnt).root.get() };
        }
        path
    }

    /// Whether `path` lies at or below `root`, across mounts. Kernel: fs/namespace.c `is_path_reachable()`.
    pub(crate) fn is_path_reachable(&self, _: &Namespace, path: Path, root: Path) -> bool {
        let (mut mnt, mut dentry) = (path.mnt, path.dentry);
        while mnt != root.mnt {
            let m = self.mount(mnt);
            if m.parent.get() == 0 {
                return false;
            }
            (mnt, dentry) = (m.parent.get(), m.mountpoint.get());
        }
        self.store.is_subdir(dentry, root.dentry)
    }
}

impl Store {
    /// Whether `dentry` is `above`, or lies below it; for callers that hold the lock, or repeat.
    ///
    /// Kernel: fs/dcache.c `is_subdir()`.
    pub(crate) fn is_subdir(&self, dentry: Handle, above: Handle) -> bool {
        let mut at = dentry;
        while at != above {
            let parent = self.dentry(at).parent.get();
            if parent == at {
                return false;
            }
            at = parent;
        }
        true
    }
}

/// Changes of the mount tree, under the lock.
impl Kernel {
    /// Makes a mount of the file system `sb` that shows the tree below `root`, attached nowhere and held once, by the
    /// caller.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when there are too many.
    pub(crate) fn mount_new(&self, ns: &mut Namespace, sb: u32, root: Handle, flags: u32) -> Result<Handle> {
        let super_block = ns.mnt.supers.get_mut(sb).ok_or(Errno::EINVAL)?;
        let view = self.mounts.views.intern(&super_block.user_ns, None)?;
        let mnt = self.mounts.mounts.alloc()?;
        super_block.mounts += 1;
        let (sb_flags, dev) = (super_block.flags, super_block.dev);
        let m = self.mount(mnt);
        let _change = self.open_mounts(ns);
        m.flags.set(flags & !flags::SB | sb_flags | self.hooked_flag());
        m.root.set(root);
        m.parent.set(0);
        m.mountpoint.set(0);
        m.view.set(view);
        m.ns.set(0);
        m.sb.set(sb);
        m.writers.set(0);
        m.expiring.set(0);
        m.dev.set(dev);
        m.id.set(ns.mnt.next_id);
        ns.mnt.next_id += 1;
        self.store.links(root).count.get();
        m.count.init();
        ns.mnt.info.insert(mnt, MountInfo::default());
        Ok(mnt)
    }

    /// Another mount like `mnt`, that shows the tree below `root`. Kernel: fs/namespace.c `clone_mnt()`.
    pub(crate) fn clone_mnt(&self, ns: &mut Namespace, mnt: Handle, root: Handle) -> Result<Handle> {
        let old = self.mount(mnt);
        let new = self.mount_new(ns, old.sb.get(), root, old.flags.get() & !flags::LOCKED)?;
        self.mount(new).view.set(old.view.get());
        Ok(new)
    }

    /// Gives a detached mount an idmap.
    pub(crate) fn set_idmap(&self, ns: &Namespace, mnt: Handle, idmap: &MountIdmap) -> Result<()> {
        let m = self.mount(mnt);
        let sb = ns.mnt.supers.get(m.sb.get()).ok_or(Errno::EINVAL)?;
        let view = self.mounts.views.intern(&sb.user_ns, Some(idmap))?;
        let _change = self.open_mounts(ns);
        m.view.set(view);
        m.flags.set(m.flags.get() | flags::IDMAPPED);
        Ok(())
    }

    /// Starts a change of the mount table, which ends when the guard is dropped.
    pub(crate) fn open_mounts(&self, ns: &Namespace) -> SeqWrite<'_> {
        let change = self.mounts.seq.write();
        self.store.paths.forget_round(ns, change.after());
        change
    }

    /// Puts a detached mount over `at`. The caller's reference becomes the tree's.
    ///
    /// Kernel: fs/namespace.c `attach_mnt()`.
    pub(crate) fn attach(&self, ns: &mut Namespace, mnt: Handle, at: Path) {
        self.store.links(at.dentry).count.get();
        let covering = ns.mnt.covering.entry(at.dentry).or_default();
        covering.push(mnt);
        if covering.len() == 1 {
            // Before the count changes: a walk that passes here unawares is of the count before, and so is what the
            // whole-path table remembers of it.
            self.store.set_mounted(ns, at.dentry, true);
        }
        let m = self.mount(mnt);
        {
            let _change = self.open_mounts(ns);
            m.parent.set(at.mnt);
            m.mountpoint.set(at.dentry);
            ns.mnt.chains.insert(&self.mounts.chains, &self.mounts, mnt);
        }
        ns.mnt.info_mut(at.mnt).children.push(mnt);
    }

    /// Takes a mount from where it is attached. The tree's reference becomes the caller's.
    ///
    /// Kernel: fs/namespace.c `umount_mnt()`.
    pub(crate) fn detach(&self, ns: &mut Namespace, mnt: Handle) {
        self.detach_idle(ns, mnt, u32::MAX);
    }

    /// [`detach`](Self::detach) unless the mount has more than `most` references. The first mount, which is not counted,
    /// is never in use.
    pub(crate) fn detach_idle(&self, ns: &mut Namespace, mnt: Handle, most: u32) -> bool {
        let m = self.mount(mnt);
        let at = m.place();
        {
            let _change = self.open_mounts(ns);
            if most != u32::MAX && mnt != ROOT_MOUNT {
                // A walker takes its reference, then looks at the count that is odd now. Going through the reference count
                // ourselves we are either behind it, and see its reference, or before it, and it sees the odd count.
                m.count.get();
                let last = m.count.put();
                debug_assert!(!last, "the tree holds an attached mount");
                if m.count.count() > most {
                    return false;
                }
            }
            ns.mnt.chains.remove(&self.mounts.chains, &self.mounts, mnt);
            m.parent.set(0);
            m.mountpoint.set(0);
        }
        ns.mnt.info_mut(at.mnt).children.retain(|&child| child != mnt);
        if let Some(covering) = ns.mnt.covering.get_mut(&at.dentry) {
            covering.retain(|&other| other != mnt);
            if covering.is_empty() {
                ns.mnt.covering.remove(&at.dentry);
                self.store.set_mounted(ns, at.dentry, false);
            }
        }
        self.store.put_locked(ns, at.dentry);
        true
    }

    /// Takes a mount and all below it away. What was mounted on a lazily unmounted one is not seen there any more either,
    /// unless it is locked: then what it covers stays covered.
    ///
    /// Kernel: fs/namespace.c `umount_tree()`.
    pub(crate) fn umount_tree(&self, ns: &mut Namespace, mnt: Handle, how: Umount) {
        let tree = ns.mnt.subtree(mnt);
        for &at in tree.iter().rev() {
            let m = self.mount(at);
            self.set_mount_ns(ns, at, 0);
            let info = ns.mnt.info_mut(at);
            (info.shared, info.master) = (0, 0);
            let stays = at != mnt
                && (how == Umount::Connected || how == Umount::Lazy && m.flags.get() & flags::LOCKED != 0);
            if stays {
                continue;
            }
            if m.parent.get() != 0 {
                self.detach(ns, at);
            }
            self.mntput_locked(ns, at);
        }
    }

    /// Makes a mount one of a namespace, or of none.
    pub(crate) fn set_mount_ns(&self, ns: &mut Namespace, mnt: Handle, number: u32) {
        let of = &self.mount(mnt).ns;
        if let Some(old) = ns.mnt.namespaces.get_mut(&of.get()) {
            old.mounts -= 1;
        }
        if let Some(new) = ns.mnt.namespaces.get_mut(&number) {
            new.mounts += 1;
        }
        of.set(number);
    }

    /// Frees a mount that nobody holds, and its file system if this was the last one of it.
    fn mount_free(&self, ns: &mut Namespace, mnt: Handle) {
        debug_assert_eq!(self.mount(mnt).parent.get(), 0, "an attached mount is held by its tree");
        for child in ns.mnt.info(mnt).children {
            self.detach(ns, child);
            self.mntput_locked(ns, child);
        }
        ns.mnt.info.remove(&mnt);
        let (root, sb) = (self.mount(mnt).root.get(), self.mount(mnt).sb.get());
        self.store.put_locked(ns, root);
        let unused = ns.mnt.supers.get_mut(sb).is_some_and(|sb| {
            sb.mounts -= 1;
            sb.mounts == 0
        });
        if unused && let Some(sb) = ns.mnt.supers.remove(sb) {
            self.store.shrink_tree(ns, sb.root);
        }
        // Without memory for the list of free slots this one is lost until the table is dropped.
        let _ = self.mounts.mounts.free(mnt);
    }

    /// Drops a file system that could not be mounted.
    pub(crate) fn drop_super(&self, ns: &mut Namespace, sb: u32) {
        if let Some(sb) = ns.mnt.supers.remove(sb)
            && sb.root != 0
        {
            self.store.shrink_tree(ns, sb.root);
        }
    }
}

/// File systems, and who writes to them, under the lock.
impl Kernel {
    /// Makes the root of the file system `init.sb`, and gives it to it.
    pub(crate) fn new_root(&self, ns: &mut Namespace, init: &InodeInit<'_>) -> Result<Handle> {
        let root = self.store.new_inode(ns, init)?;
        if let Some(sb) = ns.mnt.supers.get_mut(init.sb) {
            sb.root = root;
        }
        Ok(root)
    }

    /// Mounts the first mount over the root of a file system of its own. Kernel: `init_mount_tree()`.
    pub(crate) fn mount_rootfs(&self, ns: &mut Namespace, root: Handle, init: &InodeInit<'_>) -> Result<()> {
        let dev = ns.mnt.new_dev();
        let nothing = (PageBudget::new(0), InodeSpace::new(0));
        let sb = ns.mnt.new_super(dev, UserNamespace::init(), nothing.0, nothing.1, true)?;
        let over = self.new_root(ns, &InodeInit { sb, ..*init })?;
        let rootfs = self.mount_new(ns, sb, over, flags::RELATIME | flags::LOCKED)?;
        debug_assert_eq!(rootfs, ROOTFS_MOUNT);
        self.attach(ns, root, Path { mnt: rootfs, dentry: over });
        ns.mnt.add_ns(INIT_MNT_NS, &UserNamespace::init());
        [root, rootfs].into_iter().for_each(|mnt| self.set_mount_ns(ns, mnt, INIT_MNT_NS));
        Ok(())
    }

    /// Sets the flags of a file system that are in `mask`, and with them those of its mounts.
    pub(crate) fn set_sb_flags(&self, ns: &mut Namespace, sb: u32, mask: u32, flags: u32) {
        if let Some(sb) = ns.mnt.supers.get_mut(sb) {
            sb.flags = sb.flags & !mask | flags;
        }
        for mnt in ns.mnt.all() {
            let m = self.mount(mnt);
            if m.sb.get() == sb {
                m.flags.set(m.flags.get() & !mask | flags);
            }
        }
    }

    /// The pages of file contents that the file system of this mount may have.
    pub(crate) fn budget(&self, ns: &Namespace, mnt: Handle) -> Result<Arc<PageBudget>> {
        let sb = ns.mnt.supers.get(self.mount(mnt).sb.get()).ok_or(Errno::ESTALE)?;
        Ok(Arc::clone(&sb.budget))
    }

    /// Counts a file open for writing through the mount, which so cannot become read-only.
    pub(crate) fn get_mount_writer(&self, _: &Namespace, mnt: Handle) {
        let writers = &self.mount(mnt).writers;
        writers.set(writers.get() + 1);
    }

    pub(crate) fn put_mount_writer(&self, _: &Namespace, mnt: Handle) {
        let writers = &self.mount(mnt).writers;
        writers.set(writers.get() - 1);
    }
}
