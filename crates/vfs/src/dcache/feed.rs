//! Which inodes and names changed since they were last told, as the store notes it.

use crate::tmpfs::pages::PAGE_SIZE;
use rcuwalk_sync::{Handle, Racy64};
use std::collections::HashMap;
use std::sync::Arc;

/// The most that a changed chunk of contents costs on the disk; bytes.
pub(crate) const CHUNK_BYTES: u64 = 8 * PAGE_SIZE as u64;

/// The most that a changed inode or name costs on the disk beside long attributes: a page of a tree, and its share of those above
/// it and of pages that are split; bytes.
const RECORD_BYTES: u64 = 3 * PAGE_SIZE as u64;

/// What the changes that were not told yet cost on the disk at most. Written under the name space lock.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    /// Bytes that changes have cost since they were last told.
    pub(crate) spent: Racy64,
    /// Bytes of what was granted that are left.
    pub(crate) left: Racy64,
}

impl Costs {
    pub(crate) fn spend(&self, bytes: u64) {
        self.spent.set(self.spent.get().saturating_add(bytes));
        self.left.set(self.left.get().saturating_sub(bytes));
    }
}

/// One inode, as the feed knows it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tracked {
    /// 0: not told of.
    pub(crate) key: u64,
    pub(crate) names: u32,
    /// It changed.
    pub(crate) dirty: bool,
    /// Nothing was told of it yet.
    pub(crate) fresh: bool,
    /// It is in [`Feed::listed`], perhaps from an earlier life of the slot.
    pub(crate) listed: bool,
}

/// What changed since it was last told; part of the name space.
///
/// It is no larger than the tree was then and is now together: what came and went in between leaves nothing behind.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    pub(crate) nodes: Vec<Tracked>,
    pub(crate) next_key: u64,
    pub(crate) listed: Vec<Handle>,
    /// By directory, names that changed; true if there may have been such a name when changes were last told.
    pub(crate) names: HashMap<Handle, HashMap<Box<[u8]>, bool>>,
    pub(crate) gone: Vec<u64>,
    pub(crate) costs: Arc<Costs>,
}

impl Feed {
    /// Counts bytes of an inode's own record or contents beside what every record costs.
    pub(crate) fn spend(&self, bytes: u64) {
        // As part of the record, which is copied whole, beside what a page of the tree has room for.
        self.costs.spend(bytes.saturating_mul(2));
    }

    pub(crate) fn node(&mut self, inode: Handle) -> &mut Tracked {
        let at = inode as usize;
        if at >= self.nodes.len() {
            self.nodes.resize(at + 1, Tracked::default());
        }
        &mut self.nodes[at]
    }

    pub(crate) fn key(&self, inode: Handle) -> Option<u64> {
        self.nodes.get(inode as usize).map(|node| node.key).filter(|&key| key != 0)
    }

    /// An inode changes. Whether it is the first time since changes were told.
    pub(crate) fn changed(&mut self, inode: Handle) -> bool {
        let node = self.node(inode);
        let first = node.key != 0 && !node.dirty;
        node.dirty = node.key != 0;
        if node.dirty && !std::mem::replace(&mut node.listed, true) {
            self.listed.push(inode);
        }
        if first {
            self.costs.spend(RECORD_BYTES);
        }
        first
    }

    /// An inode gets a further name in `dir`. Whether it is the first one, and all of it is to be told.
    pub(crate) fn linked(&mut self, dir: Handle, inode: Handle) -> bool {
        if self.key(dir).is_none() {
            return false;
        }
        let next = self.next_key;
        let node = self.node(inode);
        node.names += 1;
        if node.key == 0 {
            (node.key, node.fresh) = (next, true);
            self.next_key += 1;
        }
        let fresh = self.nodes[inode as usize].fresh;
        self.changed(inode) && fresh
    }

    /// An inode loses a name.
    pub(crate) fn unlinked(&mut self, inode: Handle) {
        let node = self.node(inode);
        if node.key == 0 {
            return;
        }
        node.names -= 1;
        if node.names == 0 {
            let Tracked { key, fresh, listed, .. } = *node;
            *node = Tracked { listed, ..Tracked::default() };
            self.names.remove(&inode);
            if !fresh {
                self.gone.push(key);
                self.costs.spend(2 * RECORD_BYTES);
            }
        }
    }

    /// A dentry becomes findable; `taken` if another one of that name is.
    pub(crate) fn named(&mut self, dir: Handle, name: &[u8], taken: bool) {
        if self.key(dir).is_some() {
            self.names.entry(dir).or_default().entry(name.into()).or_insert_with(|| {
                self.costs.spend(RECORD_BYTES);
                taken
            });
        }
    }

    /// A dentry became unfindable; `taken` if another one of that name is findable.
    pub(crate) fn unnamed(&mut self, dir: Handle, name: &[u8], taken: bool) {
        if self.key(dir).is_none() {
            return;
        }
        let names = self.names.entry(dir).or_default();
        match names.get(name) {
            None => {
                names.insert(name.into(), true);
                self.costs.spend(RECORD_BYTES);
            }
            Some(false) if !taken => drop(names.remove(name)),
            Some(_) => {}
        }
    }
}
