//! The lock of all who change the tree of mounts, under which the name space is locked step by step.
//!
//! A change of 100,000 mounts takes as long as it takes, but nobody waits for it who does not ask for mounts: its holder lets go of
//! the lock of the name space every few mounts. What others see in between is the tree as it was before. It changes all at once, by
//! [`Kernel::commit`](crate::kernel::Kernel::commit), and is tidied up step by step again.
//!
//! Kernel: fs/namespace.c `namespace_lock()`. Differs: that keeps waiters of `mount_lock`, walks among them, waiting while it takes mounts
//! apart.

use crate::dcache::remains::NsGuard;
use crate::dcache::store::Namespace;
use crate::kernel::Kernel;
use crate::mount::{Path, flags};
use rcuwalk_sync::lock::{MutexGuard, PoisonError};
use rcuwalk_sync::{Handle, MODELLED};
use std::collections::HashSet;
use std::ops::{Deref, DerefMut};

/// How many mounts are worked on before others are let in: some tens of microseconds' work.
pub(crate) const STEPS: u32 = if MODELLED { 2 } else { 64 };

/// [`MountTable::sem`](crate::mount::MountTable::sem), held, and the name space lock, which [`step`](Self::step) lets go of now and then.
///
/// Across a step, mounts stay as they are, but for those that are in no namespace: they may be freed by those who used them. Names and
/// inodes change.
#[derive(Debug)]
pub(crate) struct MountGuard<'a> {
    kernel: &'a Kernel,
    /// Comes first: a file system that was unmounted is cleared away when others may mount again.
    _sem: MutexGuard<'a, ()>,
    ns: NsGuard<'a>,
    steps: u32,
}

impl Kernel {
    /// Locks the mounts, then the name space. Kernel: fs/namespace.c `namespace_lock()`.
    pub(crate) fn lock_mounts(&self) -> MountGuard<'_> {
        let sem = self.mounts.sem.lock().unwrap_or_else(PoisonError::into_inner);
        MountGuard { kernel: self, _sem: sem, ns: self.store.lock(), steps: 0 }
    }
}

impl MountGuard<'_> {
    /// Passed after each mount that was worked on.
    #[inline]
    pub(crate) fn step(&mut self) {
        self.steps += 1;
        if self.steps >= STEPS {
            self.pause();
        }
    }

    fn pause(&mut self) {
        self.steps = 0;
        self.kernel.free_mounts(&mut self.ns, STEPS);
        let kernel = self.kernel;
        self.ns.pause(|| kernel.mounts.mounts.prepare());
    }

    /// A mount and everything below it but for the trees at `without`, parents first.
    pub(crate) fn subtree_without(&mut self, mnt: Handle, without: &HashSet<Handle>) -> Vec<Handle> {
        let mut list = vec![mnt];
        let mut at = 0;
        while at < list.len() {
            list.extend(self.mnt.children(list[at]).filter(|child| !without.contains(child)));
            at += 1;
            self.step();
        }
        list
    }

    /// A mount and everything below it, parents first.
    pub(crate) fn subtree(&mut self, mnt: Handle) -> Vec<Handle> {
        self.subtree_without(mnt, &HashSet::new())
    }

    /// Sets marks ([`flags::MARKS`]) of mounts, or takes all away.
    pub(crate) fn mark(&mut self, mounts: &[Handle], marks: u32) {
        for &mnt in mounts {
            let word = &self.kernel.mount(mnt).flags;
            word.set(word.get() & !flags::MARKS | marks);
            self.step();
        }
    }
}

impl Deref for MountGuard<'_> {
    type Target = Namespace;

    #[inline]
    fn deref(&self) -> &Namespace {
        &self.ns
    }
}

impl DerefMut for MountGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Namespace {
        &mut self.ns
    }
}

impl Drop for MountGuard<'_> {
    fn drop(&mut self) {
        while self.kernel.free_mounts(&mut self.ns, STEPS) {
            self.ns.pause(|| ());
        }
    }
}

impl Kernel {
    /// Has come true, for all walks at once, what mounts are marked with, and that of `moves` each mount is attached to the place
    /// beside it; unless it may not be, which is asked while no walk can enter a mount unnoticed.
    ///
    /// Kernel: the sections of fs/namespace.c under `lock_mount_hash()`.
    pub(crate) fn commit(
        &self,
        ns: &mut Namespace,
        joined: u32,
        moves: &[(Handle, Path)],
        may: impl FnOnce() -> bool,
    ) -> bool {
        for &(_, to) in moves {
            self.store.links(to.dentry).count.get();
            // Before the count changes: a walk that passes there unawares is of the count before, and so is what the whole-path
            // table remembers of it.
            self.store.set_mounted(ns, to.dentry, true);
        }
        // Places that nothing is attached to any more.
        let mut left: Vec<Path> = Vec::with_capacity(moves.len());
        let done = {
            let _change = self.open_mounts(ns);
            let may = may();
            if may {
                self.mounts.joined.set(joined);
                self.mounts.committed.set(1);
            }
            for &(mnt, to) in moves {
                left.push(if may { self.relink(ns, mnt, to) } else { to });
            }
            may
        };
        for from in left {
            if from.mnt != 0 {
                if ns.mnt.covering(from.dentry).next().is_none() {
                    self.store.set_mounted(ns, from.dentry, false);
                }
                self.store.put_locked(ns, from.dentry);
            }
        }
        done
    }

    /// What was committed is in effect, and no mount is marked any more. A walk that has seen a mark, and looks only now whether it
    /// counts, is made once more.
    pub(crate) fn end_commit(&self, ns: &mut Namespace) {
        if self.mounts.committed.get() != 0 {
            let _change = self.open_mounts(ns);
            self.mounts.committed.set(0);
        }
    }

    /// Attaches a mount elsewhere; gives where it was.
    fn relink(&self, ns: &mut Namespace, mnt: Handle, to: Path) -> Path {
        let m = self.mount(mnt);
        let from = m.place();
        if from.mnt != 0 {
            ns.mnt.chains.remove(&self.mounts.chains, &self.mounts, mnt);
            ns.mnt.remove_child(from.mnt, mnt, from.dentry);
        }
        m.parent.set(to.mnt);
        m.mountpoint.set(to.dentry);
        ns.mnt.chains.insert(&self.mounts.chains, &self.mounts, mnt);
        ns.mnt.add_child(to.mnt, mnt, to.dentry);
        from
    }
}
