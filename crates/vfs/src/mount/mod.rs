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

pub(crate) mod views;

use crate::base::errno::Result;
use crate::base::table::Table;
use crate::cred::ucounts::Counted;
use crate::cred::userns::{MountIdmap, UserNamespace};
use crate::mount::views::{HeldView, ViewSlots, Views};
use crate::tmpfs::ispace::InodeSpace;
use crate::tmpfs::options::ShownOptions;
use crate::tmpfs::pages::PageBudget;
use rcuwalk_sync::lock::FairMutex;
use rcuwalk_sync::{
    Arena, Budget, Chains, ChainsWriter, Charge, Handle, Link, LockRef, MODELLED, Nodes, Racy32, Racy64,
    SeqCount, chains::Found, type_stable,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
        /// Which [`View`](views::View) it has; 0 for that of the initial namespace, without an idmap.
        pub(crate) view: Racy32,
        /// The mount namespace it belongs to; 0 if it is detached.
        pub(crate) ns: Racy32,
        /// Its file system: a key of [`MountState::supers`].
        pub(crate) sb: Racy32,
        pub(crate) count: LockRef,
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
    /// Where it is attached, whatever it is marked with; mount 0 if nowhere. Those who do not hold [`MountTable::sem`] ask
    /// [`MountTable::place`].
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
    /// Written to at once, as statfs says.
    pub(crate) const SB_SYNCHRONOUS: u32 = 1 << 10;
    /// With mandatory locks, as statfs says; there are none.
    pub(crate) const SB_MANDLOCK: u32 = 1 << 20;
    /// Directories are written to at once, as statmount says.
    pub(crate) const SB_DIRSYNC: u32 = 1 << 21;
    /// Times are written late, as statmount says.
    pub(crate) const SB_LAZYTIME: u32 = 1 << 22;
    /// What a remount of the file system replaces. Kernel: `MS_RMT_MASK`.
    pub(crate) const SB_REMOUNTABLE: u32 = SB_RDONLY | SB_SYNCHRONOUS | SB_MANDLOCK | SB_LAZYTIME;
    /// What is said when a file system is mounted.
    pub(crate) const SB_SETTABLE: u32 = SB_REMOUNTABLE | SB_DIRSYNC;
    pub(crate) const SB: u32 = SB_SETTABLE | SB_NODEV;
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

    // What becomes true when a change of many mounts is committed ([`super::MountTable::committed`]).
    /// No walk comes to the mount before.
    pub(crate) const COMING: u32 = 1 << 23;
    /// The mount is attached nowhere from then on.
    pub(crate) const GOING: u32 = 1 << 24;
    /// The mount is in the namespace [`super::MountTable::joined`] from then on.
    pub(crate) const JOINING: u32 = 1 << 25;
    pub(crate) const MARKS: u32 = COMING | GOING | JOINING;
}

/// A place in the tree: a dentry as seen through a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Path {
    pub(crate) mnt: Handle,
    pub(crate) dentry: Handle,
}

/// The first mount, which is there as long as the [`Kernel`](crate::kernel::Kernel).
pub(crate) const ROOT_MOUNT: Handle = 1;

/// What the first mount is mounted over, as on any booted machine: an empty directory that is seen only by those who take
/// the first mount away. The first one of the mount namespace that every fresh task is in. Kernel: `rootfs`.
pub(crate) const ROOTFS_MOUNT: Handle = 2;

/// The first file system.
pub(crate) const ROOT_SB: u32 = 1;

/// The mount namespace that every fresh task is in.
pub(crate) const INIT_MNT_NS: u32 = 1;

/// The id of the first mount. None is as small as an id that is used again. Kernel: `MNT_UNIQUE_ID_OFFSET` and one.
pub(crate) const FIRST_MNT_ID: u64 = (1 << 31) + 1;

/// The most mounts there can be, in all mount namespaces: more are `ENOSPC`. A single namespace has `fs.mount-max`.
const MAX_MOUNTS: u32 = if MODELLED { 1 << 4 } else { 1 << 20 };

/// The mounts, as walkers read them.
#[derive(Debug)]
pub(crate) struct MountTable {
    pub(crate) mounts: Arena<Mount>,
    pub(crate) chains: Chains,
    /// Changes whenever a mount is attached or detached, anywhere. Kernel: `mount_lock`.
    pub(crate) seq: SeqCount,
    /// Held, outside of the lock of the name space, by all who change the tree of mounts or look at much of it. Kernel:
    /// `namespace_sem`.
    pub(crate) sem: FairMutex<()>,
    /// Whether what mounts are marked with counts ([`flags::MARKS`]). A change of many mounts marks them step by step, has all of it
    /// come true by this one word, under [`seq`](Self::seq), and then puts it into effect step by step.
    pub(crate) committed: Racy32,
    /// Where mounts are then that are marked `JOINING`.
    pub(crate) joined: Racy32,
    /// Whether any mount was ever marked as [`expiring`](Mount::expiring): until then no walk looks at its mount for that.
    pub(crate) marked: Racy32,
    views: ViewSlots,
    init_ns: Arc<UserNamespace>,
}

/// What only the holder of the lock needs to know about mounts.
#[derive(Debug)]
pub(crate) struct MountState {
    pub(crate) chains: ChainsWriter,
    /// What everything that tenants make may take, if that is limited.
    pub(crate) memory: Option<Arc<Budget>>,
    views: Views,
    /// By handle.
    info: Vec<Option<MountInfo>>,
    /// Peer groups and their slaves, by number.
    groups: BTreeMap<u32, Group>,
    /// The mounts that cover a dentry, in whatever namespace.
    covering: BTreeMap<Handle, BTreeSet<Handle>>,
    /// File systems. Number 0 is none.
    pub(crate) supers: Table<SuperBlock>,
    /// The device numbers of the file systems.
    devs: BTreeSet<u64>,
    /// What is known of mount namespaces that is not their tasks' business, by number.
    namespaces: BTreeMap<u32, NamespaceInfo>,
    /// Mounts that nobody holds, to be freed step by step.
    pub(crate) unused: Vec<Handle>,
    pub(crate) next_id: u64,
    next_ns: u32,
    next_group: u32,
    next_child: u64,
    next_minor: u64,
}

/// See [`MountState`].
#[derive(Debug)]
pub(crate) struct NamespaceInfo {
    pub(crate) user_ns: Arc<UserNamespace>,
    /// Its first mount, which all others are on.
    pub(crate) root: Handle,
    /// Mounts in it, by id. Kernel: `mnt_namespace.mounts`.
    pub(crate) mounts: BTreeMap<u64, Handle>,
}

/// What mount(2) was told to mount, as statmount(2) shows it; counted as memory. Kernel: `mount.mnt_devname`.
#[derive(Debug)]
pub(crate) struct Source {
    bytes: Box<[u8]>,
    _charge: Charge,
}

impl Source {
    /// What a mount without a source says.
    pub(crate) const NONE: &'static [u8] = b"none";

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// See [`MountState`].
#[derive(Debug, Default)]
struct MountInfo {
    /// What is attached to it, by when it came.
    children: BTreeMap<u64, Handle>,
    /// When it came to its parent.
    came: u64,
    propagation: Propagation,
    source: Option<Arc<Source>>,
    /// Of the root of a tree that open_tree(2) made and that is mounted nowhere yet: it counts as a mount namespace.
    counted: Option<Counted>,
}

/// How a mount propagates.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Propagation {
    /// The group it sends to and receives from; 0 if it is not shared.
    pub(crate) shared: u32,
    /// The group it only receives from; 0 if it is no slave.
    pub(crate) master: u32,
    pub(crate) unbindable: bool,
}

/// The mounts that what happens on one of a group goes to.
#[derive(Debug, Default)]
struct Group {
    peers: BTreeSet<Handle>,
    slaves: BTreeSet<Handle>,
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
    pub(crate) mounts: BTreeSet<Handle>,
    /// Pages of file contents there may be.
    pub(crate) budget: Arc<PageBudget>,
    /// Inodes and extended attributes there may be.
    pub(crate) space: Arc<InodeSpace>,
    /// The options it was mounted with.
    pub(crate) options: ShownOptions,
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

/// What a mount counts for as memory: its slot, and what the lists of mounts, file systems and namespaces have of it; bytes.
const MOUNT_BYTES: u64 = 1024;

impl MountTable {
    /// An empty table, and the state that belongs to it.
    pub(crate) fn new(memory: Option<Arc<Budget>>) -> Result<(MountTable, MountState)> {
        let (chains, writer) = Chains::new(MAX_MOUNTS)?;
        let table = MountTable {
            mounts: Arena::counted(MAX_MOUNTS, memory.clone(), MOUNT_BYTES)?,
            chains,
            seq: SeqCount::default(),
            sem: FairMutex::new(()),
            committed: Racy32::default(),
            joined: Racy32::default(),
            marked: Racy32::default(),
            views: ViewSlots::default(),
            init_ns: UserNamespace::init(),
        };
        let state = MountState {
            chains: writer,
            memory,
            views: Views::default(),
            info: Vec::new(),
            groups: BTreeMap::new(),
            covering: BTreeMap::new(),
            supers: Table::default(),
            devs: BTreeSet::new(),
            namespaces: BTreeMap::new(),
            unused: Vec::new(),
            next_id: FIRST_MNT_ID,
            next_ns: INIT_MNT_NS,
            next_group: 1,
            next_child: 0,
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
            m.parent.get() == parent && m.mountpoint.get() == dentry && self.is_visible(m)
        };
        match self.chains.find(self, mount_hash(parent, dentry), is) {
            Found::Hit(mnt) => Some(mnt),
            // Led astray: the count changed then, too.
            Found::Miss | Found::Astray => None,
        }
    }

    #[inline]
    fn is_visible(&self, m: &Mount) -> bool {
        m.flags.get() & (flags::COMING | flags::GOING) == 0 || self.is_visible_by_marks(m)
    }

    #[cold]
    fn is_visible_by_marks(&self, m: &Mount) -> bool {
        let (set, committed) = self.marks(m);
        match set & (flags::COMING | flags::GOING) {
            0 => true,
            flags::COMING => committed,
            _ => !committed,
        }
    }

    /// The flags of a mount, and whether its marks count. Read one after the other, marks that counted could be taken for those of a
    /// change that is yet to come.
    fn marks(&self, m: &Mount) -> (u32, bool) {
        loop {
            let committed = self.committed.get();
            let set = m.flags.get();
            if self.committed.get() == committed {
                return (set, committed != 0);
            }
        }
    }

    /// Where a mount is attached; mount 0 if nowhere.
    #[inline]
    pub(crate) fn place(&self, mnt: Handle) -> Path {
        let m = self.get(mnt);
        if self.is_visible(m) { m.place() } else { Path::default() }
    }

    /// The mount namespace that a mount belongs to; 0 if none.
    pub(crate) fn ns_of(&self, mnt: Handle) -> u32 {
        let m = self.get(mnt);
        let (set, committed) = self.marks(m);
        match (set & flags::COMING != 0, set & flags::JOINING != 0) {
            (true, _) if !committed => 0,
            (_, true) if committed => self.joined.get(),
            _ => m.ns.get(),
        }
    }

    /// How ids look through the mount. Of a mount that nobody holds that may be anything.
    #[inline]
    pub(crate) fn view(&self, mnt: Handle) -> HeldView<'_> {
        let view = &self.get(mnt).view;
        if view.get() == 0 { HeldView::Init(&self.init_ns) } else { self.hold_view(view) }
    }

    fn hold_view(&self, view: &Racy32) -> HeldView<'_> {
        loop {
            let seq = self.seq.begin();
            let number = view.get();
            let held = if number == 0 { None } else { Some(self.views.get(number)) };
            if !self.seq.retry(seq) {
                // The number of a mount that was freed may be nobody's now.
                let held = held.filter(|held| held.is_some());
                return held.map_or(HeldView::Init(&self.init_ns), HeldView::Of);
            }
        }
    }
}

impl MountState {
    fn info(&self, mnt: Handle) -> Option<&MountInfo> {
        self.info.get(mnt as usize)?.as_ref()
    }

    fn info_mut(&mut self, mnt: Handle) -> Option<&mut MountInfo> {
        self.info.get_mut(mnt as usize)?.as_mut()
    }

    /// Counts and keeps a source of a mount.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new_source(&self, bytes: &[u8]) -> Result<Arc<Source>> {
        let charge = Charge::new(self.memory.as_ref(), bytes.len() as u64)?;
        Ok(Arc::new(Source { bytes: bytes.into(), _charge: charge }))
    }

    /// The source of a mount; `None` is [`Source::NONE`].
    pub(crate) fn source(&self, mnt: Handle) -> Option<&Arc<Source>> {
        self.info(mnt)?.source.as_ref()
    }

    pub(crate) fn set_source(&mut self, mnt: Handle, source: Option<Arc<Source>>) {
        if let Some(info) = self.info_mut(mnt) {
            info.source = source;
        }
    }

    /// The number of a view, for a mount that is being made. See [`Mount::view`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn take_view(
        &mut self,
        table: &MountTable,
        sb_ns: &Arc<UserNamespace>,
        idmap: Option<&MountIdmap>,
    ) -> Result<u32> {
        self.views.take(&table.views, self.memory.as_ref(), sb_ns, idmap)
    }

    /// One more mount has this view.
    pub(crate) fn share_view(&mut self, number: u32) {
        self.views.share(number);
    }

    /// A mount that is not walked into any more had this view.
    pub(crate) fn put_view(&mut self, table: &MountTable, number: u32) {
        self.views.put(&table.views, number);
    }

    /// Has a detached tree count as a mount namespace while its root is of none.
    pub(crate) fn set_counted(&mut self, root: Handle, counted: Counted) {
        if let Some(info) = self.info_mut(root) {
            info.counted = Some(counted);
        }
    }

    /// A mount that is attached nowhere and propagates nothing.
    pub(crate) fn add(&mut self, mnt: Handle) {
        let at = mnt as usize;
        if self.info.len() <= at {
            self.info.resize_with(at + 1, || None);
        }
        self.info[at] = Some(MountInfo::default());
    }

    /// A mount is gone that propagates nothing.
    pub(crate) fn remove(&mut self, mnt: Handle) {
        if let Some(info) = self.info.get_mut(mnt as usize) {
            *info = None;
        }
        while self.info.pop_if(|info| info.is_none()).is_some() {}
        if self.info.len() < self.info.capacity() / 4 {
            self.info.shrink_to(self.info.len() * 2);
        }
    }

    /// Every mount, attached or not.
    pub(crate) fn all(&self) -> impl Iterator<Item = Handle> {
        (0..).zip(&self.info).filter(|(_, info)| info.is_some()).map(|(mnt, _)| mnt)
    }

    /// How a mount propagates.
    pub(crate) fn propagation(&self, mnt: Handle) -> Propagation {
        self.info(mnt).map_or_else(Propagation::default, |info| info.propagation)
    }

    pub(crate) fn set_propagation(&mut self, mnt: Handle, new: Propagation) {
        let Some(info) = self.info_mut(mnt) else { return };
        let old = std::mem::replace(&mut info.propagation, new);
        if old.shared != new.shared {
            self.leave(old.shared, |group| group.peers.remove(&mnt));
            self.join(new.shared, |group| group.peers.insert(mnt));
        }
        if old.master != new.master {
            self.leave(old.master, |group| group.slaves.remove(&mnt));
            self.join(new.master, |group| group.slaves.insert(mnt));
        }
    }

    fn join(&mut self, number: u32, insert: impl Fn(&mut Group) -> bool) {
        if number != 0 {
            insert(self.groups.entry(number).or_default());
        }
    }

    fn leave(&mut self, number: u32, remove: impl Fn(&mut Group) -> bool) {
        if let Some(group) = self.groups.get_mut(&number) {
            remove(group);
            if group.peers.is_empty() && group.slaves.is_empty() {
                self.groups.remove(&number);
            }
        }
    }

    /// The mounts of a peer group.
    pub(crate) fn peers(&self, group: u32) -> impl Iterator<Item = Handle> {
        self.groups.get(&group).into_iter().flat_map(|group| group.peers.iter().copied())
    }

    /// The mounts that only receive from a peer group.
    pub(crate) fn slaves(&self, group: u32) -> impl Iterator<Item = Handle> {
        self.groups.get(&group).into_iter().flat_map(|group| group.slaves.iter().copied())
    }

    /// The mounts attached to this one, the oldest first.
    pub(crate) fn children(&self, mnt: Handle) -> impl DoubleEndedIterator<Item = Handle> {
        self.info(mnt).into_iter().flat_map(|info| info.children.values().copied())
    }

    /// Whether nothing is attached to this mount.
    pub(crate) fn is_leaf(&self, mnt: Handle) -> bool {
        self.info(mnt).is_none_or(|info| info.children.is_empty())
    }

    /// Writes down that `mnt` comes to be attached to `parent`, over `dentry`; whether nothing covered that before.
    pub(crate) fn add_child(&mut self, parent: Handle, mnt: Handle, dentry: Handle) -> bool {
        self.next_child += 1;
        let came = self.next_child;
        if let Some(info) = self.info_mut(mnt) {
            info.came = came;
        }
        if let Some(info) = self.info_mut(parent) {
            info.children.insert(came, mnt);
        }
        let covering = self.covering.entry(dentry).or_default();
        covering.insert(mnt);
        covering.len() == 1
    }

    /// Writes down that `mnt` is attached to `parent` no more, over `dentry`; whether nothing covers that now.
    pub(crate) fn remove_child(&mut self, parent: Handle, mnt: Handle, dentry: Handle) -> bool {
        let came = self.info(mnt).map_or(0, |info| info.came);
        if let Some(info) = self.info_mut(parent) {
            info.children.remove(&came);
        }
        let Some(covering) = self.covering.get_mut(&dentry) else { return false };
        covering.remove(&mnt);
        let uncovered = covering.is_empty();
        if uncovered {
            self.covering.remove(&dentry);
        }
        uncovered
    }

    /// The mounts that cover a dentry, in whatever namespace.
    pub(crate) fn covering(&self, dentry: Handle) -> impl Iterator<Item = Handle> {
        self.covering.get(&dentry).into_iter().flatten().copied()
    }

    /// A number for a new mount namespace, whose first mount is `root`.
    pub(crate) fn new_ns(&mut self, user_ns: &Arc<UserNamespace>, root: Handle) -> u32 {
        self.next_ns += 1;
        self.add_ns(self.next_ns, user_ns, root);
        self.next_ns
    }

    pub(crate) fn add_ns(&mut self, number: u32, user_ns: &Arc<UserNamespace>, root: Handle) {
        let info = NamespaceInfo { user_ns: Arc::clone(user_ns), root, mounts: BTreeMap::new() };
        self.namespaces.insert(number, info);
    }

    /// A mount with this id leaves the namespace of number `old` for that of number `new`; 0 is none.
    pub(crate) fn move_to_ns(&mut self, (id, mnt): (u64, Handle), old: u32, new: u32) {
        if let Some(old) = self.namespaces.get_mut(&old) {
            old.mounts.remove(&id);
        }
        if let Some(info) = self.info_mut(mnt) {
            info.counted = None;
        }
        if let Some(new) = self.namespaces.get_mut(&new) {
            new.mounts.insert(id, mnt);
        }
    }

    /// The mount namespace of this number, if there still is one. Those of detached trees are none.
    pub(crate) fn namespace(&self, number: u32) -> Option<&NamespaceInfo> {
        self.namespaces.get(&number)
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
        self.namespaces.get(&number).map_or(0, |info| info.mounts.len() as u64)
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
            if !self.devs.contains(&dev) {
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
        let budget = Arc::new(budget.counted(self.memory.clone()));
        let space = Arc::new(space.counted(self.memory.clone()));
        let mounts = BTreeSet::new();
        let options = ShownOptions::default();
        let new = SuperBlock {
            root: 0,
            dev,
            user_ns,
            next_ino: 1,
            flags,
            fastperm,
            mounts,
            budget,
            space,
            options,
        };
        let sb = self.supers.insert(new)?;
        self.devs.insert(dev);
        Ok(sb)
    }

    /// Ends a file system that is mounted nowhere.
    pub(crate) fn remove_super(&mut self, sb: u32) -> Option<SuperBlock> {
        let sb = self.supers.remove(sb)?;
        self.devs.remove(&sb.dev);
        Some(sb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing that a caller sees tells whether the lists still have what is gone: only memory does.
    #[test]
    fn what_is_gone_takes_no_room() {
        const MOUNTS: Handle = 10_000;
        let (_, mut state) = MountTable::new(None).expect("has room");
        for mnt in 1..=MOUNTS {
            let (shared, master) = (state.new_group(), state.new_group());
            state.add(mnt);
            state.set_propagation(mnt, Propagation { shared, master, unbindable: false });
            assert!(state.add_child(1, mnt, mnt), "nothing covered it before");
        }
        assert_eq!(state.groups.len(), 2 * MOUNTS as usize);
        for mnt in 1..=MOUNTS {
            state.set_propagation(mnt, Propagation::default());
            assert!(state.remove_child(1, mnt, mnt), "nothing covers it now");
            state.remove(mnt);
        }
        assert!(state.groups.is_empty() && state.covering.is_empty() && state.info.is_empty());
        assert!(state.info.capacity() < MOUNTS as usize / 10, "room for {} is kept", state.info.capacity());
    }
}
