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
        let whole = ns.mnt.subtree(mnt);
        // (group, what its members get a copy of, the member that has it already)
        let mut todo = vec![(ns.mnt.info(at.mnt).shared, mnt, at.mnt)];
        while let Some((group, source, done)) = todo.pop() {
            let mut told = Vec::new();
            for to in ns.mnt.all() {
                let (info, m) = (ns.mnt.info(to), self.mount(to));
                let peer = info.shared == group;
                let heard = to == done || whole.contains(&to) || !peer && info.master != group;
                let first = peer || info.shared == 0 || !told.contains(&info.shared);
                let attached = m.ns.get() != 0 && !is_anonymous(m.ns.get());
                let visible = attached && self.store.is_subdir(at.dentry, m.root.get());
                if heard || !first || !visible {
                    continue;
                }
                let how = if peer { Copy::Bind } else { Copy::Slave { shared: info.shared != 0 } };
                let from = Path { mnt: source, dentry: self.mount(source).root.get() };
                let copy = self.copy_tree(ns, from, how)?;
                copies.push((copy, Path { mnt: to, dentry: at.dentry }));
                self.count_mounts(ns, pending, self.mount(to).ns.get(), copy)?;
                if !peer && info.shared != 0 {
                    told.push(info.shared);
                    todo.push((info.shared, copy, to));
                }
            }
        }
        Ok(())
    }

    /// Everything that receives what happens on `mnt`. Kernel: fs/pnode.c `propagation_next()`.
    fn receivers(&self, ns: &Namespace, mnt: Handle) -> Vec<Handle> {
        let mut groups = vec![ns.mnt.info(mnt).shared];
        let mut found = Vec::new();
        while let Some(group) = groups.pop().filter(|&group| group != 0) {
            for to in ns.mnt.all() {
                let info = ns.mnt.info(to);
                if to == mnt || found.contains(&to) || info.shared != group && info.master != group {
                    continue;
                }
                found.push(to);
                if info.shared != group {
                    groups.insert(0, info.shared);
                }
            }
        }
        found
    }

    /// The mounts at the same place as `dentry` of `parent` wherever that propagates to.
    fn counterparts(&self, ns: &Namespace, parent: Handle, dentry: Handle) -> Vec<Handle> {
        let at = |to| self.mounts.lookup(to, dentry);
        self.receivers(ns, parent).into_iter().filter_map(at).collect()
    }

    /// Whether what would be unmounted together with a mount at `at` is in use somewhere. What has mounts on it stays anyway.
    ///
    /// Kernel: fs/pnode.c `propagate_mount_busy()`.
    pub(crate) fn is_busy_elsewhere(&self, ns: &Namespace, at: Path) -> bool {
        let stays = |&mnt: &Handle| match ns.mnt.children(mnt) {
            [] => false,
            &[only] => self.overmount(mnt) != Some(only),
            _ => true,
        };
        self.counterparts(ns, at.mnt, at.dentry).iter().any(|mnt| !stays(mnt) && self.mount_count(*mnt) > 1)
    }

    /// The mount that covers the whole of this one. Kernel: `mount.overmount`.
    fn overmount(&self, mnt: Handle) -> Option<Handle> {
        self.mounts.lookup(mnt, self.mount(mnt).root.get())
    }

    /// Unmounts what was mounted elsewhere together with the tree at `mnt`, which is or was mounted at `at`. A mount stays
    /// where something else is mounted on it; but what covers all of it takes its place.
    ///
    /// Kernel: fs/pnode.c `propagate_umount()`.
    pub(crate) fn propagate_umount(&self, ns: &mut Namespace, mnt: Handle, at: Path) {
        let tree = ns.mnt.subtree(mnt);
        let mut going = HashSet::new();
        for &member in &tree {
            let place = if member == mnt { at } else { self.mount(member).place() };
            going.extend(self.counterparts(ns, place.mnt, place.dentry));
        }
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
        let tops: Vec<Handle> =
            going.iter().copied().filter(|&mnt| !going.contains(&self.mount(mnt).parent.get())).collect();
        tops.into_iter().for_each(|mnt| self.umount_tree(ns, mnt, Umount::Lazy));
    }

    /// Takes out of `going` what has to stay because of what is mounted on it, or because it is locked to what stays. Gives
    /// those that are covered as a whole by what stays.
    ///
    /// Kernel: fs/pnode.c `trim_one()`, `handle_locked()`.
    fn trim(&self, ns: &Namespace, tree: &[Handle], going: &mut HashSet<Handle>) -> HashSet<Handle> {
        let mut covered = HashSet::new();
        loop {
            let before = (going.len(), covered.len());
            for mnt in going.clone() {
                let over = self.overmount(mnt);
                let survives = |child: &Handle| !going.contains(child) || covered.contains(child);
                let held = ns.mnt.children(mnt).iter().any(|child| over != Some(*child) && survives(child));
                let parent = self.mount(mnt).parent.get();
                let kept = self.is_locked(mnt) && !going.contains(&parent) && !tree.contains(&parent);
                if over.as_ref().is_some_and(survives) {
                    covered.insert(mnt);
                }
                if held || kept {
                    going.remove(&mnt);
                }
            }
            if before == (going.len(), covered.len()) {
                return covered;
            }
        }
    }
}
