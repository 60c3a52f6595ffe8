//! The mount tree as it changes, under the lock: what is attached where, copies of trees, file systems, mount namespaces.
//!
//! Kernel: fs/namespace.c.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::{MS_SHARED, MS_SLAVE, MS_UNBINDABLE};
use crate::cred::ucounts::Counted;
use crate::cred::userns::{MountIdmap, UserNamespace};
use crate::dcache::store::{InodeInit, Namespace};
use crate::kernel::Kernel;
use crate::kernel::mount_lock::MountGuard;
use crate::kernel::sysctl::Sysctl;
use crate::mount::{INIT_MNT_NS, Path, Propagation, ROOTFS_MOUNT, SuperBlock, flags};
use crate::tmpfs::ispace::InodeSpace;
use crate::tmpfs::pages::PageBudget;
use rcuwalk_sync::{Charge, Handle, SeqWrite};
use std::collections::HashMap;
use std::sync::Arc;

/// A mount namespace. Kernel: `struct mnt_namespace`.
#[derive(Debug)]
pub(crate) struct MntNamespace {
    kernel: Arc<Kernel>,
    pub(crate) id: u32,
    pub(crate) user_ns: Arc<UserNamespace>,
    /// The first mount of a namespace of its own.
    pub(crate) root: Handle,
    /// It counts as one of its creator's, but for the first one. Kernel: `ucounts`.
    _counted: Option<(Counted, Charge)>,
}

/// What a mount namespace counts for as memory, its mounts apart; bytes.
pub(crate) const MNT_NS_BYTES: u64 = 1024;

impl MntNamespace {
    /// The namespace of fresh tasks.
    pub(crate) fn init(kernel: &Arc<Kernel>) -> Arc<MntNamespace> {
        MntNamespace::new(kernel, INIT_MNT_NS, UserNamespace::init(), ROOTFS_MOUNT, None)
    }

    /// The namespace of number `id` and of the tree at `root`, which it unmounts when it is dropped.
    pub(crate) fn new(
        kernel: &Arc<Kernel>,
        id: u32,
        user_ns: Arc<UserNamespace>,
        root: Handle,
        counted: Option<(Counted, Charge)>,
    ) -> Arc<MntNamespace> {
        Arc::new(MntNamespace { kernel: Arc::clone(kernel), id, user_ns, root, _counted: counted })
    }
}

impl Drop for MntNamespace {
    fn drop(&mut self) {
        if self.id != INIT_MNT_NS {
            let mut lock = self.kernel.lock_mounts();
            self.kernel.umount_tree(&mut lock, self.root, Umount::Lazy);
            lock.mnt.remove_ns(self.id);
        }
    }
}

/// Beside the number of a mount namespace: that of a detached tree that [`Task::open_tree`](crate::Task::open_tree) made there. It is attached nowhere, but
/// not unmounted either.
pub(crate) const ANON_NS: u32 = 1 << 31;

/// Kernel: `is_anon_ns()`.
pub(crate) fn is_anonymous(ns: u32) -> bool {
    ns & ANON_NS != 0
}

/// Mounts that are about to be attached, by namespace.
pub(crate) type Pending = HashMap<u32, u64>;

/// How a tree comes to be attached: it is new there, or was attached elsewhere in the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attach {
    New,
    Moved,
}

/// How a mount and those below it are taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Umount {
    /// Those who use them may go on. Kernel: `MNT_DETACH`.
    Lazy,
    /// Those who use them may go on, and see what is mounted there. Kernel: `UMOUNT_CONNECTED`.
    Connected,
}

/// How a copy of a mount relates to what it was copied from. Kernel: `CL_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copy {
    /// As bind does: the copy is in the same groups.
    Bind,
    /// The copy is a slave; it gets a group of its own if `shared`.
    Slave { shared: bool },
    /// For a new namespace: unbindable mounts are copied, too, after which they can be bound.
    Namespace,
    /// For a new namespace of another user namespace: everything is a slave, and what it restricts is locked.
    Unprivileged,
}

/// The first group above one without peers that has peers; 0 if there is none. The next search that comes by finds it at once.
fn living_master(masters: &mut HashMap<u32, u32>, mut group: u32) -> u32 {
    let mut passed = Vec::new();
    while let Some(&master) = masters.get(&group) {
        passed.push(group);
        group = master;
    }
    masters.extend(passed.into_iter().map(|below| (below, group)));
    group
}

/// The second of each pair: what was copied.
pub(crate) fn copies_of(pairs: &[(Handle, Handle)]) -> Vec<Handle> {
    pairs.iter().map(|&(_, copy)| copy).collect()
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
        let user_ns = Arc::clone(&ns.mnt.supers.get(sb).ok_or(Errno::EINVAL)?.user_ns);
        let view = ns.mnt.take_view(&self.mounts, &user_ns, None)?;
        let mnt = self.mounts.mounts.alloc().inspect_err(|_| ns.mnt.put_view(&self.mounts, view))?;
        let super_block = ns.mnt.supers.get_mut(sb).ok_or(Errno::EINVAL)?;
        super_block.mounts.insert(mnt);
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
        ns.mnt.add(mnt);
        Ok(mnt)
    }

    /// Another mount like `mnt`, that shows the tree below `root`. Kernel: fs/namespace.c `clone_mnt()`.
    pub(crate) fn clone_mnt(&self, ns: &mut Namespace, mnt: Handle, root: Handle) -> Result<Handle> {
        let old = self.mount(mnt);
        let source = ns.mnt.source(mnt).cloned();
        let new = self.mount_new(ns, old.sb.get(), root, old.flags.get() & !flags::LOCKED)?;
        ns.mnt.set_source(new, source);
        let (without_idmap, view) = (self.mount(new).view.get(), old.view.get());
        ns.mnt.share_view(view);
        self.mount(new).view.set(view);
        ns.mnt.put_view(&self.mounts, without_idmap);
        Ok(new)
    }

    /// The numbers of views with an idmap, for [`set_idmap`](Self::set_idmap) of each of these mounts.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn idmap_views(
        &self,
        ns: &mut Namespace,
        mounts: &[Handle],
        idmap: &MountIdmap,
    ) -> Result<Vec<u32>> {
        let mut views = Vec::new();
        for &mnt in mounts {
            let sb = ns.mnt.supers.get(self.mount(mnt).sb.get()).ok_or(Errno::EINVAL)?;
            let user_ns = Arc::clone(&sb.user_ns);
            match ns.mnt.take_view(&self.mounts, &user_ns, Some(idmap)) {
                Ok(view) => views.push(view),
                Err(errno) => {
                    views.iter().for_each(|&view| ns.mnt.put_view(&self.mounts, view));
                    return Err(errno);
                }
            }
        }
        Ok(views)
    }

    /// Gives a detached mount an idmap.
    pub(crate) fn set_idmap(&self, ns: &mut Namespace, mnt: Handle, view: u32) {
        let m = self.mount(mnt);
        let old = m.view.get();
        {
            let _change = self.open_mounts(ns);
            m.view.set(view);
            m.flags.set(m.flags.get() | flags::IDMAPPED);
        }
        ns.mnt.put_view(&self.mounts, old);
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
        if ns.mnt.add_child(at.mnt, mnt, at.dentry) {
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
    }

    /// Takes a mount from where it is attached. The tree's reference becomes the caller's.
    ///
    /// Kernel: fs/namespace.c `umount_mnt()`.
    pub(crate) fn detach(&self, ns: &mut Namespace, mnt: Handle) {
        let m = self.mount(mnt);
        let at = m.place();
        {
            let _change = self.open_mounts(ns);
            ns.mnt.chains.remove(&self.mounts.chains, &self.mounts, mnt);
            m.parent.set(0);
            m.mountpoint.set(0);
            m.flags.set(m.flags.get() & !flags::MARKS);
        }
        if ns.mnt.remove_child(at.mnt, mnt, at.dentry) {
            self.store.set_mounted(ns, at.dentry, false);
        }
        self.store.put_locked(ns, at.dentry);
    }

    /// Whether nobody uses a mount but those who have `most` references to it; asked while the count of the table is odd. The first
    /// mount, which is not counted, is never in use.
    pub(crate) fn is_idle(&self, mnt: Handle, most: u32) -> bool {
        // A walker takes its reference, then looks at the table's count, which is odd now. Going through the reference count
        // ourselves we are either behind it, and see its reference, or before it, and it sees the odd count.
        let count = &self.mount(mnt).count;
        count.get();
        let last = count.put();
        debug_assert!(!last, "the tree holds an attached mount");
        count.count() <= most
    }

    /// Takes a mount and all below it away. What was mounted on a lazily unmounted one is not seen there any more either,
    /// unless it is locked: then what it covers stays covered.
    ///
    /// Kernel: fs/namespace.c `umount_tree()`.
    pub(crate) fn umount_tree(&self, lock: &mut MountGuard<'_>, mnt: Handle, how: Umount) {
        let tree = lock.subtree(mnt);
        self.umount_trees(lock, &[tree], &[], how, || true);
    }

    /// [`umount_tree`](Self::umount_tree) of trees that have nothing in common, while the mounts in `moves` come to be elsewhere;
    /// unless it [may](Self::commit) not be.
    pub(crate) fn umount_trees(
        &self,
        lock: &mut MountGuard<'_>,
        trees: &[Vec<Handle>],
        moves: &[(Handle, Path)],
        how: Umount,
        may: impl FnOnce() -> bool,
    ) -> bool {
        for tree in trees {
            for &at in tree {
                let detached = if self.stays_connected(tree, at, how) { 0 } else { flags::GOING };
                lock.mark(&[at], flags::JOINING | detached);
            }
        }
        let done = self.commit(lock, 0, moves, may);
        if done {
            self.take_apart(lock, trees, how);
        } else {
            trees.iter().for_each(|tree| lock.mark(tree, 0));
        }
        self.end_commit(lock);
        done
    }

    /// Whether a mount stays attached where it is, though unmounted.
    fn stays_connected(&self, tree: &[Handle], mnt: Handle, how: Umount) -> bool {
        let locked = self.mount(mnt).flags.get() & flags::LOCKED != 0;
        mnt != tree[0] && (how == Umount::Connected || locked)
    }

    /// Takes apart trees, parents first, that no walk sees as such any more, or none ever saw.
    fn take_apart(&self, lock: &mut MountGuard<'_>, trees: &[Vec<Handle>], how: Umount) {
        self.make_private(lock, &trees.concat());
        for tree in trees {
            for &at in tree.iter().rev() {
                let m = self.mount(at);
                self.set_mount_ns(lock, at, 0);
                let connected = self.stays_connected(tree, at, how);
                if !connected && m.parent.get() != 0 {
                    self.detach(lock, at);
                }
                m.flags.set(m.flags.get() & !flags::MARKS);
                if !connected {
                    self.mntput_locked(lock, at);
                }
                lock.step();
            }
        }
    }

    /// Drops copies that came to be attached nowhere.
    pub(crate) fn drop_copies(&self, lock: &mut MountGuard<'_>, copies: &[Vec<Handle>]) {
        self.take_apart(lock, copies, Umount::Lazy);
    }

    /// Takes mounts out of their groups. The slaves of a group that has no peer left receive from its master, where it has one;
    /// each changes its master once, however many groups come to an end.
    ///
    /// Kernel: fs/pnode.c `bulk_make_private()`.
    fn make_private(&self, lock: &mut MountGuard<'_>, mounts: &[Handle]) {
        let mut masters = HashMap::new();
        for &mnt in mounts {
            let old = lock.mnt.propagation(mnt);
            lock.mnt.set_propagation(mnt, Propagation::default());
            if old.shared != 0 && lock.mnt.peers(old.shared).next().is_none() {
                masters.insert(old.shared, old.master);
            }
            lock.step();
        }
        for group in masters.keys().copied().collect::<Vec<_>>() {
            let master = living_master(&mut masters, group);
            for slave in lock.mnt.slaves(group).collect::<Vec<_>>() {
                let was = lock.mnt.propagation(slave);
                lock.mnt.set_propagation(slave, Propagation { master, ..was });
                lock.step();
            }
        }
    }

    /// Makes a mount one of a namespace, or of none.
    pub(crate) fn set_mount_ns(&self, ns: &mut Namespace, mnt: Handle, number: u32) {
        let m = self.mount(mnt);
        ns.mnt.move_to_ns((m.id.get(), mnt), m.ns.get(), number);
        m.ns.set(number);
    }

    /// Frees some of the mounts that nobody holds, their file systems if these were the last ones of them, and what was attached to
    /// them and nobody holds either: tenants choose how much that is. Whether there are more.
    pub(crate) fn free_mounts(&self, ns: &mut Namespace, steps: u32) -> bool {
        for _ in 0..steps {
            let Some(&mnt) = ns.mnt.unused.last() else { break };
            let child = ns.mnt.children(mnt).next();
            if let Some(child) = child {
                self.detach(ns, child);
                if self.mount(child).count.put() {
                    ns.mnt.unused.push(child);
                }
            } else {
                ns.mnt.unused.pop();
                self.mount_free(ns, mnt);
            }
        }
        !ns.mnt.unused.is_empty()
    }

    /// Frees a mount that nobody holds, and nothing is attached to.
    fn mount_free(&self, ns: &mut Namespace, mnt: Handle) {
        debug_assert_eq!(self.mount(mnt).parent.get(), 0, "an attached mount is held by its tree");
        ns.mnt.remove(mnt);
        ns.mnt.put_view(&self.mounts, self.mount(mnt).view.get());
        let (root, sb) = (self.mount(mnt).root.get(), self.mount(mnt).sb.get());
        self.store.put_locked(ns, root);
        let unused = ns.mnt.supers.get_mut(sb).is_some_and(|sb| {
            sb.mounts.remove(&mnt);
            sb.mounts.is_empty()
        });
        if unused && let Some(super_block) = ns.mnt.remove_super(sb) {
            self.store.shrink_tree(ns, super_block.root);
        }
        if self.mounts.mounts.free(mnt, 1) {
            // Readers of a mount ask the table's count, which has changed since.
            self.mounts.mounts.give_back(|_| true);
        }
    }

    /// Drops a file system that could not be mounted.
    pub(crate) fn drop_super(&self, ns: &mut Namespace, sb: u32) {
        if let Some(super_block) = ns.mnt.remove_super(sb)
            && super_block.root != 0
        {
            self.store.shrink_tree(ns, super_block.root);
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
        ns.mnt.add_ns(INIT_MNT_NS, &UserNamespace::init(), rootfs);
        [root, rootfs].into_iter().for_each(|mnt| self.set_mount_ns(ns, mnt, INIT_MNT_NS));
        Ok(())
    }

    /// Sets the flags of a file system that are in `mask`, and with them those of its mounts.
    pub(crate) fn set_sb_flags(&self, ns: &mut Namespace, sb: u32, mask: u32, flags: u32) {
        let Some(sb) = ns.mnt.supers.get_mut(sb) else { return };
        sb.flags = sb.flags & !mask | flags;
        for &mnt in &sb.mounts {
            let word = &self.mount(mnt).flags;
            word.set(word.get() & !mask | flags);
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

/// Trees of mounts, under the lock.
impl Kernel {
    /// Whether a tree belongs to a descriptor and is attached nowhere. Kernel: `anon_ns_root()`.
    pub(crate) fn is_detached_root(&self, mnt: Handle) -> bool {
        let m = self.mount(mnt);
        is_anonymous(m.ns.get()) && m.parent.get() == 0
    }

    /// Whether a mount cannot be unmounted by itself. Kernel: `IS_MNT_LOCKED()`.
    pub(crate) fn is_locked(&self, mnt: Handle) -> bool {
        self.mount_has(mnt, flags::LOCKED)
    }

    /// Whether `path` is the root of a mount. Kernel: `path_mounted()`.
    pub(crate) fn path_mounted(&self, path: Path) -> bool {
        self.mount(path.mnt).root.get() == path.dentry
    }

    pub(crate) fn is_dir(&self, dentry: Handle) -> bool {
        self.store.see(dentry).meta.is_dir()
    }

    /// Where a mount over `path` goes: on top of what is there. Kernel: `lock_mount()`.
    pub(crate) fn lock_mount(&self, ns: &Namespace, path: Path) -> Result<Path> {
        let at = self.topmost(ns, path);
        // A mount that was taken away is no place to mount on, either.
        if self.is_unlinked(at.dentry) || self.mount(path.mnt).ns.get() == 0 {
            return Err(Errno::ENOENT);
        }
        Ok(at)
    }

    /// [`lock_mount`](Self::lock_mount) in that mount namespace. Kernel: `check_mnt()`.
    pub(crate) fn lock_mount_in(&self, ns: &Namespace, path: Path, mnt_ns: u32) -> Result<Path> {
        let at = self.lock_mount(ns, path)?;
        if self.mount(at.mnt).ns.get() != mnt_ns { Err(Errno::EINVAL) } else { Ok(at) }
    }

    /// Whether a dentry lost its name. Kernel: `d_unlinked()`.
    pub(crate) fn is_unlinked(&self, dentry: Handle) -> bool {
        !self.store.see(dentry).meta.is_hashed() && self.store.dentry(dentry).parent.get() != dentry
    }

    /// A copy of the mount at `from`, that shows the tree below it. Kernel: `clone_mnt()`.
    pub(crate) fn copy_one(&self, ns: &mut Namespace, from: Path, how: Copy) -> Result<Handle> {
        let new = self.clone_mnt(ns, from.mnt, from.dentry)?;
        let old = ns.mnt.propagation(from.mnt);
        let (shared, master) = match how {
            Copy::Bind | Copy::Namespace => (old.shared, old.master),
            Copy::Slave { .. } | Copy::Unprivileged => {
                let group = if how == (Copy::Slave { shared: true }) { ns.mnt.new_group() } else { 0 };
                (group, if old.shared != 0 { old.shared } else { old.master })
            }
        };
        ns.mnt.set_propagation(new, Propagation { shared, master, unbindable: false });
        if how == Copy::Unprivileged {
            self.lock_flags(new);
        }
        Ok(new)
    }

    /// What another user namespace's mount restricts must stay restricted. Kernel: `lock_mnt_tree()`.
    fn lock_flags(&self, mnt: Handle) {
        let m = self.mount(mnt);
        let now = m.flags.get();
        let locks = [
            (flags::RDONLY, flags::LOCK_READONLY),
            (flags::NODEV, flags::LOCK_NODEV),
            (flags::NOSUID, flags::LOCK_NOSUID),
            (flags::NOEXEC, flags::LOCK_NOEXEC),
        ];
        let locked =
            locks.into_iter().filter(|(flag, _)| now & flag != 0).fold(0, |all, (_, lock)| all | lock);
        m.flags.set(now | locked | flags::LOCK_ATIME);
    }

    /// A copy of the mounts at and below `from`, attached nowhere: each beside what it was copied from, parents first.
    ///
    /// Kernel: `copy_tree()`.
    pub(crate) fn copy_tree(
        &self,
        lock: &mut MountGuard<'_>,
        from: Path,
        how: Copy,
    ) -> Result<Vec<(Handle, Handle)>> {
        let mut pairs = vec![(from.mnt, self.copy_one(lock, from, how)?)];
        let copied = self.copy_below(lock, from, how, &mut pairs);
        if let Err(errno) = copied {
            self.drop_copies(lock, &[copies_of(&pairs)]);
            return Err(errno);
        }
        Ok(pairs)
    }

    fn copy_below(
        &self,
        lock: &mut MountGuard<'_>,
        from: Path,
        how: Copy,
        pairs: &mut Vec<(Handle, Handle)>,
    ) -> Result<()> {
        let all = matches!(how, Copy::Namespace | Copy::Unprivileged);
        // Each before what is on it, what is on the oldest first: ids tell in which order copies were made.
        let below = self.children_below(lock, from);
        let mut todo: Vec<(Handle, Handle)> =
            below.into_iter().rev().map(|child| (child, pairs[0].1)).collect();
        while let Some((child, onto)) = todo.pop() {
            if !all && lock.mnt.propagation(child).unbindable {
                continue;
            }
            let m = self.mount(child);
            let copy = self.copy_one(lock, Path { mnt: child, dentry: m.root.get() }, how)?;
            let locked = how == Copy::Unprivileged || m.flags.get() & flags::LOCKED != 0;
            if locked {
                let flags = &self.mount(copy).flags;
                flags.set(flags.get() | flags::LOCKED);
            }
            self.attach(lock, copy, Path { mnt: onto, dentry: m.mountpoint.get() });
            pairs.push((child, copy));
            todo.extend(lock.mnt.children(child).rev().map(|below| (below, copy)));
            lock.step();
        }
        Ok(())
    }

    /// What is mounted at and below `from`, the oldest first.
    fn children_below(&self, lock: &mut MountGuard<'_>, from: Path) -> Vec<Handle> {
        let mut children: Vec<Handle> = lock.mnt.children(from.mnt).collect();
        children.retain(|&child| {
            lock.step();
            self.store.is_subdir(self.mount(child).mountpoint.get(), from.dentry)
        });
        children
    }

    pub(crate) fn has_locked_children(&self, lock: &mut MountGuard<'_>, from: Path) -> bool {
        let children: Vec<Handle> = lock.mnt.children(from.mnt).collect();
        children.into_iter().any(|child| {
            lock.step();
            self.is_locked(child) && self.store.is_subdir(self.mount(child).mountpoint.get(), from.dentry)
        })
    }

    /// Attaches a tree, parents first, that is detached at `at`, or moves it there, and copies of it to wherever `at` propagates.
    ///
    /// Kernel: `attach_recursive_mnt()`.
    pub(crate) fn attach_recursive(
        &self,
        lock: &mut MountGuard<'_>,
        tree: &[Handle],
        at: Path,
        how: Attach,
    ) -> Result<()> {
        let (mnt, mnt_ns) = (tree[0], self.mount(at.mnt).ns.get());
        // Something might have to be mounted over what it shows, which must have a name for that.
        let unlinked = || self.is_unlinked(at.dentry) || self.is_unlinked(self.mount(mnt).root.get());
        if unlinked() {
            return Err(Errno::ENOENT);
        }
        let mut pending = Pending::default();
        if how == Attach::New {
            self.count_mounts(lock, &mut pending, mnt_ns, tree.len())?;
        }
        let mut copies = Vec::new();
        if lock.mnt.propagation(at.mnt).shared != 0 {
            for &member in tree {
                let old = lock.mnt.propagation(member);
                if old.shared == 0 {
                    let shared = lock.mnt.new_group();
                    lock.mnt.set_propagation(member, Propagation { shared, ..old });
                }
                lock.step();
            }
            let propagated = self.propagate_mnt(lock, mnt, at, &mut pending, &mut copies);
            if let Err(errno) = propagated {
                let copies: Vec<Vec<Handle>> = copies.into_iter().map(|(copy, _)| copy).collect();
                self.drop_copies(lock, &copies);
                return Err(errno);
            }
        }
        let mut moves = vec![(mnt, at)];
        for (copy, at) in &copies {
            moves.extend(self.attach_hidden(lock, copy, *at, mnt_ns).filter(|&(over, _)| over != mnt));
        }
        lock.mark(tree, flags::JOINING);
        // Either may have lost its name meanwhile.
        let unlinked = unlinked();
        if !unlinked {
            self.commit(lock, mnt_ns, &moves, || true);
        }
        for &member in tree.iter().filter(|_| !unlinked && how == Attach::New) {
            self.set_mount_ns(lock, member, mnt_ns);
            lock.step();
        }
        lock.mark(tree, 0);
        let copies: Vec<Vec<Handle>> = copies.into_iter().map(|(copy, _)| copy).collect();
        if unlinked {
            self.drop_copies(lock, &copies);
        } else {
            copies.iter().for_each(|copy| lock.mark(copy, 0));
        }
        self.end_commit(lock);
        if unlinked { Err(Errno::ENOENT) } else { Ok(()) }
    }

    /// Attaches a copy, parents first, that came by propagation from the namespace `from_ns`; it is seen when that is committed. What
    /// is there already stays on top: gives that, and where it goes.
    fn attach_hidden(
        &self,
        lock: &mut MountGuard<'_>,
        copy: &[Handle],
        at: Path,
        from_ns: u32,
    ) -> Option<(Handle, Path)> {
        let to_ns = self.mount(at.mnt).ns.get();
        let foreign = match [from_ns, to_ns].map(|number| lock.mnt.user_ns_of(number & !ANON_NS)) {
            [Some(from), Some(to)] => !from.is(to),
            _ => true,
        };
        for &member in copy {
            if foreign {
                self.lock_copy(member, copy[0]);
            }
            lock.mark(&[member], flags::COMING);
            self.set_mount_ns(lock, member, to_ns);
        }
        let over = self.mounts.lookup(at.mnt, at.dentry);
        self.attach(lock, copy[0], at);
        over.map(|over| (over, Path { mnt: copy[0], dentry: self.mount(copy[0]).root.get() }))
    }

    /// What comes to a namespace of another user namespace is not to be taken apart there, but as a whole.
    ///
    /// Kernel: `lock_mnt_tree()`.
    fn lock_copy(&self, mnt: Handle, top: Handle) {
        self.lock_flags(mnt);
        if mnt != top {
            let flags = &self.mount(mnt).flags;
            flags.set(flags.get() | flags::LOCKED);
        }
    }

    /// Whether a namespace has room for so many mounts beside what is `pending`, which they become part of.
    ///
    /// # Errors
    ///
    /// `ENOSPC`.
    ///
    /// Kernel: fs/namespace.c `count_mounts()`.
    pub(crate) fn count_mounts(
        &self,
        ns: &Namespace,
        pending: &mut Pending,
        mnt_ns: u32,
        mounts: usize,
    ) -> Result<()> {
        let waiting = pending.entry(mnt_ns).or_default();
        *waiting += mounts as u64;
        let all = ns.mnt.mounts_in(mnt_ns) + *waiting;
        if all > self.settings.get(Sysctl::MountMax) { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// Sets how a mount propagates. Kernel: `change_mnt_propagation()`.
    pub(crate) fn change_propagation(&self, lock: &mut MountGuard<'_>, mnt: Handle, kind: u64) {
        let old = lock.mnt.propagation(mnt);
        if kind == MS_SHARED {
            let shared = if old.shared == 0 { lock.mnt.new_group() } else { old.shared };
            lock.mnt.set_propagation(mnt, Propagation { shared, unbindable: false, ..old });
            return;
        }
        self.make_private(lock, &[mnt]);
        let master = match kind {
            MS_SLAVE if lock.mnt.peers(old.shared).next().is_some() => old.shared,
            MS_SLAVE => old.master,
            _ => 0,
        };
        let unbindable = kind == MS_UNBINDABLE;
        lock.mnt.set_propagation(mnt, Propagation { shared: 0, master, unbindable });
    }

    /// Puts other flags into a mount. Kernel: `set_mount_attributes()`.
    pub(crate) fn set_mnt_flags(&self, ns: &Namespace, mnt: Handle, new: u32) {
        let m = self.mount(mnt);
        // Whether links are followed, and read without a trace, is part of what a path leads to.
        let _change = self.open_mounts(ns);
        m.flags.set(m.flags.get() & !flags::USER_SETTABLE | new);
    }

    /// Whether the mount can get these flags: one that is written to cannot become read-only.
    pub(crate) fn check_writers(&self, mnt: Handle, new: u32) -> Result<()> {
        let m = self.mount(mnt);
        let becomes_ro = new & flags::RDONLY != 0 && m.flags.get() & flags::RDONLY == 0;
        if becomes_ro && m.writers.get() != 0 { Err(Errno::EBUSY) } else { Ok(()) }
    }

    /// Makes a file system read-only or writable. Kernel: fs/super.c `reconfigure_super()`.
    pub(crate) fn set_sb_rdonly(&self, ns: &mut Namespace, sb: u32, rdonly: bool) -> Result<()> {
        let writes = |&mnt: &Handle| self.mount(mnt).writers.get() != 0;
        let becomes_ro = |sb: &SuperBlock| rdonly && sb.flags & flags::SB_RDONLY == 0;
        let nameless = || ns.nameless.values().any(|&of| of == sb);
        let of = ns.mnt.supers.get(sb).filter(|sb| becomes_ro(sb));
        if of.is_some_and(|of| of.mounts.iter().any(writes) || nameless()) {
            return Err(Errno::EBUSY);
        }
        let flag = if rdonly { flags::SB_RDONLY } else { 0 };
        self.set_sb_flags(ns, sb, flags::SB_RDONLY, flag);
        Ok(())
    }

    /// Where tasks of a mount namespace start, with two references.
    pub(crate) fn root_of(&self, mnt_ns: &MntNamespace) -> Path {
        let ns = self.store.lock();
        let base = Path { mnt: mnt_ns.root, dentry: self.mount(mnt_ns.root).root.get() };
        let root = self.topmost(&ns, base);
        self.path_get(root);
        self.path_get(root);
        root
    }

    /// A detached tree goes with the descriptor that it was made for, unless it was attached meanwhile.
    ///
    /// Kernel: `dissolve_on_fput()`.
    pub(crate) fn dissolve(&self, mnt: Handle) {
        let mut lock = self.lock_mounts();
        if self.is_detached_root(mnt) {
            self.umount_tree(&mut lock, mnt, Umount::Connected);
        }
    }
}
