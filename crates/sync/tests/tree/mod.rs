//! A name space as small as it can be while every protocol of the real walk still has its place in it: one word for a
//! name, one for an inode, and the directory cache's own sequence counts, chains, references and slots.
//!
//! The steps mirror the engine's dcache and walk (`dcache.rs`, `store.rs`, `namei/`) one by one. Each step that a
//! protocol depends on can be left out by naming it in `RCUWALK_MUTANT`, to show that its model notices.

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard};

use rcuwalk_sync::{Arena, Chains, ChainsWriter, Handle, Link, LockRef, Nodes, Racy32, SeqCount};
use std::sync::LazyLock;

rcuwalk_sync::type_stable! {
    /// A dentry, and what matters here of its inode.
    pub(crate) struct Node {
        /// Covers parent, name and inode.
        pub(crate) seq: SeqCount,
        /// Covers the set of entries, if this is a directory.
        pub(crate) entries: SeqCount,
        pub(crate) parent: Racy32,
        pub(crate) name: Racy32,
        pub(crate) inode: Racy32,
        pub(crate) link: Link,
        pub(crate) count: LockRef,
    }
}

/// Whether the mutant under test leaves `step` out.
pub(crate) fn without(step: &str) -> bool {
    static MUTANT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("RCUWALK_MUTANT").ok());
    MUTANT.as_deref() == Some(step)
}

/// A node as a walker saw it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) at: Handle,
    pub(crate) seq: u32,
}

/// What a lockless walk came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The name leads to this inode.
    Inode(u32),
    /// There is no such name.
    Missing,
    /// Something moved: the real walk would fall back on the lock.
    Bail,
}

struct Slots(Arena<Node>);

impl Nodes for Slots {
    fn link(&self, at: Handle) -> &Link {
        &self.0.get(at).link
    }
    fn hash(&self, at: Handle) -> u32 {
        let node = self.0.get(at);
        hash(node.parent.get(), node.name.get())
    }
}

fn hash(parent: Handle, name: u32) -> u32 {
    parent ^ name
}

/// The tree; node 1 is its root.
pub(crate) struct Tree {
    slots: Slots,
    chains: Chains,
    lock: Mutex<ChainsWriter>,
}

/// The right to change the tree.
pub(crate) type Lock<'a> = MutexGuard<'a, ChainsWriter>;

pub(crate) const ROOT: Handle = 1;

impl Tree {
    /// A tree of a root alone, with room for `nodes` nodes and at most `buckets` chains.
    pub(crate) fn new(nodes: u32, buckets: u32) -> Tree {
        let (chains, writer) = Chains::new(buckets).unwrap();
        let tree = Tree { slots: Slots(Arena::new(nodes + 1).unwrap()), chains, lock: Mutex::new(writer) };
        let root = tree.slots.0.alloc().unwrap();
        assert_eq!(root, ROOT);
        tree.node(ROOT).count.init();
        tree
    }

    pub(crate) fn node(&self, at: Handle) -> &Node {
        self.slots.0.get(at)
    }

    /// Nodes in use.
    pub(crate) fn in_use(&self) -> u32 {
        self.slots.0.in_use()
    }

    pub(crate) fn lock(&self) -> Lock<'_> {
        self.lock.lock().unwrap()
    }

    /// Makes `name` in `dir` an entry for `inode`.
    pub(crate) fn create(&self, lock: &mut Lock<'_>, dir: Handle, name: u32, inode: u32) -> Handle {
        let at = self.slots.0.alloc().unwrap();
        let node = self.node(at);
        {
            let _reused = (!without("reuse-count")).then(|| node.seq.write());
            node.parent.set(dir);
            node.name.set(name);
            node.inode.set(inode);
        }
        node.count.init();
        let _entries = self.node(dir).entries.write();
        lock.insert(&self.chains, &self.slots, at);
        at
    }

    /// Removes the entry `at`. Its slot is free when the last holder has put it.
    pub(crate) fn unlink(&self, lock: &mut Lock<'_>, at: Handle) {
        {
            let _entries = self.node(self.node(at).parent.get()).entries.write();
            self.detach(lock, at);
        }
        self.put(at);
    }

    /// Takes `at` out of its chain and out of its directory, whose entries the caller has opened.
    fn detach(&self, lock: &mut Lock<'_>, at: Handle) {
        let node = self.node(at);
        let _dead = (!without("reuse-count")).then(|| node.seq.write());
        lock.remove(&self.chains, &self.slots, at);
        node.parent.set(0);
    }

    /// Moves the entry `at` to `name` in `dir`, in place of `victim` if that is not 0.
    pub(crate) fn rename(&self, lock: &mut Lock<'_>, at: Handle, dir: Handle, name: u32, victim: Handle) {
        let node = self.node(at);
        let from = node.parent.get();
        {
            let _from = self.node(from).entries.write();
            let _to = (dir != from).then(|| self.node(dir).entries.write());
            if victim != 0 {
                self.detach(lock, victim);
            }
            let _moved = node.seq.write();
            lock.remove(&self.chains, &self.slots, at);
            node.parent.set(dir);
            node.name.set(name);
            lock.insert(&self.chains, &self.slots, at);
        }
        if victim != 0 {
            self.put(victim);
        }
    }

    /// Gives the entry `at` another inode, as creation does to a negative entry.
    pub(crate) fn set_inode(&self, _lock: &mut Lock<'_>, at: Handle, inode: u32) {
        let node = self.node(at);
        let _change = node.seq.write();
        node.inode.set(inode);
    }

    fn retry(&self, seen: Seen) -> bool {
        self.node(seen.at).seq.retry(seen.seq)
    }

    pub(crate) fn see(&self, at: Handle) -> Seen {
        Seen { at, seq: self.node(at).seq.begin() }
    }

    /// Looks for `name` in `dir`: the entry, or the answer that there is none.
    ///
    /// Mirrors `lookup_fast` and `prove_missing`, whose two looks are one here.
    pub(crate) fn lookup(&self, dir: Seen, name: u32) -> Result<Seen, Answer> {
        let entries = self.node(dir.at).entries.begin();
        let mut walk = self.chains.view().walk(hash(dir.at, name));
        while let Some(at) = walk.node() {
            let node = self.node(at);
            let seen = self.see(at);
            if node.parent.get() != dir.at || node.name.get() != name {
                walk.step(&node.link);
                continue;
            }
            if !without("walk-parent") && self.retry(dir) {
                return Err(Answer::Bail);
            }
            // The count belongs before the check of the parent: only so is there a moment at which both held.
            return Ok(if without("walk-order") { self.see(at) } else { seen });
        }
        let missed = without("miss-mark") || walk.missed();
        let sure = missed
            && (without("miss-entries") || !self.node(dir.at).entries.retry(entries))
            && (without("miss-parent") || !self.retry(dir));
        Err(if sure { Answer::Missing } else { Answer::Bail })
    }

    /// The directory above `seen`.
    ///
    /// Mirrors `follow_dotdot`.
    pub(crate) fn dotdot(&self, seen: Seen) -> Result<Seen, Answer> {
        let parent = self.see(self.node(seen.at).parent.get());
        if !without("dotdot-child") && self.retry(seen) { Err(Answer::Bail) } else { Ok(parent) }
    }

    /// Walks `path` from the root, hand over hand.
    pub(crate) fn walk(&self, path: &[u32]) -> Result<Seen, Answer> {
        path.iter().try_fold(self.see(ROOT), |dir, &name| self.lookup(dir, name))
    }

    /// The inode that `path` leads to.
    pub(crate) fn stat(&self, path: &[u32]) -> Answer {
        self.inode(self.walk(path))
    }

    /// The inode of `name` in `dir`.
    pub(crate) fn stat_in(&self, dir: Handle, name: u32) -> Answer {
        self.inode(self.lookup(self.see(dir), name))
    }

    /// The inode of what a walk came to.
    pub(crate) fn inode(&self, walked: Result<Seen, Answer>) -> Answer {
        match walked {
            Ok(seen) => {
                let inode = self.node(seen.at).inode.get();
                if !without("walk-child") && self.retry(seen) { Answer::Bail } else { Answer::Inode(inode) }
            }
            Err(answer) => answer,
        }
    }

    /// Takes a reference to `seen` if it is still what was seen.
    ///
    /// Mirrors `legitimize`.
    pub(crate) fn pin(&self, seen: Seen) -> bool {
        if !self.node(seen.at).count.get_not_zero() {
            return false;
        }
        let stale = !without("pin-check") && self.retry(seen);
        if stale {
            self.put(seen.at);
        }
        !stale
    }

    /// Gives a reference back, and the slot with the last one.
    pub(crate) fn put(&self, at: Handle) {
        if self.node(at).count.put() {
            self.slots.0.free(at, 0);
        }
    }
}
