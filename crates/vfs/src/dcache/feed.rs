//! Which inodes and names changed since they were last told, as the store notes it.

use rcuwalk_sync::Handle;
use std::collections::HashMap;

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
}

impl Feed {
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

    /// An inode changes.
    pub(crate) fn changed(&mut self, inode: Handle) {
        let node = self.node(inode);
        node.dirty = node.key != 0;
        if node.dirty && !std::mem::replace(&mut node.listed, true) {
            self.listed.push(inode);
        }
    }

    /// An inode gets a further name in `dir`.
    pub(crate) fn linked(&mut self, dir: Handle, inode: Handle) {
        if self.key(dir).is_none() {
            return;
        }
        let next = self.next_key;
        let node = self.node(inode);
        node.names += 1;
        if node.key == 0 {
            (node.key, node.fresh) = (next, true);
            self.next_key += 1;
        }
        self.changed(inode);
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
            }
        }
    }

    /// A dentry becomes findable; `taken` if another one of that name is.
    pub(crate) fn named(&mut self, dir: Handle, name: &[u8], taken: bool) {
        if self.key(dir).is_some() {
            self.names.entry(dir).or_default().entry(name.into()).or_insert(taken);
        }
    }

    /// A dentry became unfindable; `taken` if another one of that name is findable.
    pub(crate) fn unnamed(&mut self, dir: Handle, name: &[u8], taken: bool) {
        if self.key(dir).is_none() {
            return;
        }
        let names = self.names.entry(dir).or_default();
        match names.get(name) {
            None => drop(names.insert(name.into(), true)),
            Some(false) if !taken => drop(names.remove(name)),
            Some(_) => {}
        }
    }
}
