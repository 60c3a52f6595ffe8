//! The whole-path table: one probe for a path that was looked up before, however deep it is.
//!
//! After Tsai et al., "How to Get More Value From Your File System Directory Cache" (SOSP'15): direct lookup with
//! memoised prefix checks. Differs: the dentries keep nothing, and a change of a directory walks nothing. An entry says where
//! a path led, for whom, from where, and *as of which changes*:
//!
//! - [`Store::path_seq`](crate::dcache::store::Store): every change opens it that can turn a walk aside or forbid it on its way,
//!   as when a directory gets another name, parent, mode, owner or ACL;
//! - the count of the mount table: every mount and unmount opens it;
//! - the count of the dentry that the path led to, or of the directory that lacks the name;
//! - the [stamp](crate::dcache::stamps) of that dentry and its inode.
//!
//! **Claim.** An answer from the table is one that the walk could have given. A walk made the entry while neither global count
//! changed, so every step of it held at one moment. As long as both counts stand, each directory on the way is where it was, and
//! this credential, which never changes, may still search it. Only the last step is left. As long as the stamp stands too, the
//! dentry is the entry of that name and its inode is as it was, or the directory has no more names than it had. A stamp may
//! also move for a change of another slot. Then the dentry's own count says whether the dentry is still the entry of that name,
//! and a missing name is looked up again.
//!
//! **Who writes.** Entries, tags and the size of the table change under the name space lock alone: each writer takes the lock's
//! witness, [`Namespace`], and an entry opens for nothing else ([`Entry::change`]). Lookups *try* that lock and go without if
//! another thread has it. The marks and the count that lets the table sleep are hints: lookups store them without a lock.
//!
//! **Wrap-around.** A count comes round again after 2³¹ changes, which a hostile task can make within an hour. So each count has the
//! table forget everything four times in a round.
//!
//! **Copies.** An entry holds a copy of the inode if that is as most are ([`Inode::is_plain`](crate::dcache::inode::Inode::is_plain)).
//! An answer then needs the memory of the entry alone, and the path leads straight to that.
//!
//! **Files.** [`signature`]: what a path is known by. [`entry`]: what is remembered of it. [`admission`]: which paths are asked
//! for, and which enter. [`ways`]: where entries lie, and how the table grows.
//!
//! **Links.** A path through links enters too, if following them is certain to write nothing and stays allowed as long as no
//! directory changes: on mounts without access times, and not at the end of a path in a sticky directory that everyone may write
//! to. The table marks those links, and a marked link that loses its name opens `path_seq`. An entry of a path that ends in
//! a link answers only lookups that follow links.
//!
//! **`..`** leads to the same place as long as no directory moves. But the directory that it leaves may be removed, since
//! nothing of the rest of the path is in it. So the table marks that directory too.
//!
//! The table does not remember relative paths with `..` or with links to the root, since the root is not in the signature; nor
//! refusals, nor links themselves, nor names that are missing at the end of a link.

mod admission;
mod entry;
mod signature;
#[cfg(test)]
mod tests;
mod ways;

pub(crate) use entry::Remembered;
pub(crate) use signature::Signature;

use crate::base::errno::{Errno, Result};
use crate::dcache::store::{Namespace, Store};
use crate::dcache::{Meta, Seen};
use admission::Doze;
use entry::{Entry, NO_COPY, NO_TIME};
use rcuwalk_sync::{Arena, Counter, Handle, Racy32, Racy64};
use signature::{KEYS, Mixed};

/// How large the whole-path table of a [`Vfs`](crate::Vfs) may get, and what it takes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathTableOptions {
    /// The most paths that are remembered, rounded up to a power of two; 0 for no table. 132 bytes each, which are
    /// committed only when used. 524,288 unless set; 16,777,216 at most.
    pub entries: u32,
    /// Remember a path when it is first looked up, not the second time it is asked for: for tests, and for trees that are small and hot.
    pub at_first_sight: bool,
}

impl PathTableOptions {
    setters! {
        with_entries entries: u32;
        with_at_first_sight at_first_sight: bool;
    }
}

impl Default for PathTableOptions {
    fn default() -> Self {
        PathTableOptions { entries: 1 << 19, at_first_sight: false }
    }
}

impl PathTableOptions {
    /// The same, or fewer entries: so that a table takes so many bytes at most.
    pub(crate) fn within(self, bytes: u64) -> PathTableOptions {
        let most = bytes / (size_of::<Entry>() + size_of::<Racy64>()) as u64;
        // A power of two, since the table takes one.
        let most = most.checked_ilog2().map_or(0, |log| 1 << log.min(24));
        PathTableOptions { entries: self.entries.min(most), ..self }
    }
}

/// What a path led to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Led {
    /// To this dentry.
    To(Seen),
    /// To this dentry, if links are followed.
    Followed(Seen),
    /// To a name that this directory does not have, as of this count of its inode.
    Missing { dir: Seen, entries: u32 },
}

impl Led {
    /// The dentry that tells whether it still does.
    pub(crate) fn seen(self) -> Seen {
        let (Led::To(seen) | Led::Followed(seen) | Led::Missing { dir: seen, .. }) = self;
        seen
    }
}

/// As of which changes something is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AsOf {
    pub(crate) path_seq: u32,
    pub(crate) m_seq: u32,
}

/// No count of an entry that answers is odd.
const NOWHERE: u64 = 1;

/// Buckets that a table starts with, of paths and of marks: pages of them that nobody touched yet cost more than the lookups
/// of a small tree. And from how many on it asks for huge pages.
const FIRST_BUCKETS: u32 = 16;
const FIRST_SEEN: u32 = 256;
const HUGE_BUCKETS: u32 = 1 << 12;

/// Buckets that [`PathTable::resettle`] goes through at once.
const RESETTLED: u32 = 8;

/// Ways of a bucket.
const WAYS: u32 = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct PathTable {
    /// The marks: tags of paths that lookups asked for in vain, the last four of each bucket.
    seen: Arena<Racy64>,
    /// Buckets of `seen` in use less one.
    seen_mask: Racy32,
    /// Tags that were put there since it grew.
    marks: Racy32,
    /// The tags of a bucket's entries; 0 is an empty way.
    tags: Arena<Racy64>,
    /// The ways of bucket `n` are `4 n ..= 4 n + 3`.
    entries: Arena<Entry>,
    keys: Box<[[u64; 2]; KEYS]>,
    /// Buckets in use less one. Grows with what is remembered, so that few paths lie close together.
    mask: Racy32,
    /// Buckets that were in use before it grew, and how many of them [`resettle`](Self::resettle) has gone through.
    outgrown: Racy32,
    resettled: Racy32,
    /// Buckets less one when it is grown; `None` for no table.
    mask_max: Option<u32>,
    /// Ways that are taken.
    taken: Racy32,
    /// Paths that found their bucket full since it grew; in a small table, also those that found their place taken.
    turn: Racy32,
    at_first_sight: bool,
    doze: Doze,
    remembered: Counter,
}

impl PathTable {
    pub(crate) fn new(options: PathTableOptions, mut random: impl FnMut() -> u64) -> Result<PathTable> {
        let entries = options.entries.min(1 << 24).next_power_of_two().max(2 * WAYS);
        let buckets = entries / WAYS;
        let on = options.entries != 0;
        Ok(PathTable {
            seen: Arena::new(if on { buckets } else { 1 })?,
            seen_mask: Racy32::new((buckets - 1).min(FIRST_SEEN - 1)),
            marks: Racy32::default(),
            tags: Arena::new(if on { buckets } else { 1 })?,
            entries: Arena::new(if on { entries } else { 1 })?,
            keys: Box::new(std::array::from_fn(|_| [random(), random()])),
            mask: Racy32::new((buckets - 1).min(FIRST_BUCKETS - 1)),
            outgrown: Racy32::default(),
            resettled: Racy32::default(),
            mask_max: on.then_some(buckets - 1),
            taken: Racy32::default(),
            turn: Racy32::default(),
            at_first_sight: options.at_first_sight,
            doze: Doze::new(options.at_first_sight),
            remembered: Counter::default(),
        })
    }

    /// The most memory that it may come to take; bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let of = |slots: u32, size: usize| (u64::from(slots) + 1) * size as u64;
        of(self.tags.capacity(), 2 * size_of::<Racy64>()) + of(self.entries.capacity(), size_of::<Entry>())
    }

    /// Paths remembered since the table was made.
    pub(crate) fn remembered(&self) -> u64 {
        self.remembered.get()
    }

    /// Where the path led, as of these changes. What is not where it belongs may be `promoted`.
    #[inline(always)]
    pub(crate) fn find<'a>(
        &'a self,
        sign: Signature,
        as_of: AsOf,
        promoted: impl FnOnce() -> bool,
    ) -> Option<Remembered<'a>> {
        let mixed = sign.mixed();
        let bucket = mixed.bucket(self.mask.get());
        // Most are where they belong, which no tag has to say; the others need not wait for the tags as well.
        self.tags.view().prefetch(bucket, 0);
        let way = bucket * WAYS + mixed.first();
        // The copy of the inode comes with the line that says whether it is asked for, not after it.
        self.entries.view().prefetch(way, std::mem::offset_of!(Entry, inode));
        let entry = self.entries.get(way);
        let seq = entry.begin();
        if entry.answers(seq, sign, as_of) {
            self.answered();
            return Some(Remembered { entry, seq });
        }
        let mut found = self.find_displaced(bucket, mixed, sign, as_of);
        if found != NOWHERE && promoted() {
            found = self.find_displaced(bucket, mixed, sign, as_of);
        }
        let (way, seq) = ((found >> 32) as u32, found as u32);
        (found != NOWHERE).then(|| Remembered { entry: self.entries.get(way), seq })
    }

    /// [`find`](Self::find) in the ways that the tags tell: the way, and below it the count of its entry. One word, so that
    /// nothing on the hot path passes through memory.
    #[inline(never)]
    fn find_displaced(&self, bucket: u32, mixed: Mixed, sign: Signature, as_of: AsOf) -> u64 {
        let mut ways = Self::among(self.tags.get(bucket).get(), mixed.tag());
        while ways != 0 {
            let way = bucket * WAYS + ways.trailing_zeros() / 16;
            let entry = self.entries.get(way);
            let seq = entry.begin();
            if entry.answers(seq, sign, as_of) {
                self.answered();
                return u64::from(way) << 32 | u64::from(seq);
            }
            ways &= ways - 1;
        }
        NOWHERE
    }

    /// Which of the four tags in `word` are `tag`, lowest first, as bits 16 apart; bits above a true one may be false.
    #[inline(always)]
    fn among(word: u64, tag: u16) -> u64 {
        const ONES: u64 = 0x0001_0001_0001_0001;
        let differ = word ^ (u64::from(tag) * ONES);
        differ.wrapping_sub(ONES) & !differ & (ONES << 15)
    }

    /// A path led there, as of these changes, and still does: the caller keeps everything from changing.
    pub(crate) fn enter(
        &self,
        store: &Store,
        ns: &Namespace,
        sign: Signature,
        as_of: AsOf,
        mnt: Handle,
        led: Led,
    ) {
        self.resettle(ns, as_of);
        let mixed = sign.mixed();
        let bucket = mixed.bucket(self.mask.get());
        let way = match self.own_way(bucket, mixed, sign) {
            Some(way) => {
                if self.is_stale(bucket, way, as_of) {
                    self.remembered.add(1);
                }
                way
            }
            None => {
                let free = self.vacant_way(bucket, mixed, as_of).or_else(|| self.victim(ns));
                let Some(way) = free else { return self.grow_if_full(ns) };
                self.remembered.add(1);
                way
            }
        };
        let home = mixed.first();
        self.make_room(ns, bucket, home, way, as_of);
        let entry = self.entry(bucket, home);
        let seen = led.seen();
        let inode = store.d_inode(seen.dentry);
        {
            let _change = entry.change(ns);
            entry.sign.iter().zip(sign.words()).for_each(|(to, word)| to.set(word));
            entry.path_seq.set(as_of.path_seq);
            entry.m_seq.set(as_of.m_seq);
            entry.mnt.set(mnt);
            entry.dentry.set(seen.dentry);
            entry.dentry_seq.set(seen.seq);
            entry.stamp.set(store.stamps.of(seen.dentry));
            match led {
                Led::Missing { .. } => entry.meta.set(Meta::NONE.0),
                Led::To(_) | Led::Followed(_) => {
                    let followed = matches!(led, Led::Followed(_));
                    entry.meta.set(seen.meta.with_followed(followed).0);
                    let inode = store.inode(inode);
                    if std::ptr::eq(inode, store.inode(seen.dentry)) && inode.is_plain() {
                        entry.inode.copy_from(inode);
                    } else {
                        entry.stamp.set(NO_COPY);
                    }
                }
            }
        }
        self.take(ns, bucket, home, mixed);
        self.grow_if_full(ns);
    }

    /// Puts a path where it belongs, if it is in another way of its bucket.
    pub(crate) fn promote(&self, ns: &Namespace, sign: Signature, as_of: AsOf) {
        let mixed = sign.mixed();
        let bucket = mixed.bucket(self.mask.get());
        let home = mixed.first();
        let Some(way) = self.own_way(bucket, mixed, sign).filter(|&way| way != home) else { return };
        let known = Entry::default();
        known.copy_from(ns, self.entry(bucket, way));
        self.make_room(ns, bucket, home, way, as_of);
        self.put(ns, bucket, home, &known);
        self.grow_if_full(ns);
    }

    /// Forgets everything, if a count that entries hold has come to `count` and is about to be in one of its four quarters
    /// of a round for the first time.
    #[inline]
    pub(crate) fn forget_round(&self, ns: &Namespace, count: u32) {
        if count.is_multiple_of(1 << 30) && self.mask_max.is_some() {
            self.forget(ns);
        }
    }

    #[cold]
    #[inline(never)]
    fn forget(&self, ns: &Namespace) {
        for bucket in 0..=self.mask.get() {
            self.tags.get(bucket).set(0);
            // Without asking the tags: an entry from before the table grew may be where it is looked for.
            let entries = (0..WAYS).map(|way| self.entry(bucket, way));
            for entry in entries.filter(|entry| entry.is_used()) {
                let _change = entry.change(ns);
                entry.path_seq.set(NO_TIME);
            }
        }
        self.taken.set(0);
    }
}

/// The error of a name that is remembered as missing.
pub(crate) const MISSING: Errno = Errno::ENOENT;
