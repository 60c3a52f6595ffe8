//! The entries of a directory: their order, and the offsets by which getdents(2) finds its place again.
//!
//! The list of a directory begins with the name that came there last. Each entry has an *offset*, which counts up with every
//! name that comes; one that takes the place of another takes its offset too. So offsets mostly fall along the list, and a
//! reader goes on at the entry with the greatest offset up to its position.
//!
//! A directory of more than [`FEW`] entries gets an *index* by which that entry is found, once a further one comes that is looked at
//! for this: one in `FEW` is. The index has a record of each entry but those that need none, because
//!
//! - the next older neighbour in the list is the next lower one by offset too, and
//! - both offsets are in one block of [`BLOCK`].
//!
//! From the last record up to an offset, the entries that need none follow one by one. That is one record in sixteen names,
//! and one for each that came by taking another's place.
//!
//! A record is kept under the offset of its entry, or under a lower one: then there is no entry and no record in between.
//! Thus an entry that is removed can leave its record to the next one.
//!
//! Kernel: the list is `d_children` of fs/dcache.c, the offsets are `struct offset_ctx` of fs/libfs.c. Differs: a maple tree
//! has all offsets there.

use crate::base::errno::{Errno, Result};
use crate::dcache::store::{Namespace, Store};
use rcuwalk_sync::Handle;
use std::collections::BTreeMap;

/// The position behind `.` and `..`, at which reading starts with the first entry, whatever its offset is.
pub(crate) const DIR_OFFSET_FIRST: u32 = 2;

/// The offsets that entries get.
pub(crate) const DIR_OFFSET_MIN: u32 = 3;
const DIR_OFFSET_MAX: u32 = DIR_OFFSET_EOD - 1;

/// The position behind all entries. Kernel: fs/libfs.c `DIR_OFFSET_EOD`.
pub(crate) const DIR_OFFSET_EOD: u32 = i32::MAX as u32;

/// In the offset of an entry: the index has a record of it.
const INDEXED: u32 = 1 << 31;

/// In the next offset of a directory: the offsets have come to their end once, so lower ones may be in use.
const WRAPPED: u32 = 1 << 31;

/// How many entries a directory has without an index, or twice as many where the next to be looked at is still to come.
const FEW: u32 = 64;

/// How many steps from a record to the entry that is looked for, at most.
const BLOCK: u32 = 16;

/// Some entries of a directory by their offsets.
pub(crate) type OffsetIndex = BTreeMap<u32, Handle>;

impl Store {
    /// The offset of an entry; 0 if it is in no list.
    pub(crate) fn dentry_offset(&self, dentry: Handle) -> u32 {
        self.links(dentry).offset.get() & !INDEXED
    }

    /// The entries of a directory, in the order of getdents(2).
    pub(crate) fn children(&self, dir: Handle) -> impl Iterator<Item = Handle> {
        let some = |handle: Handle| (handle != 0).then_some(handle);
        let first = some(self.inode_rest(dir).first_child.get());
        std::iter::successors(first, move |&at| some(self.links(at).sib_next.get()))
    }

    /// The entries of a directory, the first that came first.
    pub(crate) fn children_oldest_first(&self, dir: Handle) -> impl Iterator<Item = Handle> {
        let some = |handle: Handle| (handle != 0).then_some(handle);
        let last = some(self.inode_rest(dir).last_child.get());
        std::iter::successors(last, move |&at| some(self.links(at).sib_prev.get()))
    }

    /// Takes the offset for one more entry of `dir`.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if every offset is in use.
    ///
    /// Kernel: fs/libfs.c `simple_offset_add()`.
    pub(crate) fn next_offset(&self, ns: &Namespace, dir: Handle) -> Result<u32> {
        let next = &self.inode_rest(dir).next_offset;
        let from = next.get() & !WRAPPED;
        if next.get() & WRAPPED == 0 && from <= DIR_OFFSET_MAX {
            next.set(from + 1);
            return Ok(from);
        }
        let free = |&offset: &u32| self.dentry_offset(self.child_up_to(ns, dir, offset)) != offset;
        let found = (from..=DIR_OFFSET_MAX).chain(DIR_OFFSET_MIN..=DIR_OFFSET_MAX).find(free);
        let found = found.ok_or(Errno::ENOSPC)?;
        next.set((found + 1) | WRAPPED);
        Ok(found)
    }

    /// Says that the offset of the next entry of `dir` is `next`, which lies behind all that are in use.
    pub(crate) fn set_next_offset(&self, _: &mut Namespace, dir: Handle, next: u32) {
        self.inode_rest(dir).next_offset.set(next);
    }

    /// The entry of `dir` with the greatest offset up to `offset`; 0 if there is none.
    ///
    /// Kernel: fs/libfs.c `offset_dir_lookup()`.
    pub(crate) fn child_up_to(&self, ns: &Namespace, dir: Handle, offset: u32) -> Handle {
        let Some(index) = ns.offsets.get(self.inode_rest(dir).data.get()) else {
            let up_to = self.children(dir).filter(|&child| self.dentry_offset(child) <= offset);
            return up_to.max_by_key(|&child| self.dentry_offset(child)).unwrap_or(0);
        };
        // The last record may be kept under a lower offset than its entry has; the one before is right then.
        let mut records = index.range(..=offset).rev().map(|(_, &entry)| entry);
        let Some(mut at) = records.find(|&entry| self.dentry_offset(entry) <= offset) else { return 0 };
        loop {
            let newer = self.links(at).sib_prev.get();
            if newer == 0 || self.is_indexed(newer) || self.dentry_offset(newer) > offset {
                return at;
            }
            at = newer;
        }
    }

    /// Puts `child` before all other entries of `dir`, with an offset that no other one has.
    pub(crate) fn add_child(&self, ns: &mut Namespace, dir: Handle, child: Handle, offset: u32) {
        let (rest, links) = (self.inode_rest(dir), self.links(child));
        let first = rest.first_child.get();
        if rest.data.get() == 0 && self.is_large(dir, child, offset) {
            self.make_index(ns, dir);
        }
        links.offset.set(offset);
        if rest.data.get() != 0 && !self.needs_no_record(ns, dir, first, offset) {
            if rest.next_offset.get() != offset + 1 {
                self.split_index(ns, dir, offset);
            }
            self.add_record(ns, dir, child);
        }
        links.sib_prev.set(0);
        links.sib_next.set(first);
        if first == 0 {
            rest.last_child.set(child);
        } else {
            self.links(first).sib_prev.set(child);
        }
        rest.first_child.set(child);
    }

    /// Whether a directory without an index needs one. Asked for each entry that comes, it looks for one in [`FEW`]: by the offset, as
    /// names come with one after the other, or by the slot, as names that are loaded do.
    fn is_large(&self, dir: Handle, child: Handle, offset: u32) -> bool {
        (offset.is_multiple_of(FEW) || child.is_multiple_of(FEW))
            && self.children(dir).nth(FEW as usize).is_some()
    }

    /// Takes `child` out of the list of `dir`, if it is in it.
    pub(crate) fn remove_child(&self, ns: &mut Namespace, dir: Handle, child: Handle) {
        let (rest, links) = (self.inode_rest(dir), self.links(child));
        let (newer, older) = (links.sib_prev.get(), links.sib_next.get());
        let (offset, indexed) = (self.dentry_offset(child), self.is_indexed(child));
        if offset == 0 {
            return;
        }
        links.offset.set(0);
        if newer == 0 {
            rest.first_child.set(older);
        } else {
            self.links(newer).sib_next.set(older);
        }
        if older == 0 {
            rest.last_child.set(newer);
        } else {
            self.links(older).sib_prev.set(newer);
        }
        if !indexed {
            return;
        }
        let Some(index) = ns.offsets.get_mut(rest.data.get()) else { return };
        let Some((&key, record)) = index.range_mut(..=offset).next_back() else { return };
        if newer == 0 || self.is_indexed(newer) {
            index.remove(&key);
        } else {
            *record = newer;
            self.set_indexed(newer);
        }
    }

    fn is_indexed(&self, child: Handle) -> bool {
        self.links(child).offset.get() & INDEXED != 0
    }

    fn set_indexed(&self, child: Handle) {
        let offset = &self.links(child).offset;
        offset.set(offset.get() | INDEXED);
    }

    fn add_record(&self, ns: &mut Namespace, dir: Handle, child: Handle) {
        if let Some(index) = ns.offsets.get_mut(self.inode_rest(dir).data.get()) {
            index.insert(self.dentry_offset(child), child);
            self.set_indexed(child);
        }
    }

    /// Whether an entry that comes before `first`, the first so far, needs no record.
    fn needs_no_record(&self, ns: &Namespace, dir: Handle, first: Handle, offset: u32) -> bool {
        if first == 0 {
            return false;
        }
        let below = self.dentry_offset(first);
        // Offsets greater than that of an entry without a record came later than it, and so stand before it. What stands before
        // the first one? Nothing.
        let is_greatest = || {
            let index = ns.offsets.get(self.inode_rest(dir).data.get());
            !self.is_indexed(first)
                || index.and_then(|i| i.last_key_value()).is_some_and(|(_, &e)| e == first)
        };
        below < offset && below / BLOCK == offset / BLOCK && is_greatest()
    }

    /// Prepares the index for an entry between others: that above `offset` does not follow that below any more, and has a record of
    /// its own under its own offset.
    fn split_index(&self, ns: &mut Namespace, dir: Handle, offset: u32) {
        let below = self.child_up_to(ns, dir, offset);
        let above = if below == 0 { 0 } else { self.links(below).sib_prev.get() };
        if above != 0 && !self.is_indexed(above) {
            self.add_record(ns, dir, above);
        }
        let Some(index) = ns.offsets.get_mut(self.inode_rest(dir).data.get()) else { return };
        let record = index.range(..=offset).next_back().map(|(&key, &entry)| (key, entry));
        if let Some((key, entry)) = record.filter(|&(_, entry)| self.dentry_offset(entry) > offset) {
            index.remove(&key);
            index.insert(self.dentry_offset(entry), entry);
        }
    }

    /// Makes the index of a directory with few entries. Without memory for it there is none: what is looked for is found more
    /// slowly.
    #[cold]
    fn make_index(&self, ns: &mut Namespace, dir: Handle) {
        let mut sorted: Vec<Handle> = self.children(dir).collect();
        sorted.sort_unstable_by_key(|&child| self.dentry_offset(child));
        let mut index = OffsetIndex::new();
        let mut below = 0;
        for child in sorted {
            let offset = self.dentry_offset(child);
            let follows = below != 0
                && self.links(child).sib_next.get() == below
                && self.dentry_offset(below) / BLOCK == offset / BLOCK;
            if !follows {
                index.insert(offset, child);
            }
            below = child;
        }
        let records: Vec<Handle> = index.values().copied().collect();
        if let Ok(at) = ns.offsets.insert(index) {
            self.inode_rest(dir).data.set(at);
            records.into_iter().for_each(|child| self.set_indexed(child));
        }
    }
}
