//! The whole-path table: one probe for a path that was looked up before, however deep it is.
//!
//! After Tsai et al., "How to Get More Value From Your File System Directory Cache" (SOSP'15): direct lookup with
//! memoised prefix checks. Differs: nothing is kept in the dentries, and nothing is walked when a directory changes. An
//! entry says where a path led, for whom, from where, and *as of which changes*:
//!
//! - [`Store::path_seq`](crate::store::Store), which every change opens that can turn a walk aside or forbid it on its
//!   way: a directory gets another name or parent, another mode, owner or ACL;
//! - the count of the mount table, which every mount and unmount opens;
//! - the count of the dentry it led to, or for a missing name the counts of the directory and of its entries.
//!
//! **Claim.** An answer from the table is one that the walk could have given. The entry was made by a walk during which
//! neither global count changed, so that every step of it held at one moment; as long as both counts stand, each of its
//! directories is where it was and may still be searched by this credential, which never changes. What is left of the
//! walk is its last step, which is made anew: the dentry's own count says whether it is still the entry of that name, and
//! for a missing name the count of its directory whether anything was added.
//!
//! **A path is known by a signature** of 256 bits over credential, start, length and bytes: two sums of NH with Toeplitz
//! keys, as in UMAC, of words of 64 bits, keyed at random for each table. Two different questions have the same signature
//! with a chance of 2⁻¹²⁸ at most, whatever they are.
//!
//! **Admission.** A path enters at the second time it is asked for: the first leaves a mark of 16 bits. So a scan of a
//! tree costs marks, and evicts little. Where nearly every path is new, all but a sample of them pass ([`Doze`]).
//!
//! Not remembered: paths through links, `..` and over mounts, refusals, and what ends in a slash.

use crate::errno::{Errno, Result};
use crate::mount::Path;
use rcuwalk_sync::lock::{Mutex, TryLockError};
use rcuwalk_sync::{Arena, Counter, Handle, MODELLED, Racy32, Racy64, SeqCount, type_stable};

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
    /// The most paths that are remembered, rounded up to a power of two; 0 for no table. 66 bytes each, which are
    /// committed only when used. 524,288 unless set; 16,777,216 at most.
    pub entries: u32,
    /// Remember a path when it is first looked up, not the second time: for tests, and for trees that are small and hot.
    pub at_first_sight: bool,
}

impl Default for PathTableOptions {
    fn default() -> Self {
        PathTableOptions { entries: 1 << 19, at_first_sight: false }
    }
}

type_stable! {
    /// Where one path led; one cache line. Written under `seq` and the lock of the table.
    struct Entry {
        seq: SeqCount,
        path_seq: Racy32,
        sign: [Racy64; 4],
        m_seq: Racy32,
        mnt: Racy32,
        /// What the path led to, or the directory that its last name is missing in.
        dentry: Racy32,
        dentry_seq: Racy32,
        /// For a missing name: the count of the directory's inode, and 1 above it; 0 if the path led somewhere.
        missing: Racy64,
    }
}

const _: () = assert!(MODELLED || size_of::<Entry>() == 64, "an answer is one cache line");

impl Entry {
    /// Where the path of this signature led, if this is its entry, and of these changes.
    #[inline(always)]
    fn answer(&self, sign: Signature, as_of: AsOf) -> Option<(Handle, Led)> {
        let seq = self.seq.begin();
        let [a, b, c, d] = sign.words();
        let differ = (self.sign[0].get() ^ a)
            | (self.sign[1].get() ^ b)
            | (self.sign[2].get() ^ c)
            | (self.sign[3].get() ^ d)
            | u64::from(self.path_seq.get() ^ as_of.path_seq)
            | u64::from(self.m_seq.get() ^ as_of.m_seq);
        let (dentry, seen, missing) = (self.dentry.get(), self.dentry_seq.get(), self.missing.get());
        let mnt = self.mnt.get();
        (differ == 0 && !self.seq.retry(seq)).then(|| (mnt, led(dentry, seen, missing)))
    }
}

/// What a path led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Led {
    /// To this dentry, as of this count of it.
    To { dentry: Handle, seq: u32 },
    /// To a name that this directory does not have, as of this count of its dentry, and this of its inode.
    Missing { dir: Handle, seq: u32, entries: u32 },
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

/// A signature, mixed: which bucket of four entries it is in, which of them it takes first, and how it is marked.
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

    /// Never zero: that is an empty way.
    #[inline(always)]
    fn tag(self) -> u16 {
        (self.0 >> 16) as u16 & !RESIDENT | 1
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

/// Of a mark: its entry is in use.
const RESIDENT: u16 = 1 << 15;

/// Buckets that a table starts with, and from how many on it asks for huge pages.
const FIRST_BUCKETS: u32 = 256;
const HUGE_BUCKETS: u32 = 1 << 13;

/// Ways of a bucket.
const WAYS: u32 = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct PathTable {
    /// A bucket's four marks of 16 bits: 15 of the signature, and [`RESIDENT`]. 0 is an empty way.
    marks: Arena<Racy64>,
    /// The ways of bucket `n` are `4 n ..= 4 n + 3`.
    entries: Arena<Entry>,
    keys: Box<[[u64; 2]; KEYS]>,
    /// Buckets in use less one. Grows with what is remembered, so that few paths lie close together; what was remembered
    /// before is forgotten then.
    mask: Racy32,
    /// Buckets less one when it is grown; `None` for no table.
    mask_max: Option<u32>,
    /// Paths that entered since it grew.
    entered: Racy32,
    /// Paths that found their bucket full.
    turn: Racy32,
    at_first_sight: bool,
    doze: Doze,
    remembered: Counter,
    /// Who holds it may write entries. Nobody waits for it.
    change: Mutex<()>,
}

/// Whether asking is worth it: the table falls asleep after many paths in a row that it did not know, and then each task
/// asks for one path in [`SAMPLE`](Doze::SAMPLE), until one is known again.
#[derive(Debug, Default)]
struct Doze {
    /// Paths that were not known, up to [`DEEP`](Doze::DEEP); a known one takes off more than lie between that and sleep.
    unknown: Racy32,
}

impl Doze {
    const SAMPLE: u32 = 16;
    const AFTER: u32 = 2048;
    const DEEP: u32 = Self::AFTER + 1023;

    /// Whether a task that let `passed` lookups pass so far lets this one pass.
    #[inline(always)]
    fn passes(&self, passed: &Racy32) -> bool {
        self.unknown.get() >= Self::AFTER && {
            let so_far = passed.get();
            passed.set(so_far.wrapping_add(1));
            !so_far.is_multiple_of(Self::SAMPLE)
        }
    }

    fn unknown(&self) {
        let unknown = self.unknown.get();
        if unknown < Self::DEEP {
            self.unknown.set(unknown + 1);
        }
    }

    fn known(&self) {
        let unknown = self.unknown.get();
        if unknown != 0 {
            self.unknown.set(unknown.saturating_sub(Self::DEEP - Self::AFTER + 1));
        }
    }
}

impl PathTable {
    pub(crate) fn new(options: PathTableOptions, mut random: impl FnMut() -> u64) -> Result<PathTable> {
        let entries = options.entries.min(1 << 24).next_power_of_two().max(2 * WAYS);
        let buckets = entries / WAYS;
        let on = options.entries != 0;
        Ok(PathTable {
            marks: Arena::new(if on { buckets } else { 1 })?,
            entries: Arena::new(if on { entries } else { 1 })?,
            keys: Box::new(std::array::from_fn(|_| [random(), random()])),
            mask: Racy32::new((buckets - 1).min(FIRST_BUCKETS - 1)),
            mask_max: on.then_some(buckets - 1),
            entered: Racy32::default(),
            turn: Racy32::default(),
            at_first_sight: options.at_first_sight,
            doze: Doze::default(),
            remembered: Counter::default(),
            change: Mutex::new(()),
        })
    }

    /// Paths remembered since the table was made.
    pub(crate) fn remembered(&self) -> u64 {
        self.remembered.get()
    }

    /// Signs a question, if it is one that the table answers. `passed` is the task's own count of those that it let pass
    /// while the table slept.
    #[inline(always)]
    pub(crate) fn sign(&self, cred: u64, start: Path, path: &[u8], passed: &Racy32) -> Option<Signature> {
        let known = cred.wrapping_sub(1) < 1 << CRED_BITS;
        if self.mask_max.is_none() || path.len() > PATH_LEN_MAX || !known || self.doze.passes(passed) {
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

    /// The ways of a bucket whose marks are `tag`, lowest first, as bits 16 apart; bits above a true one may be false.
    #[inline(always)]
    fn ways(marks: u64, tag: u16) -> u64 {
        const ONES: u64 = 0x0001_0001_0001_0001;
        let differ = marks ^ (u64::from(tag) * ONES);
        differ.wrapping_sub(ONES) & !differ & (ONES << 15)
    }

    /// Where the path led, as of these changes.
    #[inline(always)]
    pub(crate) fn find(&self, sign: Signature, as_of: AsOf) -> Option<(Handle, Led)> {
        let mixed = sign.mixed();
        let bucket = mixed.bucket(self.mask.get());
        // Most are where they belong, which no mark has to say.
        match self.entry(bucket, mixed.first()).answer(sign, as_of) {
            None => self.find_displaced(bucket, mixed, sign, as_of),
            found => found,
        }
    }

    /// [`find`](Self::find) in the ways that the marks tell.
    #[inline(never)]
    fn find_displaced(
        &self,
        bucket: u32,
        mixed: Mixed,
        sign: Signature,
        as_of: AsOf,
    ) -> Option<(Handle, Led)> {
        let mut ways = Self::ways(self.marks.get(bucket).get(), mixed.tag() | RESIDENT);
        while ways != 0 {
            let found = self.entry(bucket, ways.trailing_zeros() / 16).answer(sign, as_of);
            if found.is_some() {
                return found;
            }
            ways &= ways - 1;
        }
        None
    }

    #[inline(always)]
    fn entry(&self, bucket: u32, way: u32) -> &Entry {
        self.entries.get(bucket * WAYS + way)
    }

    /// A path that the table did not know led there, as of these changes, as it turned out.
    #[cold]
    #[inline(never)]
    pub(crate) fn remember(&self, sign: Signature, as_of: AsOf, mnt: Handle, led: Led) {
        let mixed = sign.mixed();
        let bucket = mixed.bucket(self.mask.get());
        let word = self.marks.get(bucket);
        let marks = word.get();
        let known = |way: u32| (marks >> (16 * way)) as u16 & !RESIDENT == mixed.tag();
        let Some(way) = (0..WAYS).find(|&way| known(way)) else {
            let way = self.victim(bucket, marks, as_of, mixed);
            // Marks are written by whoever comes, and some get lost: the entry says which path it is.
            if !self.at_first_sight {
                self.doze.unknown();
                if let Some(way) = way {
                    word.set(with_mark(marks, way, mixed.tag()));
                }
            } else if let Some(way) = way {
                self.enter(bucket, way, sign, as_of, mnt, led);
            }
            return;
        };
        self.doze.known();
        self.enter(bucket, way, sign, as_of, mnt, led);
    }

    /// The way that a new mark may take: an empty one, one that is but marked, one whose entry is out of date; now and
    /// then any.
    fn victim(&self, bucket: u32, marks: u64, as_of: AsOf, mixed: Mixed) -> Option<u32> {
        let mark = |way: u32| (marks >> (16 * way)) as u16;
        let stale = |way: u32| {
            let entry = self.entry(bucket, way);
            entry.path_seq.get() != as_of.path_seq || entry.m_seq.get() != as_of.m_seq
        };
        let ways = (0..WAYS).map(|way| (mixed.first() + way) % WAYS);
        let first = |free: &dyn Fn(u32) -> bool| ways.clone().find(|&way| free(way));
        first(&|way| mark(way) == 0)
            .or_else(|| first(&|way| mark(way) & RESIDENT == 0))
            .or_else(|| first(&stale))
            .or_else(|| (self.at_first_sight || self.one_in_eight()).then_some(mixed.first()))
    }

    /// True every eighth time, whoever asks: a path that is asked for again and again gets in in the end.
    fn one_in_eight(&self) -> bool {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        turn.is_multiple_of(8)
    }

    fn enter(&self, bucket: u32, way: u32, sign: Signature, as_of: AsOf, mnt: Handle, led: Led) {
        let _one = match self.change.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Next time.
            Err(TryLockError::WouldBlock) => return,
        };
        let entry = self.entry(bucket, way);
        {
            let _change = entry.seq.write();
            entry.sign.iter().zip(sign.words()).for_each(|(to, word)| to.set(word));
            entry.path_seq.set(as_of.path_seq);
            entry.m_seq.set(as_of.m_seq);
            entry.mnt.set(mnt);
            let (dentry, seq, missing) = match led {
                Led::To { dentry, seq } => (dentry, seq, 0),
                Led::Missing { dir, seq, entries } => (dir, seq, 1 << 32 | u64::from(entries)),
            };
            entry.dentry.set(dentry);
            entry.dentry_seq.set(seq);
            entry.missing.set(missing);
        }
        let word = self.marks.get(bucket);
        word.set(with_mark(word.get(), way, sign.mixed().tag() | RESIDENT));
        self.remembered.add(1);
        self.entered.set(self.entered.get() + 1);
        let mask = self.mask.get();
        if self.entered.get() > (mask + 1) * WAYS / 2 && Some(mask) < self.mask_max {
            self.grow((mask * 4 + 3).min(self.mask_max.unwrap_or(mask)));
        }
    }

    /// Makes room, for the holder of the lock.
    #[cold]
    fn grow(&self, mask: u32) {
        // A table of thousands of paths is worth huge pages, if the system has them.
        if mask >= HUGE_BUCKETS {
            self.entries.prefer_huge_pages();
        }
        self.mask.set(mask);
        self.entered.set(0);
    }
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

fn with_mark(marks: u64, way: u32, mark: u16) -> u64 {
    let shift = 16 * way;
    marks & !(0xffff << shift) | u64::from(mark) << shift
}

#[inline(always)]
fn led(dentry: Handle, seq: u32, missing: u64) -> Led {
    match missing {
        0 => Led::To { dentry, seq },
        _ => Led::Missing { dir: dentry, seq, entries: missing as u32 },
    }
}

/// The error of a name that is remembered as missing.
pub(crate) const MISSING: Errno = Errno::ENOENT;

#[cfg(test)]
mod tests {
    use super::*;

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
        let sign = table.sign(1, START, b"/a/b", &Racy32::default()).unwrap();
        let led = Led::To { dentry: 7, seq: 12 };
        assert_eq!(table.find(sign, NOW), None);
        table.remember(sign, NOW, 9, led);
        assert_eq!((table.find(sign, NOW), table.remembered()), (None, 0), "a mark is no answer");
        table.remember(sign, NOW, 9, led);
        assert_eq!((table.find(sign, NOW), table.remembered()), (Some((9, led)), 1));
        assert_eq!(table.find(sign, AsOf { path_seq: 4, ..NOW }), None);
        assert_eq!(table.find(sign, AsOf { m_seq: 6, ..NOW }), None);
        let missing = Led::Missing { dir: 3, seq: 2, entries: 0 };
        table.remember(sign, NOW, 9, missing);
        assert_eq!(table.find(sign, NOW), Some((9, missing)), "the entry is replaced");
    }

    #[test]
    fn a_full_table_forgets_and_stays_right() {
        let table = table(64, true);
        let path = |i: u32| format!("/dir/{i}").into_bytes();
        for i in 0..10_000 {
            let sign = table.sign(1, START, &path(i), &Racy32::default()).unwrap();
            table.remember(sign, NOW, 1, Led::To { dentry: i, seq: 0 });
        }
        let found: Vec<_> = (0..10_000)
            .filter_map(|i| {
                Some((i, table.find(table.sign(1, START, &path(i), &Racy32::default()).unwrap(), NOW)?))
            })
            .collect();
        assert!((32..=64).contains(&found.len()), "{} of 64", found.len());
        assert!(found.iter().all(|&(i, (_, led))| led == Led::To { dentry: i, seq: 0 }));
    }

    #[test]
    fn a_hot_path_gets_into_a_full_table() {
        let table = table(64, false);
        let sign = |path: &[u8]| table.sign(1, START, path, &Racy32::default());
        for i in 0..1000 {
            for _ in 0..4 {
                if let Some(sign) = sign(format!("/old/{i}").as_bytes()) {
                    table.remember(sign, NOW, 1, Led::To { dentry: i, seq: 0 });
                }
            }
        }
        for i in 0..100 {
            let path = format!("/hot/{i}").into_bytes();
            let hot = table.signature(1, START, &path);
            let asked = (0..64).take_while(|_| {
                let unknown = table.find(hot, NOW).is_none();
                if unknown {
                    table.remember(hot, NOW, 1, Led::To { dentry: 7, seq: 0 });
                }
                unknown
            });
            assert!(asked.count() < 64, "path {i} never got in");
        }
    }

    #[test]
    fn new_paths_alone_put_it_to_sleep_and_a_known_one_wakes_it() {
        let table = table(1 << 10, false);
        let passed = Racy32::default();
        let ask = |i: u32| {
            let sign = table.sign(1, START, format!("/tree/file-{i:06}").as_bytes(), &passed)?;
            table.remember(sign, NOW, 1, Led::To { dentry: i, seq: 0 });
            Some(())
        };
        let asked = (0..100_000).filter_map(ask).count();
        // Two different paths share a mark now and then, which wakes it for a while.
        assert!((8_000..25_000).contains(&asked), "{asked} of 100,000 asked");
        // One path again and again is asked for twice soon, and is known then.
        let first = (0..100).find(|_| ask(500_000).is_some() && ask(500_000).is_some());
        assert!(first.is_some());
        assert!((0..100).all(|_| ask(500_000).is_some()), "awake");
    }

    #[test]
    fn without_entries_nothing_is_asked() {
        let passed = Racy32::default();
        let table = table(0, true);
        assert!(table.sign(1, START, b"/a", &passed).is_none());
        let table = self::table(8, true);
        assert!(table.sign(0, START, b"/a", &passed).is_none(), "a credential that is made for one call");
        assert!(table.sign(1, START, &[b'a'; PATH_LEN_MAX + 1], &passed).is_none());
        assert!(table.sign(1, START, &[b'a'; PATH_LEN_MAX], &passed).is_some());
    }
}
