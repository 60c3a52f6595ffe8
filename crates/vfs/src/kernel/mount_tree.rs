//! The mount tree as it changes, under the lock: what is attached where, copies of trees, file systems, mount namespaces.
//!
//! Kernel: fs/namespace.c.

use crate::base::errno::{Errno, Result};
use crate::base::uapi::{MS_SHARED, MS_SLAVE, MS_UNBINDABLE};
use crate::cred::ucounts::Counted;
use crate::cred::userns::{MountIdmap, UserNamespace};
use crate::dcache::store::{InodeInit, Namespace};
use crate::kernel::Kernel;
use crate::kernel::sysctl::Sysctl;
use crate::mount::{INIT_MNT_NS, Path, Propagation, ROOT_MOUNT, ROOTFS_MOUNT, SuperBlock, flags};
use crate::tmpfs::ispace::InodeSpace;
use crate::tmpfs::pages::PageBudget;
use rcuwalk_sync::{Handle, SeqWrite};
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
    _counted: Option<Counted>,
}

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
        counted: Option<Counted>,
    ) -> Arc<MntNamespace> {
        Arc::new(MntNamespace { kernel: Arc::clone(kernel), id, user_ns, root, _counted: counted })
    }
}

impl Drop for MntNamespace {
    fn drop(&mut self) {
        if self.id != INIT_MNT_NS {
            let mut ns = self.kernel.store.lock();
            self.kernel.umount_tree(&mut ns, self.root, Umount::Lazy);
            ns.mnt.remove_ns(self.id);
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
    /// Nobody uses them.
    Sync,
    /// Those who do may go on. Kernel: `MNT_DETACH`.
    Lazy,
    /// Those who do may go on, and see what is mounted there. Kernel: `UMOUNT_CONNECTED`.
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
        let view = self.mounts.view_of(&super_block.user_ns, None)?;
        let mnt = self.mounts.mounts.alloc()?;
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
        self.mount(new).view.set(old.view.get());
        Ok(new)
    }

    /// Gives a detached mount an idmap.
    pub(crate) fn set_idmap(&self, ns: &Namespace, mnt: Handle, idmap: &MountIdmap) -> Result<()> {
        let m = self.mount(mnt);
        let sb = ns.mnt.supers.get(m.sb.get()).ok_or(Errno::EINVAL)?;
        let view = self.mounts.view_of(&sb.user_ns, Some(idmap))?;
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
        if ns.mnt.remove_child(at.mnt, mnt, at.dentry) {
            self.store.set_mounted(ns, at.dentry, false);
        }
        self.store.put_locked(ns, at.dentry);
        true
    }

    /// Takes a mount and all below it away. What was mounted on a lazily unmounted one is not seen there any more either,
    /// unless it is locked: then what it covers stays covered.
    ///
    /// Kernel: fs/namespace.c `umount_tree()`.
    pub(crate) fn umount_tree(&self, ns: &mut Namespace, mnt: Handle, how: Umount) {
        self.umount_trees(ns, &[mnt], how);
    }

    /// [`umount_tree`](Self::umount_tree) of trees that have nothing in common.
    pub(crate) fn umount_trees(&self, ns: &mut Namespace, tops: &[Handle], how: Umount) {
        let trees: Vec<Vec<Handle>> = tops.iter().map(|&top| ns.mnt.subtree(top)).collect();
        ns.mnt.make_private(&trees.concat());
        for (&top, tree) in tops.iter().zip(trees) {
            for at in tree.into_iter().rev() {
                let m = self.mount(at);
                self.set_mount_ns(ns, at, 0);
                let locked = m.flags.get() & flags::LOCKED != 0;
                if at != top && (how == Umount::Connected || how == Umount::Lazy && locked) {
                    continue;
                }
                if m.parent.get() != 0 {
                    self.detach(ns, at);
                }
                self.mntput_locked(ns, at);
            }
        }
    }

    /// Makes a mount one of a namespace, or of none.
    pub(crate) fn set_mount_ns(&self, ns: &mut Namespace, mnt: Handle, number: u32) {
        let m = self.mount(mnt);
        ns.mnt.move_to_ns((m.id.get(), mnt), m.ns.get(), number);
        m.ns.set(number);
    }

    /// Frees a mount that nobody holds, its file system if this was the last one of it, and what was attached to it and nobody
    /// holds either. Tenants choose how deep that is.
    pub(crate) fn mount_free(&self, ns: &mut Namespace, mnt: Handle) {
        let mut unused = vec![mnt];
        while let Some(mnt) = unused.pop() {
            for child in ns.mnt.children(mnt).collect::<Vec<_>>() {
                self.detach(ns, child);
                if self.mount(child).count.put() {
                    unused.push(child);
                }
            }
            self.mount_free_one(ns, mnt);
        }
    }

    fn mount_free_one(&self, ns: &mut Namespace, mnt: Handle) {
        debug_assert_eq!(self.mount(mnt).parent.get(), 0, "an attached mount is held by its tree");
        ns.mnt.remove(mnt);
        let (root, sb) = (self.mount(mnt).root.get(), self.mount(mnt).sb.get());
        self.store.put_locked(ns, root);
        let unused = ns.mnt.supers.get_mut(sb).is_some_and(|sb| {
            sb.mounts.remove(&mnt);
            sb.mounts.is_empty()
        });
        if unused && let Some(super_block) = ns.mnt.remove_super(sb) {
            self.store.shrink_tree(ns, sb, super_block.root);
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
            self.store.shrink_tree(ns, sb, super_block.root);
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
    /// Whether a tree is that of a descriptor, not attached anywhere. Kernel: `anon_ns_root()`.
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

    /// A copy of the mounts at and below `from`, attached nowhere. Kernel: `copy_tree()`.
    pub(crate) fn copy_tree(&self, ns: &mut Namespace, from: Path, how: Copy) -> Result<Handle> {
        let root = self.copy_one(ns, from, how)?;
        let all = matches!(how, Copy::Namespace | Copy::Unprivileged);
        // Each before what is on it, what is on the oldest first: ids tell in which order copies were made.
        let mut todo = self.children_below(ns, from, root);
        while let Some((child, onto)) = todo.pop() {
            if !all && ns.mnt.propagation(child).unbindable {
                continue;
            }
            let m = self.mount(child);
            let place = Path { mnt: child, dentry: m.root.get() };
            let copy = match self.copy_one(ns, place, how) {
                Ok(copy) => copy,
                Err(errno) => {
                    self.umount_tree(ns, root, Umount::Sync);
                    return Err(errno);
                }
            };
            let locked = how == Copy::Unprivileged || m.flags.get() & flags::LOCKED != 0;
            if locked {
                let flags = &self.mount(copy).flags;
                flags.set(flags.get() | flags::LOCKED);
            }
            self.attach(ns, copy, Path { mnt: onto, dentry: m.mountpoint.get() });
            todo.extend(ns.mnt.children(child).rev().map(|below| (below, copy)));
        }
        Ok(root)
    }

    /// What is mounted at and below `from`, the newest first, each with `copy`, the mount that its copy goes onto.
    fn children_below(&self, ns: &Namespace, from: Path, copy: Handle) -> Vec<(Handle, Handle)> {
        let below = |&child: &Handle| self.store.is_subdir(self.mount(child).mountpoint.get(), from.dentry);
        ns.mnt.children(from.mnt).rev().filter(below).map(|child| (child, copy)).collect()
    }

    pub(crate) fn has_locked_children(&self, ns: &Namespace, from: Path) -> bool {
        ns.mnt.children(from.mnt).any(|child| {
            let m = self.mount(child);
            m.flags.get() & flags::LOCKED != 0 && self.store.is_subdir(m.mountpoint.get(), from.dentry)
        })
    }

    /// Attaches a detached tree at `at`, and copies of it wherever `at` propagates to.
    ///
    /// Kernel: `attach_recursive_mnt()`.
    pub(crate) fn attach_recursive(
        &self,
        ns: &mut Namespace,
        mnt: Handle,
        at: Path,
        how: Attach,
    ) -> Result<()> {
        // Something might have to be mounted over what it shows, which must have a name for that.
        if self.is_unlinked(self.mount(mnt).root.get()) {
            return Err(Errno::ENOENT);
        }
        let mnt_ns = self.mount(at.mnt).ns.get();
        let mut pending = Pending::default();
        if how == Attach::New {
            self.count_mounts(ns, &mut pending, mnt_ns, mnt)?;
        }
        let group = ns.mnt.propagation(at.mnt).shared;
        let mut copies = Vec::new();
        if group != 0 {
            for member in ns.mnt.subtree(mnt) {
                let old = ns.mnt.propagation(member);
                if old.shared == 0 {
                    let shared = ns.mnt.new_group();
                    ns.mnt.set_propagation(member, Propagation { shared, ..old });
                }
            }
            if let Err(errno) = self.propagate_mnt(ns, mnt, at, &mut pending, &mut copies) {
                copies.iter().for_each(|&(copy, _)| self.umount_tree(ns, copy, Umount::Sync));
                return Err(errno);
            }
        }
        self.attach(ns, mnt, at);
        self.set_ns(ns, mnt, mnt_ns);
        let user_ns = ns.mnt.user_ns_of(mnt_ns & !ANON_NS).cloned();
        for (copy, at) in copies {
            // What was there stays on top.
            let over = self.mounts.lookup(at.mnt, at.dentry);
            over.iter().for_each(|&over| self.detach(ns, over));
            self.attach(ns, copy, at);
            let to_ns = self.mount(at.mnt).ns.get();
            self.set_ns(ns, copy, to_ns);
            let foreign = match (&user_ns, ns.mnt.user_ns_of(to_ns & !ANON_NS)) {
                (Some(from), Some(to)) => !from.is(to),
                _ => true,
            };
            if foreign {
                self.lock_tree(ns, copy);
            }
            if let Some(over) = over {
                let root = self.mount(copy).root.get();
                self.attach(ns, over, Path { mnt: copy, dentry: root });
            }
        }
        Ok(())
    }

    pub(crate) fn set_ns(&self, ns: &mut Namespace, mnt: Handle, mnt_ns: u32) {
        ns.mnt.subtree(mnt).into_iter().for_each(|at| self.set_mount_ns(ns, at, mnt_ns));
    }

    /// What comes to a namespace of another user namespace is not to be taken apart there, but as a whole.
    ///
    /// Kernel: `lock_mnt_tree()`.
    fn lock_tree(&self, ns: &Namespace, mnt: Handle) {
        for at in ns.mnt.subtree(mnt) {
            self.lock_flags(at);
            if at != mnt {
                let flags = &self.mount(at).flags;
                flags.set(flags.get() | flags::LOCKED);
            }
        }
    }

    /// Whether a namespace has room for the tree at `mnt` beside what is `pending`, which it becomes part of.
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
        mnt: Handle,
    ) -> Result<()> {
        let waiting = pending.entry(mnt_ns).or_default();
        *waiting += ns.mnt.subtree(mnt).len() as u64;
        let all = ns.mnt.mounts_in(mnt_ns) + *waiting;
        if all > self.settings.get(Sysctl::MountMax) { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// Sets how a mount propagates. Kernel: `change_mnt_propagation()`.
    pub(crate) fn change_propagation(&self, ns: &mut Namespace, mnt: Handle, kind: u64) {
        let old = ns.mnt.propagation(mnt);
        if kind == MS_SHARED {
            let shared = if old.shared == 0 { ns.mnt.new_group() } else { old.shared };
            ns.mnt.set_propagation(mnt, Propagation { shared, unbindable: false, ..old });
            return;
        }
        ns.mnt.make_private(&[mnt]);
        let master = match kind {
            MS_SLAVE if ns.mnt.peers(old.shared).next().is_some() => old.shared,
            MS_SLAVE => old.master,
            _ => 0,
        };
        let unbindable = kind == MS_UNBINDABLE;
        ns.mnt.set_propagation(mnt, Propagation { shared: 0, master, unbindable });
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
        let mut ns = self.store.lock();
        if self.is_detached_root(mnt) {
            self.umount_tree(&mut ns, mnt, Umount::Connected);
        }
    }
}
