//! A quantity that many threads take from.

use crate::AllocError;
use crate::facade::{AtomicU64, Ordering};
use std::sync::Arc;

/// How much of something is in use, whatever the most is at the time.
///
/// ```
/// let tally = rcuwalk_sync::Tally::default();
/// assert!(tally.charge(7, 10) && !tally.charge(4, 10) && tally.charge(4, 11));
/// tally.release(7);
/// assert_eq!(tally.used(), 4);
/// ```
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    /// Units in use.
    pub fn used(&self) -> u64 {
        // Relaxed, here and below: the numbers guard no other memory.
        self.0.load(Ordering::Relaxed)
    }

    /// Takes `n` units, or none if there would be more than `most` in use.
    #[must_use]
    pub fn charge(&self, n: u64, most: u64) -> bool {
        let mut now = self.used();
        loop {
            let Some(after) = now.checked_add(n).filter(|&after| after <= most) else {
                return false;
            };
            match self.0.compare_exchange_weak(now, after, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => now = seen,
            }
        }
    }

    /// Gives `n` units back.
    pub fn release(&self, n: u64) {
        let before = self.0.fetch_sub(n, Ordering::Relaxed);
        debug_assert!(before >= n, "released what was never taken");
    }
}

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
    used: Tally,
}

impl Budget {
    /// A budget of `limit` units.
    pub fn new(limit: u64) -> Budget {
        Budget { limit: AtomicU64::new(limit), used: Tally::default() }
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
        self.used.used()
    }

    /// Takes `n` units, or none if so many are not left.
    #[must_use]
    pub fn charge(&self, n: u64) -> bool {
        self.used.charge(n, self.limit())
    }

    /// Gives `n` units back.
    pub fn release(&self, n: u64) {
        self.used.release(n);
    }
}

/// Units of a [`Budget`], given back when this is dropped.
///
/// ```
/// # use std::sync::Arc;
/// use rcuwalk_sync::{Budget, Charge};
/// let budget = Arc::new(Budget::new(10));
/// let mut charge = Charge::new(Some(&budget), 7)?;
/// assert!(Charge::new(Some(&budget), 4).is_err());
/// charge.shrink(2);
/// assert_eq!(budget.used(), 5);
/// drop(charge);
/// assert_eq!(budget.used(), 0);
/// # Ok::<(), rcuwalk_sync::AllocError>(())
/// ```
#[derive(Debug, Default)]
pub struct Charge {
    budget: Option<Arc<Budget>>,
    units: u64,
}

impl Charge {
    /// Takes `units` of a budget, if there is one.
    ///
    /// # Errors
    ///
    /// [`AllocError::NoMemory`] if so many are not left.
    pub fn new(budget: Option<&Arc<Budget>>, units: u64) -> Result<Charge, AllocError> {
        Charge::with(budget, units, Beyond::Refused)
    }

    /// The same, where the budget may also be overdrawn.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), if it may not.
    pub fn with(budget: Option<&Arc<Budget>>, units: u64, beyond: Beyond) -> Result<Charge, AllocError> {
        let mut charge = Charge::default();
        charge.grow(budget, units, beyond).map(|()| charge)
    }

    /// Takes `more` units of the same budget.
    ///
    /// # Errors
    ///
    /// As [`with`](Self::with); the charge is as it was then.
    pub fn grow(
        &mut self,
        budget: Option<&Arc<Budget>>,
        more: u64,
        beyond: Beyond,
    ) -> Result<(), AllocError> {
        let Some(budget) = budget else { return Ok(()) };
        let most = if beyond == Beyond::Counted { u64::MAX } else { budget.limit() };
        if !budget.used.charge(more, most) {
            return Err(AllocError::NoMemory);
        }
        debug_assert!(self.budget.as_ref().is_none_or(|own| Arc::ptr_eq(own, budget)), "one budget each");
        self.budget.get_or_insert_with(|| Arc::clone(budget));
        self.units += more;
        Ok(())
    }

    /// Gives `units` of it back.
    pub fn shrink(&mut self, units: u64) {
        let units = units.min(self.units);
        self.units -= units;
        if let Some(budget) = &self.budget {
            budget.release(units);
        }
    }
}

/// What becomes of a charge for which a budget has not enough left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beyond {
    /// It fails.
    Refused,
    /// It counts nevertheless, and keeps out others.
    Counted,
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.release(self.units);
        }
    }
}
