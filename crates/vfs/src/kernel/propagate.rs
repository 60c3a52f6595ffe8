//! Propagation: what mounting and unmounting on a shared mount does on the others of its group, and on slaves.
//!
//! Kernel: fs/pnode.c.

use crate::base::errno::Result;
use crate::dcache::store::Namespace;
use crate::kernel::Kernel;
use crate::kernel::mount_tree::{Copy, Pending, Umount, is_anonymous};
use crate::mount::Path;
use rcuwalk_sync::Handle;
use std::collections::HashSet;

impl Kernel {
    /// Makes the copies that a mount at `at` has elsewhere, and says where. Kernel: fs/pnode.c `propagate_mnt()`.
    pub(crate) fn propagate_mnt(
        &self,
        ns: &mut Namespace,
        mnt: Handle,
        at: Path,
        pending: &mut Pending,
        copies: &mut Vec<(Handle, Path)>,
    ) -> Result<()> {
        // (group, what its members get a copy of, the member that has it already)
        let mut todo = vec![(ns.mnt.propagation(at.mnt).shared, mnt, at.mnt)];
        while let Some((group, source, done)) = todo.pop() {
            let mut told = HashSet::new();
            let mut receivers: Vec<Handle> = ns.mnt.peers(group).chain(ns.mnt.slaves(group)).collect();
            receivers.sort_unstable();
            for to in receivers {
                let (of, m) = (ns.mnt.propagation(to), self.mount(to));
                let peer = of.shared == group;
                let first = peer || of.shared == 0 || !told.contains(&of.shared);
                let attached = m.ns.get() != 0 && !is_anonymous(m.ns.get());
                let visible = attached && self.store.is_subdir(at.dentry, m.root.get());
                if to == done || !first || !visible {
                    continue;
                }
                let how = if peer { Copy::Bind } else { Copy::Slave { shared: of.shared != 0 } };
                let from = Path { mnt: source, dentry: self.mount(source).root.get() };
                let copy = self.copy_tree(ns, from, how)?;
                copies.push((copy, Path { mnt: to, dentry: at.dentry }));
                self.count_mounts(ns, pending, self.mount(to).ns.get(), copy)?;
                if !peer && of.shared != 0 {
                    told.insert(of.shared);
                    todo.push((of.shared, copy, to));
                }
            }
        }
        Ok(())
    }

    /// Adds to `found` the mounts at the same place as `dentry` of `parent` wherever that propagates to, and where it comes
    /// from. `asked` are the groups and places that were asked for already, which are asked once.
    ///
    /// Kernel: fs/pnode.c `propagation_next()`, `gather_candidates()`.
    fn counterparts(
        &self,
        ns: &Namespace,
        parent: Handle,
        dentry: Handle,
        asked: &mut HashSet<(u32, Handle)>,
        found: &mut HashSet<Handle>,
    ) {
        let mut groups = vec![ns.mnt.propagation(parent).shared];
        while let Some(group) = groups.pop() {
            if group == 0 || !asked.insert((group, dentry)) {
                continue;
            }
            found.extend(ns.mnt.peers(group).filter_map(|to| self.mounts.lookup(to, dentry)));
            for to in ns.mnt.slaves(group) {
                found.extend(self.mounts.lookup(to, dentry));
                groups.push(ns.mnt.propagation(to).shared);
            }
        }
    }

    /// Whether what would be unmounted together with a mount at `at` is in use somewhere. What has mounts on it stays anyway.
    ///
    /// Kernel: fs/pnode.c `propagate_mount_busy()`.
    pub(crate) fn is_busy_elsewhere(&self, ns: &Namespace, at: Path) -> bool {
        let stays = |mnt: Handle| ns.mnt.children(mnt).any(|child| self.overmount(mnt) != Some(child));
        let mut found = HashSet::new();
        self.counterparts(ns, at.mnt, at.dentry, &mut HashSet::new(), &mut found);
        let own = self.mounts.lookup(at.mnt, at.dentry);
        found.into_iter().any(|mnt| Some(mnt) != own && !stays(mnt) && self.mount_count(mnt) > 1)
    }

    /// The mount that covers the whole of this one. Kernel: `mount.overmount`.
    fn overmount(&self, mnt: Handle) -> Option<Handle> {
        self.mounts.lookup(mnt, self.mount(mnt).root.get())
    }

    /// Unmounts the tree at `mnt`, which was mounted at `at` and is detached, and what was mounted elsewhere together with it. A
    /// mount stays there where something else is mounted on it; but what covers all of it takes its place.
    ///
    /// Kernel: fs/pnode.c `propagate_umount()`.
    pub(crate) fn propagate_umount(&self, ns: &mut Namespace, mnt: Handle, at: Path) {
        let (mut going, mut asked) = (HashSet::new(), HashSet::new());
        let tree = ns.mnt.subtree(mnt);
        for &member in &tree {
            let place = if member == mnt { at } else { self.mount(member).place() };
            self.counterparts(ns, place.mnt, place.dentry, &mut asked, &mut going);
        }
        let tree: HashSet<Handle> = tree.into_iter().collect();
        going.retain(|counterpart| !tree.contains(counterpart));
        let covered = self.trim(ns, &tree, &mut going);
        for mnt in covered.intersection(&going).copied() {
            let place = self.mount(mnt).place();
            if let Some(over) = self.overmount(mnt) {
                self.detach(ns, over);
                self.detach(ns, mnt);
                self.attach(ns, over, place);
            }
        }
        let is_top = |mnt: &Handle| !going.contains(&self.mount(*mnt).parent.get());
        let tops: Vec<Handle> = going.iter().copied().filter(is_top).chain([mnt]).collect();
        self.umount_trees(ns, &tops, Umount::Lazy);
    }

    /// Takes out of `going` what has to stay because of what is mounted on it, or because it is locked to what stays. Gives
    /// those that are covered as a whole by what stays. Each mount, and what is mounted on it, is looked at twice at most.
    ///
    /// Kernel: fs/pnode.c `trim_one()`, `handle_locked()`.
    fn trim(&self, ns: &Namespace, tree: &HashSet<Handle>, going: &mut HashSet<Handle>) -> HashSet<Handle> {
        let mut covered = HashSet::new();
        // What will be there afterwards; `true` if it is not moved to where its parent was.
        let mut found: Vec<(Handle, bool)> = Vec::new();
        for &mnt in going.iter() {
            found.extend(
                ns.mnt.children(mnt).filter(|child| !going.contains(child)).map(|child| (child, true)),
            );
            let parent = self.mount(mnt).parent.get();
            if self.is_locked(mnt) && !going.contains(&parent) && !tree.contains(&parent) {
                found.push((mnt, true));
            }
        }
        while let Some((mnt, stays)) = found.pop() {
            if stays && going.remove(&mnt) {
                let locked = |child: &Handle| going.contains(child) && self.is_locked(*child);
                found.extend(ns.mnt.children(mnt).filter(locked).map(|child| (child, true)));
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
