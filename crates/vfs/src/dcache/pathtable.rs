//! The whole-path table: one probe for a path that was looked up before, however deep it is.
//!
//! After Tsai et al., "How to Get More Value From Your File System Directory Cache" (SOSP'15): direct lookup with
//! memoised prefix checks. Differs: nothing is kept in the dentries, and nothing is walked when a directory changes. An
//! entry says where a path led, for whom, from where, and *as of which changes*:
//!
//! - [`Store::path_seq`](crate::dcache::store::Store), which every change opens that can turn a walk aside or forbid it on its
//!   way: a directory gets another name or parent, another mode, owner or ACL;
//! - the count of the mount table, which every mount and unmount opens;
//! - the count of the dentry it led to, or for a missing name of the directory;
//! - the [stamp](crate::dcache::stamps) of that dentry, its inode included.
//!
//! **Claim.** An answer from the table is one that the walk could have given. The entry was made by a walk during which
//! neither global count changed, so that every step of it held at one moment; as long as both counts stand, each of its
//! directories is where it was and may still be searched by this credential, which never changes. What is left of the
//! walk is its last step. As long as the stamp stands too, the dentry is the entry of that name and its inode is as it was,
//! or the directory has no more names than it had. If the stamp moved, which a change of something else may have done, the
//! dentry's own count says whether it is still the entry of that name; a missing name is looked for again.
//!
//! **Counts come round again**, after 2³¹ changes, which somebody can make within the hour. So nothing is remembered that
//! long: each of these counts has everything forgotten four times in a round.
//!
//! **An entry holds a copy of the inode** where that is as most are ([`Inode::is_plain`]). So an answer takes the memory of
//! the entry, which the path alone leads to, and nothing that is found only by reading it.
//!
//! **A path is known by a signature** of 256 bits over credential, start, length and bytes: two sums of NH with Toeplitz
//! keys, as in UMAC, of words of 64 bits, keyed at random for each table. Two different questions have the same signature
//! with a chance of 2⁻¹²⁸ at most, whatever they are.
//!
//! **Admission.** A path enters at the second time it is asked for: the first leaves 16 bits in `seen`, which grows without
//! forgetting, so that a path is known again after all others of a large tree were asked for. So a scan of a tree costs bits,
//! and evicts little. Where nearly every path is new, all but a sample of them pass ([`Doze`]).
//!
//! **Place.** A path has four places, and belongs into one of them, where it is looked for first: whoever enters takes that
//! one, and what was there moves to a vacant place, or to that of any of the others ([`PathTable::victim`]).
//!
//! **Links.** A path that leads through links enters too, if following them is certain to write nothing and to be allowed as
//! long as no directory changes: on mounts without access times, and not at the end of a path in a sticky directory that
//! anybody may write to. The links are marked, and a marked one that loses its name opens `path_seq`. An entry of a path that
//! ends in a link answers who follows links only.
//!
//! **`..`** leads where it leads as long as no directory moves; but the one that it leaves may be removed, as nothing of the
//! rest is in it. So that one is marked too.
//!
//! Not remembered: relative paths with `..` or with links to the root, since the root is not in the signature; refusals; links
//! themselves; and what is missing behind a mount or where a link at the end leads.

use crate::base::errno::{Errno, Result};
use crate::dcache::inode::Inode;
use crate::dcache::store::{Namespace, Store};
use crate::dcache::{Meta, Seen};
use crate::mount::Path;
use rcuwalk_sync::{Arena, Counter, Handle, MODELLED, Racy32, Racy64, SeqCount, SeqRead, type_stable};

/// Longer paths are not remembered. Bytes.
const PATH_LEN_MAX: usize = 1024;

/// Sums in a signature, each of 128 bits.
const STREAMS: usize = 2;

/// Bits of a credential's number; the length of the path stands above them.
const CRED_BITS: u32 = 52;
const _: () = assert!(PATH_LEN_MAX < 1 << (64 - CRED_BITS));

/// Pairs of keys: one for each sixteen bytes and one for what stands before them, and as many more as there are streams
/// less one.
const KEYS: usize = 128;
const _: () = assert!(PATH_LEN_MAX / 16 + 1 + STREAMS <= KEYS);

/// How large the whole-path table of a [`Vfs`](crate::Vfs) may get, and what it takes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathTableOptions {
    /// The most paths that are remembered, rounded up to a power of two; 0 for no table. 132 bytes each, which are
    /// committed only when used. 524,288 unless set; 16,777,216 at most.
    pub entries: u32,
    /// Remember a path when it is first looked up, not the second time it is asked for: for tests, and for trees that are small and hot.
    pub at_first_sight: bool,
}

impl Default for PathTableOptions {
    fn default() -> Self {
        PathTableOptions { entries: 1 << 19, at_first_sight: false }
    }
}

type_stable! {
    /// Where one path led: a cache line, and the next one with a copy of the inode. Written under `seq` and the name space
    /// lock.
    struct Entry {
        seq: SeqCount,
        path_seq: Racy32,
        sign: [Racy64; 4],
        m_seq: Racy32,
        mnt: Racy32,
        /// What the path led to, or the directory that its last name is missing in.
        dentry: Racy32,
        dentry_seq: Racy32,
        /// The dentry's [`Meta`]; that of none for a missing name.
        meta: Racy32,
        /// The stamp of the dentry, [`NO_COPY`] if there is no copy.
        stamp: Racy32,
        /// Its own count is never opened.
        inode: Inode,
    }
}

const _: () = assert!(
    MODELLED || size_of::<Entry>() == 128 && std::mem::offset_of!(Entry, inode) == 64,
    "an answer is one pair of cache lines, and the first one tells whether it is one"
);

/// No stamp is odd.
const NO_COPY: u32 = 1;

/// No count of changes is odd when somebody asks.
const NO_TIME: u32 = 1;

/// No count of an entry that answers is odd.
const NOWHERE: u64 = 1;

impl Entry {
    /// Whether this is the entry of that signature, and of these changes, since `seq`.
    #[inline(always)]
    fn answers(&self, seq: u32, sign: Signature, as_of: AsOf) -> bool {
        let [a, b, c, d] = sign.words();
        let differ = (self.sign[0].get() ^ a)
            | (self.sign[1].get() ^ b)
            | (self.sign[2].get() ^ c)
            | (self.sign[3].get() ^ d)
            | u64::from(self.path_seq.get() ^ as_of.path_seq)
            | u64::from(self.m_seq.get() ^ as_of.m_seq);
        differ == 0 && !self.seq.retry(seq)
    }

    fn signature(&self) -> Signature {
        let [a, b, c, d] = self.sign.each_ref().map(Racy64::get);
        Signature(u128::from(a) | u128::from(b) << 64, u128::from(c) | u128::from(d) << 64)
    }

    /// Becomes another one, which does not change meanwhile.
    fn copy_from(&self, other: &Entry) {
        let _change = self.seq.write();
        self.sign.iter().zip(&other.sign).for_each(|(to, from)| to.set(from.get()));
        self.path_seq.set(other.path_seq.get());
        self.m_seq.set(other.m_seq.get());
        self.mnt.set(other.mnt.get());
        self.dentry.set(other.dentry.get());
        self.dentry_seq.set(other.dentry_seq.get());
        self.meta.set(other.meta.get());
        self.stamp.set(other.stamp.get());
        self.inode.copy_from(&other.inode);
    }
}

/// What the table knows of a path. Nothing of it counts before [`read`](Self::read) says so.
#[derive(Clone, Copy)]
pub(crate) struct Remembered<'a> {
    entry: &'a Entry,
    seq: u32,
}

impl<'a> Remembered<'a> {
    #[inline(always)]
    pub(crate) fn mnt(self) -> Handle {
        self.entry.mnt.get()
    }

    /// Where the path led; [`Seen::is_missing`] if only to a directory without its last name.
    #[inline(always)]
    pub(crate) fn seen(self) -> Seen {
        let Entry { dentry, dentry_seq, meta, .. } = self.entry;
        Seen { dentry: dentry.get(), seq: dentry_seq.get(), meta: Meta(meta.get()) }
    }

    /// What is known is so as long as this is the stamp of that dentry.
    #[inline(always)]
    pub(crate) fn stamp(self) -> u32 {
        self.entry.stamp.get()
    }

    /// Whether there is a copy of the inode.
    pub(crate) fn has_copy(self) -> bool {
        self.stamp() != NO_COPY
    }

    /// The copy.
    #[inline(always)]
    pub(crate) fn inode(self) -> &'a Inode {
        &self.entry.inode
    }

    /// What vouches for all of this.
    #[inline(always)]
    pub(crate) fn read(self) -> SeqRead<'a> {
        self.entry.seq.since(self.seq)
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

/// A path, asked for by a credential from a place. Two scalars: it travels in registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signature(u128, u128);

/// A signature, mixed: which bucket of four entries it is in, which of them it takes first, and its tag.
#[derive(Debug, Clone, Copy)]
struct Mixed(u64);

impl Mixed {
    #[inline(always)]
    fn bucket(self, mask: u32) -> u32 {
        (self.0 >> 32) as u32 & mask
    }

    #[inline(always)]
    fn first(self) -> u32 {
        (self.0 >> 62) as u32
    }

    /// Never zero, which stands for none.
    #[inline(always)]
    fn tag(self) -> u16 {
        (self.0 >> 16) as u16 | 1
    }
}

impl Signature {
    #[inline(always)]
    fn words(self) -> [u64; 4] {
        [self.0 as u64, (self.0 >> 64) as u64, self.1 as u64, (self.1 >> 64) as u64]
    }

    /// Sums of products are universal, but not well mixed.
    #[inline(always)]
    fn mixed(self) -> Mixed {
        let [low, high, ..] = self.words();
        Mixed((low ^ high).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

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
    /// The tags of paths that were asked for lately, the last four of each bucket.
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

/// Whether asking is worth it. A table that knows nothing yet is drowsy: each task asks for one path in eight, until one that
/// was asked for before wakes it. Then all are asked for, as long as one in some 256 was. After hundreds that were not, the table
/// sleeps, and one in sixty-four is asked for. Awake, an answer writes nothing.
#[derive(Debug)]
struct Doze {
    /// Paths that were asked for in vain, up to [`ASLEEP`](Doze::ASLEEP), less those that were not.
    unknown: Racy32,
}

impl Doze {
    const DROWSY: u32 = 1024;
    const ASLEEP: u32 = Self::DROWSY + 256;
    /// For how many that are new one pays that is not.
    const CREDIT: u32 = 256;

    fn new(at_first_sight: bool) -> Doze {
        Doze { unknown: Racy32::new(if at_first_sight { 0 } else { Self::DROWSY }) }
    }

    /// Whether a task that let `passed` lookups pass so far lets this one pass.
    #[inline(always)]
    fn passes(&self, passed: &Racy32) -> bool {
        let unknown = self.unknown.get();
        unknown >= Self::DROWSY && !one_in(if unknown < Self::ASLEEP { 8 } else { 64 }, passed)
    }

    fn is_awake(&self) -> bool {
        self.unknown.get() < Self::DROWSY
    }

    fn unknown(&self, paths: u32) {
        let unknown = self.unknown.get();
        if unknown < Self::ASLEEP {
            self.unknown.set(unknown + paths);
        }
    }

    #[cold]
    #[inline(never)]
    fn known(&self) {
        let unknown = self.unknown.get();
        if unknown != 0 {
            self.unknown.set(unknown.min(Self::DROWSY).saturating_sub(Self::CREDIT));
        }
    }
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

    /// Paths remembered since the table was made.
    pub(crate) fn remembered(&self) -> u64 {
        self.remembered.get()
    }

    /// Whether a task is not to ask now. `passed` is its own count of the lookups that it let pass while the table slept.
    #[inline(always)]
    pub(crate) fn sleeps(&self, passed: &Racy32) -> bool {
        self.doze.passes(passed)
    }

    /// Whether a path that it was not asked for is to be marked: those that lead to one dentry in 64, so that they are the
    /// same ones when a whole tree is asked for again.
    #[inline(always)]
    pub(crate) fn samples(&self, dentry: Handle) -> bool {
        dentry.wrapping_mul(0x9e37_79b9) >> 26 == 0
    }

    /// Notes that a task asked for a path that is never remembered, like one that is refused. Awake, one in eight is noted, so
    /// that threads which ask for nothing else hardly write.
    #[cold]
    #[inline(never)]
    pub(crate) fn never(&self, passed: &Racy32) {
        let awake = self.doze.is_awake();
        if !self.at_first_sight && (!awake || one_in(8, passed)) {
            self.doze.unknown(if awake { 8 } else { 1 });
        }
    }

    /// Notes that it was asked for a path that it remembers.
    #[inline(always)]
    fn answered(&self) {
        if self.doze.unknown.get() >= Doze::DROWSY {
            self.doze.known();
        }
    }

    /// Signs a question, if it is one that the table answers.
    #[inline(always)]
    pub(crate) fn sign(&self, cred: u64, start: Path, path: &[u8]) -> Option<Signature> {
        let known = cred.wrapping_sub(1) < 1 << CRED_BITS;
        if self.mask_max.is_none() || path.len() > PATH_LEN_MAX || !known {
            return None;
        }
        Some(self.signature(cred, start, path))
    }

    #[inline(always)]
    fn signature(&self, cred: u64, start: Path, path: &[u8]) -> Signature {
        let mut sums = [0u128; STREAMS];
        let mut absorb = |[first, second]: [u64; 2], keys: &[[u64; 2]; STREAMS]| {
            for (sum, [one, two]) in sums.iter_mut().zip(keys) {
                let product = u128::from(first.wrapping_add(*one)) * u128::from(second.wrapping_add(*two));
                *sum = sum.wrapping_add(product);
            }
        };
        // Questions of different lengths differ in the first word.
        let head = cred | (path.len() as u64) << CRED_BITS;
        let mut keys = self.keys.array_windows();
        let [first, last] = ends(path);
        for pair in [[head, u64::from(start.mnt) << 32 | u64::from(start.dentry)], [first, last]] {
            if let Some(keys) = keys.next() {
                absorb(pair, keys);
            }
        }
        // Without the last sixteen bytes, or fewer, which `ends` has.
        let (pairs, _) = path[..path.len().saturating_sub(1)].as_chunks::<16>();
        for (pair, keys) in pairs.iter().zip(keys) {
            let pair = u128::from_le_bytes(*pair);
            absorb([pair as u64, (pair >> 64) as u64], keys);
        }
        let [a, b] = sums;
        Signature(a, b)
    }

    /// Which of the four tags in `word` are `tag`, lowest first, as bits 16 apart; bits above a true one may be false.
    #[inline(always)]
    fn among(word: u64, tag: u16) -> u64 {
        const ONES: u64 = 0x0001_0001_0001_0001;
        let differ = word ^ (u64::from(tag) * ONES);
        differ.wrapping_sub(ONES) & !differ & (ONES << 15)
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
        let seq = entry.seq.begin();
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
            let seq = entry.seq.begin();
            if entry.answers(seq, sign, as_of) {
                self.answered();
                return u64::from(way) << 32 | u64::from(seq);
            }
            ways &= ways - 1;
        }
        NOWHERE
    }

    #[inline(always)]
    fn entry(&self, bucket: u32, way: u32) -> &Entry {
        self.entries.get(bucket * WAYS + way)
    }

    /// Whether a task that found an old copy has it renewed: one in eight does, so that what changes all the time is not
    /// copied all the time.
    #[inline(always)]
    pub(crate) fn renews(&self, passed: &Racy32) -> bool {
        self.at_first_sight || one_in(8, passed)
    }

    /// Whether a task that found a path where it does not belong has it put there, which takes the place from another one:
    /// one in 64 does, so that mostly those belong somewhere that are asked for often.
    #[inline(always)]
    pub(crate) fn promotes(&self, passed: &Racy32) -> bool {
        one_in(64, passed)
    }

    /// Whether a path that the table did not know is to enter it now.
    #[cold]
    #[inline(never)]
    pub(crate) fn admits(&self, sign: Signature) -> bool {
        if self.at_first_sight {
            return true;
        }
        let mixed = sign.mixed();
        let mask = self.seen_mask.get();
        let word = self.seen.get(mixed.bucket(mask));
        let seen = word.get();
        if Self::among(seen, mixed.tag()) != 0 {
            self.doze.known();
            return true;
        }
        // Written by whoever comes; some get lost.
        word.set(seen << 16 | u64::from(mixed.tag()));
        self.doze.unknown(1);
        let marks = self.marks.get();
        self.marks.set(marks + 1);
        // Marks of a sample need little room, and what they are in stays in the cache.
        if marks / 2 > mask && (mask < HUGE_BUCKETS || self.doze.is_awake()) {
            self.spread_marks(mask);
        }
        false
    }

    /// Gives the marks more room. A bucket has those of four, of which none is lost.
    fn spread_marks(&self, mask: u32) {
        let wider = (mask * 4 + 3).min(self.mask_max.unwrap_or(mask));
        for bucket in mask + 1..=wider {
            self.seen.get(bucket).set(self.seen.get(bucket & mask).get());
        }
        self.seen_mask.set(wider);
        self.marks.set(0);
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
        self.resettle(as_of);
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
                let free = self.vacant_way(bucket, mixed, as_of).or_else(|| self.victim());
                let Some(way) = free else { return self.grow_if_full(ns) };
                self.remembered.add(1);
                way
            }
        };
        let home = mixed.first();
        self.make_room(bucket, home, way, as_of);
        let entry = self.entry(bucket, home);
        let seen = led.seen();
        let inode = store.d_inode(seen.dentry);
        {
            let _change = entry.seq.write();
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
        self.take(bucket, home, mixed);
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
    fn forget(&self, _: &Namespace) {
        for bucket in 0..=self.mask.get() {
            self.tags.get(bucket).set(0);
            // Without asking the tags: an entry from before the table grew may be where it is looked for.
            let entries = (0..WAYS).map(|way| self.entry(bucket, way));
            for entry in entries.filter(|entry| entry.seq.begin() != 0) {
                let _change = entry.seq.write();
                entry.path_seq.set(NO_TIME);
            }
        }
        self.taken.set(0);
    }

    /// Puts a path where it belongs, if it is in another way of its bucket.
    pub(crate) fn promote(&self, ns: &Namespace, sign: Signature, as_of: AsOf) {
        let mixed = sign.mixed();
        let bucket = mixed.bucket(self.mask.get());
        let home = mixed.first();
        let Some(way) = self.own_way(bucket, mixed, sign).filter(|&way| way != home) else { return };
        let known = Entry::default();
        known.copy_from(self.entry(bucket, way));
        self.make_room(bucket, home, way, as_of);
        self.put(bucket, home, &known);
        self.grow_if_full(ns);
    }

    /// Has what is in one way take another, which is given up, so that a path can have its place: it is found sooner there.
    fn make_room(&self, bucket: u32, home: u32, way: u32, as_of: AsOf) {
        if way == home {
            return;
        }
        if self.is_vacant(bucket, home, as_of) {
            return self.leave(bucket, way);
        }
        self.put(bucket, way, self.entry(bucket, home));
        // Two that are asked for all the time keep changing places, which a small table spares them by growing.
        if self.mask.get() < HUGE_BUCKETS {
            self.turn.set(self.turn.get().wrapping_add(1));
        }
    }

    /// The way that a path has already.
    fn own_way(&self, bucket: u32, mixed: Mixed, sign: Signature) -> Option<u32> {
        let tags = self.tags.get(bucket).get();
        (0..WAYS).find(|way| {
            let words = self.entry(bucket, *way).sign.iter().map(Racy64::get);
            (tags >> (16 * way)) as u16 == mixed.tag() && words.eq(sign.words())
        })
    }

    /// Whether what is in this way was so before these changes.
    fn is_stale(&self, bucket: u32, way: u32, as_of: AsOf) -> bool {
        let entry = self.entry(bucket, way);
        entry.path_seq.get() != as_of.path_seq || entry.m_seq.get() != as_of.m_seq
    }

    /// Whether this way is empty, or its entry out of date.
    fn is_vacant(&self, bucket: u32, way: u32, as_of: AsOf) -> bool {
        (self.tags.get(bucket).get() >> (16 * way)) as u16 == 0 || self.is_stale(bucket, way, as_of)
    }

    /// The first vacant way, counted from where the path belongs.
    fn vacant_way(&self, bucket: u32, mixed: Mixed, as_of: AsOf) -> Option<u32> {
        (0..WAYS).map(|way| (mixed.first() + way) % WAYS).find(|&way| self.is_vacant(bucket, way, as_of))
    }

    /// The way of a full bucket that a path may take, whoever asks; none half of the times. So paths that are asked for again
    /// get in soon, and too many for a bucket do not drive each other out each time. Any way, as what nobody asks for any
    /// more cannot be told from what is known and just not forgotten: the one comes back, the other does not.
    fn victim(&self) -> Option<u32> {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        // Mixed, or a path that is asked for in the same order again would have the same turn again.
        let mixed = turn.wrapping_mul(0x9e37_79b9) >> 16;
        (self.at_first_sight || mixed.is_multiple_of(2)).then_some(mixed / 2 % WAYS)
    }

    /// Puts a copy of an entry into a way.
    fn put(&self, bucket: u32, way: u32, entry: &Entry) {
        self.entry(bucket, way).copy_from(entry);
        self.take(bucket, way, entry.signature().mixed());
    }

    /// A path has its entry in this way.
    fn take(&self, bucket: u32, way: u32, mixed: Mixed) {
        let word = self.tags.get(bucket);
        let (tags, shift) = (word.get(), 16 * way);
        word.set(tags & !(0xffff << shift) | u64::from(mixed.tag()) << shift);
        if tags >> shift & 0xffff == 0 {
            self.taken.set(self.taken.get() + 1);
        }
    }

    /// Leaves a way empty.
    fn leave(&self, bucket: u32, way: u32) {
        let word = self.tags.get(bucket);
        word.set(word.get() & !(0xffff << (16 * way)));
        self.taken.set(self.taken.get().saturating_sub(1));
    }

    /// Makes room when half the ways are taken, or when paths keep driving each other out of full buckets, or of their places.
    fn grow_if_full(&self, _: &Namespace) {
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

    /// Moves the entries of a few buckets to where they belong since it grew: whoever enters one does, so that nobody waits for
    /// all of them. Until then they are not found.
    fn resettle(&self, as_of: AsOf) {
        let from = self.resettled.get();
        let to = (from + RESETTLED).min(self.outgrown.get());
        for bucket in from..to {
            (0..WAYS).for_each(|way| self.resettle_entry(bucket, way, as_of));
        }
        self.resettled.set(to);
    }

    fn resettle_entry(&self, bucket: u32, way: u32, as_of: AsOf) {
        let entry = self.entry(bucket, way);
        let sign = entry.signature();
        let mixed = sign.mixed();
        let home = mixed.bucket(self.mask.get());
        if (self.tags.get(bucket).get() >> (16 * way)) as u16 == 0 || home == bucket {
            return;
        }
        self.leave(bucket, way);
        if self.is_stale(bucket, way, as_of) || self.own_way(home, mixed, sign).is_some() {
            return;
        }
        if let Some(free) = self.vacant_way(home, mixed, as_of) {
            self.put(home, free, entry);
        }
    }
}

/// True one time in `n`, a power of two, by this count.
#[inline(always)]
fn one_in(n: u32, count: &Racy32) -> bool {
    let so_far = count.get();
    count.set(so_far.wrapping_add(1));
    so_far.is_multiple_of(n)
}

/// The last sixteen bytes, or of a shorter path all bytes, some of them twice: different for different paths of one
/// length.
#[inline(always)]
fn ends(path: &[u8]) -> [u64; 2] {
    if let Some(last) = path.last_chunk::<16>() {
        let last = u128::from_le_bytes(*last);
        return [last as u64, (last >> 64) as u64];
    }
    if let (Some(first), Some(last)) = (path.first_chunk(), path.last_chunk()) {
        return [u64::from_le_bytes(*first), u64::from_le_bytes(*last)];
    }
    if let (Some(first), Some(last)) = (path.first_chunk(), path.last_chunk()) {
        return [u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into()];
    }
    [path.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)), 0]
}

/// The error of a name that is remembered as missing.
pub(crate) const MISSING: Errno = Errno::ENOENT;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::uapi::{S_IFDIR, S_IFREG};
    use crate::dcache::store::Capacity;
    use crate::mount::MountTable;

    fn table(entries: u32, at_first_sight: bool) -> PathTable {
        let mut state = 1u64;
        PathTable::new(PathTableOptions { entries, at_first_sight }, || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state ^ state >> 29
        })
        .unwrap()
    }

    const START: Path = Path { mnt: 1, dentry: 2 };
    const NOW: AsOf = AsOf { path_seq: 2, m_seq: 4 };

    fn store() -> Store {
        let (_, mounts) = MountTable::new().unwrap();
        Store::new(Capacity { objects: 64, blob_words: 64 }, 1, mounts, table(64, false)).unwrap()
    }

    fn to(dentry: Handle) -> Led {
        Led::To(Seen { dentry, seq: 12, meta: Meta::new(1, S_IFREG) })
    }

    impl PathTable {
        /// What a task asks, if it does.
        fn asked(&self, passed: &Racy32, path: &[u8]) -> Option<Signature> {
            self.sign(1, START, path).filter(|_| !self.sleeps(passed))
        }

        /// A path was asked for in vain, and led there.
        fn walked(&self, sign: Signature, led: Led) {
            if self.admits(sign) {
                let store = store();
                self.enter(&store, &store.lock(), sign, NOW, 9, led);
            }
        }

        /// Where it leads: to what, as of when; and whether to anything.
        fn known(&self, sign: Signature, as_of: AsOf) -> Option<(Handle, u32, bool)> {
            let found = self.find(sign, as_of, || false)?;
            assert!(found.mnt() == 9 && !found.read().retry());
            Some((found.seen().dentry, found.seen().seq, !found.seen().is_missing()))
        }
    }

    #[test]
    fn whatever_is_asked_counts_in_the_signature() {
        let table = table(64, false);
        let sign = |cred, mnt, dentry, path: &[u8]| table.signature(cred, Path { mnt, dentry }, path);
        let differ = |a: Signature, b: Signature| a.0 != b.0 && a.1 != b.1;
        let base = sign(1, 2, 3, b"/usr/include/stdio.h");
        let others = [
            sign(2, 2, 3, b"/usr/include/stdio.h"),
            sign(1, 3, 3, b"/usr/include/stdio.h"),
            sign(1, 2, 4, b"/usr/include/stdio.h"),
            sign(1, 2, 3, b"/usr/include/stdio.h\0"),
            sign(1, 2, 3, b"/usr/include/stdio"),
        ];
        for other in others {
            assert!(differ(base, other), "each sum differs");
        }
        for len in 0..40 {
            let path = vec![b'a'; len];
            let base = sign(1, 2, 3, &path);
            for at in 0..len {
                let mut other = path.clone();
                other[at] = b'b';
                assert!(differ(base, sign(1, 2, 3, &other)), "byte {at} of {len}");
            }
        }
    }

    #[test]
    fn a_path_enters_at_second_sight_and_leaves_with_the_changes_it_is_of() {
        let table = table(64, false);
        let sign = table.sign(1, START, b"/a/b").unwrap();
        assert_eq!(table.known(sign, NOW), None);
        table.walked(sign, to(7));
        assert_eq!((table.known(sign, NOW), table.remembered()), (None, 0), "seen is not known");
        table.walked(sign, to(7));
        assert_eq!((table.known(sign, NOW), table.remembered()), (Some((7, 12, true)), 1));
        assert_eq!(table.known(sign, AsOf { path_seq: 4, ..NOW }), None);
        assert_eq!(table.known(sign, AsOf { m_seq: 6, ..NOW }), None);
        let dir = Seen { dentry: 3, seq: 2, meta: Meta::new(1, S_IFDIR) };
        table.walked(sign, Led::Missing { dir, entries: 0 });
        assert_eq!(table.known(sign, NOW), Some((3, 2, false)), "the entry is replaced");
        assert_eq!(table.taken.get(), 1);
    }

    #[test]
    fn nothing_is_remembered_until_a_count_comes_round_again() {
        for change in [
            |store: &Store, ns: &Namespace| drop(store.open_paths(ns)),
            |store: &Store, ns: &Namespace| drop(store.open_dentry(ns, 5)),
        ] {
            let mut store = store();
            store.path_seq = SeqCount::new((1 << 30) - 4);
            store.stamps.set(5, (1 << 30) - 4);
            let sign = store.paths.sign(1, START, b"/a/b").unwrap();
            let ns = store.lock();
            store.paths.enter(&store, &ns, sign, NOW, 9, to(7));
            change(&store, &ns);
            assert!(store.paths.find(sign, NOW, || false).is_some(), "one change before");
            change(&store, &ns);
            assert!(store.paths.find(sign, NOW, || false).is_none());
            change(&store, &ns);
            store.paths.enter(&store, &ns, sign, NOW, 9, to(7));
            assert!(store.paths.find(sign, NOW, || false).is_some(), "and on it goes");
        }
    }

    #[test]
    fn a_path_that_is_told_again_is_put_where_it_belongs() {
        let table = table(1 << 16, true);
        let sign = |i: u32| table.signature(1, START, format!("/{i}").as_bytes());
        let place = |sign: Signature| (sign.mixed().bucket(table.mask.get()), sign.mixed().first());
        let one = sign(0);
        let other = (1..).map(sign).find(|&other| place(other) == place(one)).unwrap();
        let in_place = |sign| {
            let mut in_place = true;
            table
                .find(sign, NOW, || {
                    in_place = false;
                    false
                })
                .map(|_| in_place)
        };
        [one, other].iter().for_each(|&sign| table.walked(sign, to(7)));
        assert_eq!(
            [one, other].map(in_place),
            [Some(false), Some(true)],
            "both belong where the later one is"
        );
        let store = store();
        let ns = store.lock();
        table.promote(&ns, one, NOW);
        assert_eq!([one, other].map(in_place), [Some(true), Some(false)], "they changed places");
        assert_eq!((table.taken.get(), table.remembered()), (2, 2));
        for _ in 0..100 {
            [one, other].iter().for_each(|&sign| table.promote(&ns, sign, NOW));
        }
        [one, other].iter().for_each(|&sign| table.walked(sign, to(7)));
        assert_eq!([one, other].map(in_place), [Some(true); 2], "a larger table has a place for each");
        assert!(table.mask.get() < 1 << 10 && table.taken.get() == 2);
    }

    #[test]
    fn a_full_table_forgets_and_stays_right() {
        let table = table(64, true);
        let path = |i: u32| format!("/dir/{i}").into_bytes();
        for i in 0..10_000 {
            let sign = table.sign(1, START, &path(i)).unwrap();
            table.walked(sign, to(i));
        }
        let found: Vec<_> = (0..10_000)
            .filter_map(|i| Some((i, table.known(table.sign(1, START, &path(i)).unwrap(), NOW)?)))
            .collect();
        assert!((32..=64).contains(&found.len()), "{} of 64", found.len());
        assert!(found.iter().all(|&(i, led)| led == (i, 12, true)));
    }

    /// Goes through `paths` once, and says how many the table did not know.
    fn unknown(table: &PathTable, paths: impl Iterator<Item = Signature>) -> usize {
        let ask = |&sign: &Signature| {
            let unknown = table.known(sign, NOW).is_none();
            if unknown {
                table.walked(sign, to(7));
            }
            unknown
        };
        paths.filter(ask).count()
    }

    #[test]
    fn growing_forgets_little() {
        let table = table(1 << 15, true);
        let sign = |i: u32| table.signature(1, START, format!("/tree/{i:05}").as_bytes());
        let mut grown = 0;
        for i in 0..10_000 {
            let mask = table.mask.get();
            table.walked(sign(i), to(7));
            grown += u32::from(mask != table.mask.get());
        }
        assert!(grown >= 4, "grown {grown} times");
        let forgotten = unknown(&table, (0..10_000).map(sign));
        assert!(forgotten < 1000, "{forgotten} of 10,000: more than found their bucket full");
        let tags = (0..=table.mask.get()).map(|bucket| table.tags.get(bucket).get().to_le_bytes());
        let taken =
            tags.flat_map(|tags| tags.as_chunks::<2>().0.to_vec()).filter(|tag| *tag != [0; 2]).count();
        assert_eq!(taken, table.taken.get() as usize);
    }

    #[test]
    fn what_nobody_asks_for_any_more_makes_room_for_what_is() {
        let table = table(1 << 12, false);
        let tree = |cred: u64| {
            let table = &table;
            (0..1000u32).map(move |i| table.signature(cred, START, format!("/tree/{i:03}").as_bytes()))
        };
        for cred in 1..10 {
            (0..8).for_each(|_| _ = unknown(&table, tree(cred)));
        }
        let rounds: Vec<usize> = (0..16).map(|_| unknown(&table, tree(10))).collect();
        assert!(rounds[15] < 50, "{rounds:?} of 1000");
        let displaced = tree(10).filter(|&sign| {
            let mut displaced = false;
            table.find(sign, NOW, || {
                displaced = true;
                false
            });
            displaced
        });
        let displaced = displaced.count();
        assert!(displaced < 200, "{displaced} of 1000 are not where they belong");
    }

    #[test]
    fn a_hot_path_gets_into_a_full_table() {
        let table = table(64, false);
        let passed = Racy32::default();
        for i in 0..1000 {
            for _ in 0..4 {
                if let Some(sign) = table.asked(&passed, format!("/old/{i}").as_bytes()) {
                    table.walked(sign, to(i));
                }
            }
        }
        for i in 0..100 {
            let path = format!("/hot/{i}").into_bytes();
            let hot = table.signature(1, START, &path);
            let asked = (0..64).take_while(|_| {
                let unknown = table.known(hot, NOW).is_none();
                if unknown {
                    table.walked(hot, to(7));
                }
                unknown
            });
            assert!(asked.count() < 64, "path {i} never got in");
        }
    }

    #[test]
    fn new_paths_alone_let_it_sleep_and_a_known_one_wakes_it() {
        let table = table(1 << 10, false);
        let passed = Racy32::default();
        let ask = |i: u32| {
            let sign = table.asked(&passed, format!("/tree/file-{i:06}").as_bytes())?;
            table.walked(sign, to(i));
            Some(())
        };
        let asked = (0..100_000).filter_map(ask).count();
        // Two different paths share a mark now and then, which wakes it for a while.
        assert!((1_600..5_000).contains(&asked), "{asked} of 100,000 asked");
        // One path again and again is asked for twice soon, and is known then.
        let first = (0..100).find(|_| ask(500_000).is_some() && ask(500_000).is_some());
        assert!(first.is_some());
        assert!((0..100).all(|_| ask(500_000).is_some()), "awake");
        // Now and then one that was asked for before keeps it awake, and one that is remembered wakes it again.
        let mixed = |first: u32, every: u32| {
            (first..first + 10_000).filter_map(|i| ask(if i % every == 0 { 500_000 } else { i })).count()
        };
        let asked = [mixed(200_000, 32), mixed(300_000, 512)];
        assert!(asked[0] == 10_000 && asked[1] < 6_000, "{asked:?} of 10,000 asked");
        let hot = table.signature(1, START, b"/hot");
        (0..2).for_each(|_| table.walked(hot, to(7)));
        assert!((400_000..500_000).filter_map(ask).count() < 10_000);
        assert!(table.doze.unknown.get() >= Doze::DROWSY);
        assert!(table.known(hot, NOW).is_some());
        assert!((0..Doze::CREDIT).all(|i| ask(600_000 + i).is_some()), "awake");
    }

    #[test]
    fn what_is_never_remembered_lets_it_sleep_and_what_is_keeps_it_awake() {
        let table = table(1 << 10, false);
        let passed = Racy32::default();
        let hot = table.signature(1, START, b"/hot");
        (0..2).for_each(|_| table.walked(hot, to(7)));
        // One path in `every` is remembered; the others are refused.
        let asked = |every: u32| {
            let ask = |&i: &u32| {
                let asked = !table.sleeps(&passed);
                if asked && i % every == 0 {
                    assert!(table.known(hot, NOW).is_some());
                } else if asked {
                    table.never(&passed);
                }
                asked
            };
            (1..=20_000).filter(ask).count()
        };
        let mixed = asked(7);
        assert!(mixed > 15_000, "{mixed} of 20,000 asked");
        let refused = asked(u32::MAX);
        assert!((600..4_000).contains(&refused), "{refused} of 20,000 asked");
        assert_eq!(table.doze.unknown.get(), Doze::ASLEEP);
    }

    #[test]
    fn marks_get_more_room_and_none_is_lost() {
        let table = table(1 << 15, false);
        let sign = |i: u32| table.signature(1, START, format!("/tree/{i:05}").as_bytes());
        let marked: Vec<u32> = (0..2 * FIRST_SEEN).filter(|&i| !table.admits(sign(i))).collect();
        // Some were driven out of their bucket of four.
        let kept: Vec<u32> = marked.into_iter().filter(|&i| table.admits(sign(i))).collect();
        assert!(kept.len() > FIRST_SEEN as usize, "{} kept", kept.len());
        let before = table.seen_mask.get();
        let again = (1000..1000 + 16 * FIRST_SEEN).filter(|&i| table.admits(sign(i))).count();
        assert!(again < 8 && table.seen_mask.get() > before, "{again} seemed marked");

        let table = self::table(1 << 15, false);
        let sign = |i: u32| table.signature(1, START, format!("/tree/{i:05}").as_bytes());
        let marked: Vec<u32> = (0..64).filter(|&i| !table.admits(sign(i))).collect();
        while table.seen_mask.get() < (1 << 13) - 1 {
            table.spread_marks(table.seen_mask.get());
        }
        let kept = marked.iter().filter(|&&i| table.admits(sign(i))).count();
        assert!(kept >= marked.len() - 1, "{kept} of {}", marked.len());
    }

    #[test]
    fn all_paths_of_a_large_tree_are_known_after_a_few_rounds_and_almost_all_stay() {
        let table = table(1 << 15, false);
        let passed = Racy32::default();
        let round = || {
            let unknown = |&i: &u32| {
                let Some(sign) = table.asked(&passed, format!("/tree/{i:05}").as_bytes()) else {
                    return true;
                };
                let unknown = table.known(sign, NOW).is_none();
                if unknown {
                    table.walked(sign, to(i));
                }
                unknown
            };
            (0..10_000).filter(unknown).count()
        };
        let rounds: Vec<usize> = (0..10).map(|_| round()).collect();
        assert_eq!(rounds[..2], [10_000; 2], "{rounds:?}");
        assert!(rounds[8..].iter().all(|&unknown| unknown < 500), "{rounds:?}");
    }

    #[test]
    fn without_entries_nothing_is_asked() {
        let table = table(0, true);
        assert!(table.sign(1, START, b"/a").is_none());
        let table = self::table(8, true);
        assert!(table.sign(0, START, b"/a").is_none(), "a credential that is made for one call");
        assert!(table.sign(1, START, &[b'a'; PATH_LEN_MAX + 1]).is_none());
        assert!(table.sign(1, START, &[b'a'; PATH_LEN_MAX]).is_some());
    }
}
