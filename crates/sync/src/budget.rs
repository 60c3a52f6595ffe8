//! A quantity that many threads take from.

use crate::facade::{AtomicU64, Ordering};

/// How much of something may be in use, and how much is.
///
/// ```
/// let budget = rcuwalk_sync::Budget::new(10);
/// assert!(budget.charge(7) && !budget.charge(4));
/// budget.release(7);
/// assert_eq!(budget.used(), 0);
/// ```
#[derive(Debug)]
pub struct Budget {
    limit: AtomicU64,
    used: AtomicU64,
}

impl Budget {
    /// A budget of `limit` units.
    pub fn new(limit: u64) -> Budget {
        Budget { limit: AtomicU64::new(limit), used: AtomicU64::new(0) }
    }

    /// The most there may be in use.
    pub fn limit(&self) -> u64 {
        // Relaxed, here and below: the numbers guard no other memory.
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets the most there may be in use, unless more is. A charge under way at the same time may still be held against the
    /// limit from before.
    #[must_use]
    pub fn set_limit(&self, limit: u64) -> bool {
        let fits = self.used() <= limit;
        if fits {
            self.limit.store(limit, Ordering::Relaxed);
        }
        fits
    }

    /// Units in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `n` units, or none if so many are not left.
    #[must_use]
    pub fn charge(&self, n: u64) -> bool {
        let mut now = self.used();
        loop {
            let Some(after) = now.checked_add(n).filter(|&after| after <= self.limit()) else {
                return false;
            };
            match self.used.compare_exchange_weak(now, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => now = seen,
            }
        }
    }

    /// Gives `n` units back.
    pub fn release(&self, n: u64) {
        let before = self.used.fetch_sub(n, Ordering::Relaxed);
        debug_assert!(before >= n, "released what was never taken");
    }
}
