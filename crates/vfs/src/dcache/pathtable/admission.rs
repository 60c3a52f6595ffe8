//! Whether asking is worth it, and which paths enter.
//!
//! A path enters the second time a lookup asks for it: the first time leaves a mark of 16 bits. So a scan of a tree costs marks,
//! and evicts little. The marks get more room as they come, and what is there then stays, so that the table knows a path
//! again after all others of a large tree were asked for. Where nearly every path is new, all but a sample of them pass
//! ([`Doze`]).
//!
//! Lookups write all of this without a lock. When two of them store at once, one store is lost, and with it a mark or a
//! count. That delays an entry or a nap, and no answer depends on either.

use super::{HUGE_BUCKETS, PathTable, Signature};
use rcuwalk_sync::{Handle, Racy32};

/// Whether asking is worth it. A table that knows nothing yet is drowsy: each task asks for one path in eight, until one that
/// was asked for before wakes it. Then all are asked for, as long as one in some 256 was. After hundreds that were not, the table
/// sleeps, and one in sixty-four is asked for. Awake, an answer writes nothing.
#[derive(Debug)]
pub(super) struct Doze {
    /// Paths that were asked for in vain, up to [`ASLEEP`](Doze::ASLEEP), less those that were not.
    pub(super) unknown: Racy32,
}

impl Doze {
    pub(super) const DROWSY: u32 = 1024;

    pub(super) const ASLEEP: u32 = Self::DROWSY + 256;

    /// For how many that are new one pays that is not.
    pub(super) const CREDIT: u32 = 256;

    pub(super) fn new(at_first_sight: bool) -> Doze {
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
    pub(super) fn answered(&self) {
        if self.doze.unknown.get() >= Doze::DROWSY {
            self.doze.known();
        }
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
        // This drives the oldest of the four marks out. A store of another thread at this moment may be lost.
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

    /// Gives the marks more room. Each bucket is copied into the four that take its place, so that growing drives no mark out;
    /// one that another thread stores meanwhile may be lost.
    pub(super) fn spread_marks(&self, mask: u32) {
        let wider = (mask * 4 + 3).min(self.mask_max.unwrap_or(mask));
        for bucket in mask + 1..=wider {
            self.seen.get(bucket).set(self.seen.get(bucket & mask).get());
        }
        self.seen_mask.set(wider);
        self.marks.set(0);
    }
}

/// True one time in `n`, a power of two, by this count.
#[inline(always)]
fn one_in(n: u32, count: &Racy32) -> bool {
    let so_far = count.get();
    count.set(so_far.wrapping_add(1));
    so_far.is_multiple_of(n)
}
