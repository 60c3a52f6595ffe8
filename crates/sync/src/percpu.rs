//! One of a thing for each processor.

use crate::cpumask::{CpuCount, CpuMask};
use std::cell::Cell;
// Not the facade's: which of the slots a thread comes to changes no answer, and a static holds no model's atomics.
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Words of a mask: room for 256 processors. Where there are more, they share.
const WORDS: usize = 4;

/// A `T` for each processor, each on cache lines of its own.
///
/// A thread keeps to one of them, whichever processor it is on: two threads meet on one only when there are more threads than
/// processors, so what a `T` does has to be right for any number of them.
///
/// ```
/// use rcuwalk_sync::{Counter, PerCpu};
///
/// let hits = PerCpu::<Counter>::new();
/// hits.here().add(2);
/// assert_eq!(hits.iter().map(Counter::get).sum::<u64>(), 2);
/// ```
#[derive(Debug)]
pub struct PerCpu<T> {
    slots: Box<[Padded<T>]>,
    cpus: CpuCount<WORDS>,
    /// The slots that have been used.
    used: [AtomicU64; WORDS],
}

/// Two lines: processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// The number of threads that have come to any slot.
static THREADS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The number of this thread.
    static THREAD: Cell<u32> = const { Cell::new(u32::MAX) };
}

impl<T: Default> PerCpu<T> {
    /// One for each processor that the calling thread may run on.
    pub fn new() -> PerCpu<T> {
        let cpus = processors();
        let slots = (0..cpus.get()).map(|_| Padded::default()).collect();
        PerCpu { slots, cpus, used: Default::default() }
    }
}

impl<T: Default> Default for PerCpu<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> PerCpu<T> {
    /// The calling thread's.
    #[inline]
    pub fn here(&self) -> &T {
        let at = thread_number() % self.cpus.get();
        let (word, bit) = (&self.used[(at / 64) as usize], 1 << (at % 64));
        // Relaxed: a thread that was told what lies in a slot was told of the bit as well; others may see both late.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        &self.slots[at as usize].0
    }

    /// Those that some thread came to.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let mut mask = CpuMask::<WORDS>::EMPTY;
        for cpu in 0..self.cpus.get() {
            // Relaxed: as in `here`.
            if self.used[(cpu / 64) as usize].load(Ordering::Relaxed) >> (cpu % 64) & 1 == 1 {
                let _ = self.cpus.set(&mut mask, cpu);
            }
        }
        mask.iter().map(|cpu| &self.slots[cpu as usize].0)
    }
}

/// The number of the calling thread: small, and its own while fewer than 2³² threads have asked for theirs.
#[inline]
pub fn thread_number() -> u32 {
    match THREAD.get() {
        u32::MAX => {
            // Relaxed: only that no two threads get one number for a while counts, and not even that much.
            let new = THREADS.fetch_add(1, Ordering::Relaxed) % u32::MAX;
            THREAD.set(new);
            new
        }
        number => number,
    }
}

/// The processors that this thread may run on; at least one, at most the room of a mask.
fn processors() -> CpuCount<WORDS> {
    #[cfg(not(miri))]
    let n = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count());
    #[cfg(miri)]
    let n = 4;
    CpuCount::new(n.clamp(1, CpuMask::<WORDS>::BITS)).unwrap_or(CpuCount::ONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Counter;

    #[test]
    fn sums_are_complete_when_the_threads_are_done() {
        let hits = PerCpu::<Counter>::new();
        assert_eq!(hits.iter().count(), 0);
        std::thread::scope(|scope| {
            for _ in 0..7 {
                scope.spawn(|| (0..100).for_each(|_| hits.here().add(1)));
            }
        });
        assert_eq!(hits.iter().map(Counter::get).sum::<u64>(), 700);
        assert!(hits.iter().count() <= hits.slots.len());
        assert!(size_of::<Padded<Counter>>() == 128);
    }
}
