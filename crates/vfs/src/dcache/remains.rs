//! What went all at once, and is cleared away step by step: the tree of a file system that is unmounted, the directories that
//! a removed one kept, the contents of a file. Nobody waits for it but the call that made it go.
//!
//! Kernel: fs/dcache.c `shrink_dcache_for_umount()` and `__dentry_kill()` let others in likewise, by `cond_resched()`.

use crate::base::uapi::{S_IFDIR, S_IFMT};
use crate::dcache::store::{Contents, Namespace, Store};
use crate::tmpfs::ispace::CountedXattrs;
use rcuwalk_sync::Handle;
use rcuwalk_sync::lock::{MutexGuard, let_others_in};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// How many names are freed before others are let in: some tens of microseconds' work.
const STEPS: u32 = 128;

/// How many names are freed by a call that made them go, before it releases the lock: it may make many trees go.
const AT_ONCE: u32 = 32;

/// What is gone, and not cleared away yet.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    dentries: Vec<Dead>,
    heap: Vec<Heap>,
    /// A thread is at work on `dentries`.
    at_work: bool,
}

/// Dentries to be freed.
#[derive(Debug, Clone, Copy)]
enum Dead {
    /// The tree below a root that is mounted nowhere, and where in it to go on.
    Tree { root: Handle, at: Handle },
    /// A dentry that nobody refers to, and those above it that only it kept.
    Chain(Handle),
}

/// What is dropped when the lock is released, since it may be large.
#[derive(Debug)]
enum Heap {
    Contents { _it: Arc<Contents> },
    Xattrs { _it: CountedXattrs },
}

/// The name space lock, held. Functions that change the tree ask for it as proof.
///
/// The holder that made something go clears it away after the release, in steps of a few names with the lock free in between.
#[derive(Debug)]
pub(crate) struct NsGuard<'a> {
    store: &'a Store,
    ns: Option<MutexGuard<'a, Namespace>>,
    /// This holder works off the dentries that are gone.
    works: bool,
}

impl<'a> NsGuard<'a> {
    pub(crate) fn new(store: &'a Store, ns: MutexGuard<'a, Namespace>) -> Self {
        NsGuard { store, ns: Some(ns), works: false }
    }
}

impl Deref for NsGuard<'_> {
    type Target = Namespace;

    #[inline(always)]
    fn deref(&self) -> &Namespace {
        match &self.ns {
            Some(ns) => ns,
            None => unreachable!("taken only by drop"),
        }
    }
}

impl DerefMut for NsGuard<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Namespace {
        match &mut self.ns {
            Some(ns) => ns,
            None => unreachable!("taken only by drop"),
        }
    }
}

impl Drop for NsGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.works || !self.remains.heap.is_empty() || !self.remains.dentries.is_empty() {
            self.clear_away();
        }
        drop(self.ns.take());
        self.store.prepare();
    }
}

impl NsGuard<'_> {
    /// Lets go of the lock, and takes it again: a thread that has waited for long has it in between, and `meanwhile` is done. What the
    /// holder made go stays its own to clear away.
    pub(crate) fn pause(&mut self, meanwhile: impl FnOnce()) {
        let Some(mut ns) = self.ns.take() else { return };
        if !ns.remains.dentries.is_empty() {
            self.works |= !std::mem::replace(&mut ns.remains.at_work, true);
        }
        let heap = std::mem::take(&mut ns.remains.heap);
        drop(ns);
        drop(heap);
        meanwhile();
        self.ns = Some(self.store.lock_raw());
    }

    #[cold]
    fn clear_away(&mut self) {
        let Some(mut ns) = self.ns.take() else { return };
        // Of the threads that made something go, one works off the dentries of all.
        let works = self.works || !std::mem::replace(&mut ns.remains.at_work, true);
        loop {
            let done = !works || ns.remains.dentries.is_empty();
            if works && done {
                ns.remains.at_work = false;
            }
            let heap = std::mem::take(&mut ns.remains.heap);
            drop(ns);
            drop(heap);
            if done {
                return;
            }
            let_others_in();
            ns = self.store.lock_raw();
            self.store.clear_some(&mut ns);
        }
    }
}

impl Store {
    /// Frees the tree of a file system that is mounted nowhere any more, from the leaves up, and gives the reference to its root
    /// back: a small one now, the rest of a large one when the lock is released. Nobody can find it until then.
    ///
    /// Kernel: fs/dcache.c `shrink_dcache_for_umount()`.
    pub(crate) fn shrink_tree(&self, ns: &mut Namespace, root: Handle) {
        self.bury(ns, Dead::Tree { root, at: root });
    }

    /// Frees a dentry that nobody refers to, the reference it held to its parent, and its inode if this was its last
    /// dentry. A removed chain of directories is freed in a loop, not recursively, and a long one later.
    pub(crate) fn dentry_free(&self, ns: &mut Namespace, dentry: Handle) {
        self.bury(ns, Dead::Chain(dentry));
    }

    fn bury(&self, ns: &mut Namespace, dead: Dead) {
        // Who follows the changes is told of all of them at once, and what finds no room to wait goes now.
        let whole = ns.feed.is_some();
        let mut left = Some(dead);
        while let Some(dead) = left {
            left = self.free_some(ns, dead, &mut AT_ONCE.clone());
            if let Some(rest) = left
                && !whole
                && ns.remains.dentries.try_reserve(1).is_ok()
            {
                return ns.remains.dentries.push(rest);
            }
        }
    }

    /// Frees some of the dentries that are left.
    fn clear_some(&self, ns: &mut Namespace) {
        let mut steps = STEPS;
        while steps > 0
            && let Some(dead) = ns.remains.dentries.pop()
        {
            if let Some(rest) = self.free_some(ns, dead, &mut steps) {
                // It has just been there.
                ns.remains.dentries.push(rest);
            }
        }
    }

    /// Frees dentries, so many at most; gives what is left.
    fn free_some(&self, ns: &mut Namespace, dead: Dead, steps: &mut u32) -> Option<Dead> {
        match dead {
            Dead::Chain(mut at) => {
                while *steps > 0 {
                    *steps -= 1;
                    at = self.free_one(ns, at)?;
                }
                Some(Dead::Chain(at))
            }
            Dead::Tree { root, mut at } => {
                while *steps > 0 {
                    *steps -= 1;
                    at = self.prune(ns, root, at)?;
                }
                Some(Dead::Tree { root, at })
            }
        }
    }

    /// One step through a tree that is freed: down to a child, or up from a leaf, which goes; `None` when the root has gone.
    fn prune(&self, ns: &mut Namespace, root: Handle, at: Handle) -> Option<Handle> {
        let inode = self.d_inode(at);
        if self.inode(inode).mode.get() & S_IFMT == S_IFDIR {
            let child = self.inode_rest(inode).first_child.get();
            if child != 0 {
                return Some(child);
            }
        }
        if at == root {
            self.put_locked(ns, root);
            return None;
        }
        let parent = self.dentry(at).parent.get();
        {
            let _open = self.open_inode(ns, self.d_inode(parent));
            self.d_drop(ns, at);
        }
        self.put_locked(ns, at);
        Some(parent)
    }

    /// Drops the contents of a file that is gone when the lock is released.
    pub(crate) fn drop_contents(&self, ns: &mut Namespace, contents: u32) {
        if let Some(it) = ns.contents.remove(contents) {
            ns.remains.drop_later(Heap::Contents { _it: it });
        }
    }

    /// The same for extended attributes.
    pub(crate) fn drop_xattrs(&self, ns: &mut Namespace, xattrs: u32) {
        if let Some(it) = ns.xattrs.remove(xattrs) {
            ns.remains.drop_later(Heap::Xattrs { _it: it });
        }
    }
}

impl Remains {
    fn drop_later(&mut self, it: Heap) {
        // What finds no room is dropped now.
        if self.heap.try_reserve(1).is_ok() {
            self.heap.push(it);
        }
    }
}
