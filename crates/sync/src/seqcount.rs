//! Sequence counts: a reader takes no lock, and learns afterwards whether what it read belongs together.
//!
//! Kernel: include/linux/seqlock.h `seqcount_t`. Differs: fields under the count are atomics ([`crate::racy`]), because
//! a plain racy read is undefined behaviour in Rust, and a count wraps at 32 bits, so a reader that sleeps through
//! exactly 2³¹ changes of one object would not notice.
//!
//! ```
//! use rcuwalk_sync::{Racy32, SeqCount};
//! let (seq, x, y) = (SeqCount::default(), Racy32::new(1), Racy32::new(2));
//! let start = seq.begin();
//! let sum = x.get() + y.get();
//! assert!(!seq.retry(start) && sum == 3);
//! let change = seq.write();
//! x.set(5);
//! drop(change);
//! assert!(seq.retry(start));
//! ```

use crate::facade::{AtomicU32, Ordering, relax};

/// A sequence count: even while nothing changes, odd while a writer is at work.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct SeqCount(AtomicU32);

impl SeqCount {
    /// A count that stands at `start`, which is even.
    pub fn new(start: u32) -> SeqCount {
        SeqCount(AtomicU32::new(start))
    }

    /// Has the count of an object that was all zero stand at `start`, which is even: above all that its slot ever had, so that no
    /// reader takes the object for one from before. Only its owner calls this, before the first change.
    pub fn restart(&self, start: u32) {
        debug_assert!(start & 1 == 0 && self.0.load(Ordering::Relaxed) == 0);
        // Relaxed: the first change is yet to come, and it orders.
        self.0.store(start, Ordering::Relaxed);
    }

    /// Starts a read. A change that is under way is noticed by [`retry`](Self::retry), not here.
    ///
    /// Kernel: `raw_seqcount_begin()`.
    #[inline(always)]
    pub fn begin(&self) -> u32 {
        // [SEQ-1] pairs with [SEQ-4]: a reader that sees the count that ended a change sees the change.
        // Model: models::seq_begin_sees_finished_change.
        self.0.load(ordering!("SEQ-1", Acquire)) & !1
    }

    /// Starts a read, waiting for a change that is under way.
    ///
    /// Kernel: `read_seqcount_begin()`.
    #[inline]
    pub fn wait(&self) -> u32 {
        let mut tries = 0u32;
        loop {
            // [SEQ-1] as in `begin`.
            let now = self.0.load(ordering!("SEQ-1", Acquire));
            if now & 1 == 0 {
                return now;
            }
            tries += 1;
            relax(tries);
        }
    }

    /// Whether anything changed since `start`, so that what was read in between must be thrown away.
    ///
    /// Kernel: `read_seqcount_retry()`.
    #[inline(always)]
    #[must_use]
    pub fn retry(&self, start: u32) -> bool {
        // [SEQ-2] pairs with the fence [SEQ-3] in `write`, and with [BLB-1].
        // - If a read above saw a word that a change wrote, the two fences synchronise: the load below sees an odd or a
        //   newer count, and the read is discarded.
        // - If it saw none of them, it has the state before the change, whole, and may keep it.
        // Model: models::seq_reader_sees_whole_states.
        fence!("SEQ-2", Acquire);
        // Relaxed: ordered by the fence.
        self.0.load(Ordering::Relaxed) != start
    }

    /// The read that was started at `start`, to be passed on together with what it will vouch for.
    #[inline(always)]
    pub fn since(&self, start: u32) -> SeqRead<'_> {
        SeqRead { seq: self, start }
    }

    /// Starts a change, which ends when the guard is dropped. The caller excludes other writers of the same count.
    ///
    /// Kernel: `write_seqcount_begin()`.
    #[inline]
    pub fn write(&self) -> SeqWrite<'_> {
        // Relaxed: only writers write the count, and they exclude each other.
        let before = self.0.load(Ordering::Relaxed);
        debug_assert!(before & 1 == 0, "two writers under one sequence count");
        self.0.store(before.wrapping_add(1), Ordering::Relaxed);
        // [SEQ-3] pairs with the fence [SEQ-2] in `retry`: no word of the change is seen before the odd count.
        fence!("SEQ-3", Release);
        SeqWrite { seq: self, after: before.wrapping_add(2) }
    }
}

/// A read under way: see [`SeqCount::since`].
#[derive(Debug, Clone, Copy)]
pub struct SeqRead<'a> {
    seq: &'a SeqCount,
    start: u32,
}

impl SeqRead<'_> {
    /// As [`SeqCount::retry`].
    #[inline(always)]
    #[must_use]
    pub fn retry(self) -> bool {
        self.seq.retry(self.start)
    }
}

/// A change under way. Dropping it ends the change.
#[derive(Debug)]
pub struct SeqWrite<'a> {
    seq: &'a SeqCount,
    after: u32,
}

impl SeqWrite<'_> {
    /// The count as it will be when the change has ended. A cache that keeps counts longer than a read takes has to forget
    /// them before they come round again.
    #[inline]
    pub fn after(&self) -> u32 {
        self.after
    }
}

impl Drop for SeqWrite<'_> {
    #[inline]
    fn drop(&mut self) {
        // [SEQ-4] pairs with [SEQ-1]: the whole change is visible to a reader that starts from this count.
        self.seq.0.store(self.after, ordering!("SEQ-4", Release));
    }
}
