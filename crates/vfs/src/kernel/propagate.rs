//! Propagation: what mounting and unmounting on a shared mount does on the others of its group, and on slaves.
//!
//! Kernel: fs/pnode.c.

use crate::base::errno::{Errno, Result};
use crate::kernel::Kernel;
use crate::kernel::mount_lock::MountGuard;
use crate::kernel::mount_tree::{Copy, Pending, Umount, copies_of, is_anonymous};
use crate::mount::Path;
use rcuwalk_sync::Handle;
use std::collections::HashSet;

impl Kernel {
    /// Makes the copies that a mount at `at` has elsewhere, parents first, and says where. Kernel: fs/pnode.c `propagate_mnt()`.
    pub(crate) fn propagate_mnt(
        &self,
        lock: &mut MountGuard<'_>,
        mnt: Handle,
        at: Path,
        pending: &mut Pending,
        copies: &mut Vec<(Vec<Handle>, Path)>,
    ) -> Result<()> {
        // (group, what its members get a copy of, the member that has it already)
        let mut todo = vec![(lock.mnt.propagation(at.mnt).shared, mnt, at.mnt)];
        while let Some((group, source, done)) = todo.pop() {
            let mut told = HashSet::new();
            let mut receivers: Vec<Handle> = lock.mnt.peers(group).chain(lock.mnt.slaves(group)).collect();
            receivers.sort_unstable();
            for to in receivers {
                lock.step();
                let (of, m) = (lock.mnt.propagation(to), self.mount(to));
                let peer = of.shared == group;
                let first = peer || of.shared == 0 || !told.contains(&of.shared);
                let attached = m.ns.get() != 0 && !is_anonymous(m.ns.get());
                let visible = attached && self.store.is_subdir(at.dentry, m.root.get());
                if to == done || !first || !visible {
                    continue;
                }
                let how = if peer { Copy::Bind } else { Copy::Slave { shared: of.shared != 0 } };
                let from = Path { mnt: source, dentry: self.mount(source).root.get() };
                let copy = copies_of(&self.copy_tree(lock, from, how)?);
                let (top, many) = (copy[0], copy.len());
                copies.push((copy, Path { mnt: to, dentry: at.dentry }));
                self.count_mounts(lock, pending, self.mount(to).ns.get(), many)?;
                if !peer && of.shared != 0 {
                    told.insert(of.shared);
                    todo.push((of.shared, top, to));
                }
            }
        }
        Ok(())
    }

    /// Adds to `found` the mounts at the same place as `at` wherever that propagates to, and where it comes
    /// from. `asked` are the groups and places that were asked for already, which are asked once.
    ///
    /// Kernel: fs/pnode.c `propagation_next()`, `gather_candidates()`.
    fn counterparts(
        &self,
        lock: &mut MountGuard<'_>,
        at: Path,
        asked: &mut HashSet<(u32, Handle)>,
        found: &mut HashSet<Handle>,
    ) {
        let mut groups = vec![lock.mnt.propagation(at.mnt).shared];
        while let Some(group) = groups.pop() {
            if group == 0 || !asked.insert((group, at.dentry)) {
                continue;
            }
            let slaves: Vec<Handle> = lock.mnt.slaves(group).collect();
            groups.extend(slaves.iter().map(|&to| lock.mnt.propagation(to).shared));
            for to in lock.mnt.peers(group).chain(slaves).collect::<Vec<_>>() {
                found.extend(self.mounts.lookup(to, at.dentry));
                lock.step();
            }
        }
    }

    /// What would be unmounted together with a leaf, and keeps it from that if it is in use. What has mounts on it stays anyway.
    ///
    /// Kernel: fs/pnode.c `propagate_mount_busy()`.
    fn leaves_elsewhere(
        &self,
        lock: &mut MountGuard<'_>,
        mnt: Handle,
        found: &HashSet<Handle>,
    ) -> Vec<Handle> {
        let mut leaves = Vec::new();
        for &at in found.iter().filter(|&&at| at != mnt) {
            let stays = lock.mnt.children(at).any(|child| self.overmount(at) != Some(child));
            if !stays {
                leaves.push(at);
            }
            lock.step();
        }
        leaves
    }

    /// The mount that covers the whole of this one. Kernel: `mount.overmount`.
    fn overmount(&self, mnt: Handle) -> Option<Handle> {
        self.mounts.lookup(mnt, self.mount(mnt).root.get())
    }

    /// Unmounts the tree at `mnt`, and what was mounted elsewhere together with it. A mount stays there where something else is
    /// mounted on it; but what covers all of it takes its place. Unless it is to go lazily, it is a leaf, and goes only if nobody uses
    /// it beside the tree and the caller, nor what goes with it.
    ///
    /// # Errors
    ///
    /// `EBUSY`.
    ///
    /// Kernel: fs/pnode.c `propagate_umount()`.
    pub(crate) fn propagate_umount(
        &self,
        lock: &mut MountGuard<'_>,
        mnt: Handle,
        lazily: bool,
    ) -> Result<()> {
        let (mut going, mut asked) = (HashSet::new(), HashSet::new());
        let tree = lock.subtree(mnt);
        for &member in &tree {
            self.counterparts(lock, self.mount(member).place(), &mut asked, &mut going);
            lock.step();
        }
        let leaves = if lazily { Vec::new() } else { self.leaves_elsewhere(lock, mnt, &going) };
        let tree_set: HashSet<Handle> = tree.iter().copied().collect();
        going.retain(|counterpart| !tree_set.contains(counterpart));
        let covered = self.trim(lock, &tree_set, &mut going);
        let moves = self.take_places(lock, &covered, &going);
        // Not part of the trees of their parents.
        let apart: HashSet<Handle> = moves.iter().map(|&(over, _)| over).chain([mnt]).collect();
        let is_top = |mnt: &Handle| !going.contains(&self.mount(*mnt).parent.get());
        let tops: Vec<Handle> = going.iter().copied().filter(is_top).collect();
        let mut trees = vec![tree];
        trees.extend(tops.into_iter().map(|top| lock.subtree_without(top, &apart)));
        let may = || lazily || !leaves.iter().any(|&leaf| self.mount_count(leaf) > 1) && self.is_idle(mnt, 2);
        if self.umount_trees(lock, &trees, &moves, Umount::Lazy, may) { Ok(()) } else { Err(Errno::EBUSY) }
    }

    /// What covers all of a mount that goes, and stays, and the place that it takes: that of the lowest mount that it covers.
    fn take_places(
        &self,
        lock: &mut MountGuard<'_>,
        covered: &HashSet<Handle>,
        going: &HashSet<Handle>,
    ) -> Vec<(Handle, Path)> {
        let mut moves = Vec::new();
        for &mnt in covered.intersection(going) {
            lock.step();
            let Some(over) = self.overmount(mnt).filter(|over| !going.contains(over)) else { continue };
            let mut lowest = mnt;
            loop {
                let parent = self.mount(lowest).parent.get();
                if !going.contains(&parent) || self.overmount(parent) != Some(lowest) {
                    break;
                }
                lowest = parent;
                lock.step();
            }
            moves.push((over, self.mount(lowest).place()));
        }
        moves
    }

    /// Takes out of `going` what has to stay because of what is mounted on it, or because it is locked to what stays. Gives
    /// those that are covered as a whole by what stays. Each mount, and what is mounted on it, is looked at twice at most.
    ///
    /// Kernel: fs/pnode.c `trim_one()`, `handle_locked()`.
    fn trim(
        &self,
        lock: &mut MountGuard<'_>,
        tree: &HashSet<Handle>,
        going: &mut HashSet<Handle>,
    ) -> HashSet<Handle> {
        let mut covered = HashSet::new();
        // What will be there afterwards; `true` if it is not moved to where its parent was.
        let mut found: Vec<(Handle, bool)> = Vec::new();
        for &mnt in going.iter() {
            lock.step();
            let stays = |child: &Handle| !going.contains(child) && !tree.contains(child);
            found.extend(lock.mnt.children(mnt).filter(stays).map(|child| (child, true)));
            let parent = self.mount(mnt).parent.get();
            if self.is_locked(mnt) && !going.contains(&parent) && !tree.contains(&parent) {
                found.push((mnt, true));
            }
        }
        while let Some((mnt, stays)) = found.pop() {
            lock.step();
            if stays && going.remove(&mnt) {
                let locked = |child: &Handle| going.contains(child) && self.is_locked(*child);
                found.extend(lock.mnt.children(mnt).filter(locked).map(|child| (child, true)));
            }
            let parent = self.mount(mnt).parent.get();
            if !going.contains(&parent) {
                continue;
            }
            if self.overmount(parent) != Some(mnt) {
                found.push((parent, true));
            } else if covered.insert(parent) {
                found.push((parent, false));
            }
        }
        covered
    }
}
