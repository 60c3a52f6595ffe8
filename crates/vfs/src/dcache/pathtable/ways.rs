//! Where entries lie: the ways of a bucket, how a path gets one, and how the table grows.
//!
//! A bucket has four ways. A path belongs in one of them, and a lookup looks there first. A path that enters takes that way, and
//! what was there moves to a vacant way, or takes that of any of the others ([`PathTable::victim`]).

use super::entry::Entry;
use super::signature::Mixed;
use super::{AsOf, HUGE_BUCKETS, PathTable, RESETTLED, Signature, WAYS};
use crate::dcache::store::Namespace;
use rcuwalk_sync::Racy64;

impl PathTable {
    #[inline(always)]
    pub(super) fn entry(&self, bucket: u32, way: u32) -> &Entry {
        self.entries.get(bucket * WAYS + way)
    }

    /// Has what is in one way take another, which is given up, so that a path can have its place: it is found sooner there.
    pub(super) fn make_room(&self, ns: &Namespace, bucket: u32, home: u32, way: u32, as_of: AsOf) {
        if way == home {
            return;
        }
        if self.is_vacant(bucket, home, as_of) {
            return self.leave(ns, bucket, way);
        }
        self.put(ns, bucket, way, self.entry(bucket, home));
        // Two that are asked for all the time keep changing places, which a small table spares them by growing.
        if self.mask.get() < HUGE_BUCKETS {
            self.turn.set(self.turn.get().wrapping_add(1));
        }
    }

    /// The way that a path has already.
    pub(super) fn own_way(&self, bucket: u32, mixed: Mixed, sign: Signature) -> Option<u32> {
        let tags = self.tags.get(bucket).get();
        (0..WAYS).find(|way| {
            let words = self.entry(bucket, *way).sign.iter().map(Racy64::get);
            (tags >> (16 * way)) as u16 == mixed.tag() && words.eq(sign.words())
        })
    }

    /// Whether what is in this way was so before these changes.
    pub(super) fn is_stale(&self, bucket: u32, way: u32, as_of: AsOf) -> bool {
        let entry = self.entry(bucket, way);
        entry.path_seq.get() != as_of.path_seq || entry.m_seq.get() != as_of.m_seq
    }

    /// Whether this way is empty, or its entry out of date.
    fn is_vacant(&self, bucket: u32, way: u32, as_of: AsOf) -> bool {
        (self.tags.get(bucket).get() >> (16 * way)) as u16 == 0 || self.is_stale(bucket, way, as_of)
    }

    /// The first vacant way, counted from where the path belongs.
    pub(super) fn vacant_way(&self, bucket: u32, mixed: Mixed, as_of: AsOf) -> Option<u32> {
        (0..WAYS).map(|way| (mixed.first() + way) % WAYS).find(|&way| self.is_vacant(bucket, way, as_of))
    }

    /// The way of a full bucket that a path may take; none half of the times. So paths that are asked for again
    /// get in soon, and too many for a bucket do not drive each other out each time. Any way will do: a path that is
    /// not asked for any more looks like one that is; the latter comes back, the former does not.
    pub(super) fn victim(&self, _: &Namespace) -> Option<u32> {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        // Mixed, or a path that is asked for in the same order again would have the same turn again.
        let mixed = turn.wrapping_mul(0x9e37_79b9) >> 16;
        (self.at_first_sight || mixed.is_multiple_of(2)).then_some(mixed / 2 % WAYS)
    }

    /// Puts a copy of an entry into a way.
    pub(super) fn put(&self, ns: &Namespace, bucket: u32, way: u32, entry: &Entry) {
        self.entry(bucket, way).copy_from(ns, entry);
        self.take(ns, bucket, way, entry.signature().mixed());
    }

    /// A path has its entry in this way.
    pub(super) fn take(&self, _: &Namespace, bucket: u32, way: u32, mixed: Mixed) {
        let word = self.tags.get(bucket);
        let (tags, shift) = (word.get(), 16 * way);
        word.set(tags & !(0xffff << shift) | u64::from(mixed.tag()) << shift);
        if tags >> shift & 0xffff == 0 {
            self.taken.set(self.taken.get() + 1);
        }
    }

    /// Leaves a way empty.
    fn leave(&self, _: &Namespace, bucket: u32, way: u32) {
        let word = self.tags.get(bucket);
        word.set(word.get() & !(0xffff << (16 * way)));
        self.taken.set(self.taken.get().saturating_sub(1));
    }

    /// Makes room when half the ways are taken, or when paths keep driving each other out of full buckets, or of their places.
    pub(super) fn grow_if_full(&self, _: &Namespace) {
        let mask = self.mask.get();
        let full = self.taken.get() > (mask + 1) * WAYS / 2 || self.turn.get() > (mask + 1) / 4;
        let settled = self.resettled.get() == self.outgrown.get();
        let Some(max) = self.mask_max.filter(|&max| mask < max && full && settled) else { return };
        self.outgrown.set(mask + 1);
        self.resettled.set(0);
        let mask = (mask * 4 + 3).min(max);
        // A table of thousands of paths is worth huge pages, if the system has them.
        if mask >= HUGE_BUCKETS {
            self.entries.prefer_huge_pages();
        }
        self.mask.set(mask);
        self.turn.set(0);
    }

    /// Moves the entries of a few buckets to where they belong since it grew. A lookup that adds a path does this, so that no
    /// lookup waits for all of them. Until then they are not found.
    pub(super) fn resettle(&self, ns: &Namespace, as_of: AsOf) {
        let from = self.resettled.get();
        let to = (from + RESETTLED).min(self.outgrown.get());
        for bucket in from..to {
            (0..WAYS).for_each(|way| self.resettle_entry(ns, bucket, way, as_of));
        }
        self.resettled.set(to);
    }

    fn resettle_entry(&self, ns: &Namespace, bucket: u32, way: u32, as_of: AsOf) {
        let entry = self.entry(bucket, way);
        let sign = entry.signature();
        let mixed = sign.mixed();
        let home = mixed.bucket(self.mask.get());
        if (self.tags.get(bucket).get() >> (16 * way)) as u16 == 0 || home == bucket {
            return;
        }
        self.leave(ns, bucket, way);
        if self.is_stale(bucket, way, as_of) || self.own_way(home, mixed, sign).is_some() {
            return;
        }
        if let Some(free) = self.vacant_way(home, mixed, as_of) {
            self.put(ns, home, free, entry);
        }
    }
}
