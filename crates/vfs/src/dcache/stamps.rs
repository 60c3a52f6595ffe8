//! Stamps: whether a slot can have changed, without looking at it.
//!
//! The whole-path table keeps copies of inodes. Whether a copy still holds must not cost what it saves, which is the cache
//! line of the original. So the slots share [`STAMPS`] numbers that stay in the cache, and every writer of a dentry or an
//! inode counts up the one of its slot first.
//!
//! **Claim.** A copy made with the name space lock held, together with its stamp, is what the slot has whenever that stamp is
//! read again and still the same. No change is under way when the copy is made; the next one counts the stamp up before it
//! opens the sequence count of what it changes. So a thread that has seen anything of the change, directly or through others, has
//! acquired the new stamp with it, and cannot read the old one any more.
//!
//! Stamps are shared, so that a change makes copies of some other slots look old too: those are asked by their own counts, as
//! if there were no copy.

use crate::dcache::store::{Namespace, Store};
use rcuwalk_sync::{Handle, MODELLED, Racy32, SeqCount, SeqRead, SeqWrite, type_stable};

/// 8 KiB, a sixth of the innermost cache; one copy in 2048 is lost to a change of something else.
const STAMPS: usize = if MODELLED { 2 } else { 2048 };

/// See the module.
#[derive(Debug)]
pub(crate) struct Stamps(Box<[Racy32; STAMPS]>);

impl Default for Stamps {
    fn default() -> Self {
        Stamps(Box::new(std::array::from_fn(|_| Racy32::default())))
    }
}

impl Stamps {
    #[inline(always)]
    fn at(&self, slot: Handle) -> &Racy32 {
        &self.0[slot as usize % STAMPS]
    }

    /// The stamp of a slot; never odd.
    #[inline(always)]
    pub(crate) fn of(&self, slot: Handle) -> u32 {
        self.at(slot).get()
    }

    #[cfg(test)]
    pub(crate) fn set(&self, slot: Handle, stamp: u32) {
        self.at(slot).set(stamp);
    }

    /// Makes every copy of the slot look old, and tells the stamp. The caller opens a count of the slot next.
    #[inline]
    fn advance(&self, _: &Namespace, slot: Handle) -> u32 {
        let stamp = self.at(slot);
        let next = stamp.get().wrapping_add(2);
        stamp.set(next);
        next
    }
}

type_stable! {
    /// The sequence count of a dentry or an inode. Anybody may read under it; [`Store::open_dentry`] and
    /// [`Store::open_inode`] alone start a change, so that none goes unnoticed by copies and by [`crate::trees::changes`].
    pub(crate) struct SlotSeq {
        count: SeqCount,
    }
}

impl SlotSeq {
    /// As [`SeqCount::begin`].
    #[inline(always)]
    pub(crate) fn begin(&self) -> u32 {
        self.count.begin()
    }

    /// As [`SeqCount::wait`].
    #[inline(always)]
    pub(crate) fn wait(&self) -> u32 {
        self.count.wait()
    }

    /// As [`SeqCount::retry`].
    #[inline(always)]
    #[must_use]
    pub(crate) fn retry(&self, start: u32) -> bool {
        self.count.retry(start)
    }

    /// [`SeqCount::restart`], if all is zero here.
    pub(crate) fn restart(&self, start: u32) {
        if self.count.begin() == 0 {
            self.count.restart(start);
        }
    }

    /// As [`SeqCount::since`].
    #[inline(always)]
    pub(crate) fn since(&self, start: u32) -> SeqRead<'_> {
        self.count.since(start)
    }
}

impl Store {
    /// Starts a change of a dentry, which ends when the guard is dropped.
    #[inline]
    pub(crate) fn open_dentry(&self, ns: &Namespace, dentry: Handle) -> SeqWrite<'_> {
        self.paths.forget_round(ns, self.stamps.advance(ns, dentry));
        self.dentry(dentry).seq.count.write()
    }

    /// Starts a change of an inode, which ends when the guard is dropped, and notes it for the change feed.
    #[inline]
    pub(crate) fn open_inode(&self, ns: &mut Namespace, inode: Handle) -> SeqWrite<'_> {
        self.note_change(ns, inode);
        self.paths.forget_round(ns, self.stamps.advance(ns, inode));
        self.inode(inode).seq.count.write()
    }
}
