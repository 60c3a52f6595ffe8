//! The locks: those of the standard library, or of the model checker that explores the program.
//!
//! Code that shares state between threads by these, and by the atomics of this crate, can run under shuttle
//! (`--cfg shuttle`), schedule by schedule, as it is.
//!
//! ```
//! use rcuwalk_sync::lock::{Mutex, PoisonError};
//!
//! let names = Mutex::new(vec!["a"]);
//! names.lock().unwrap_or_else(PoisonError::into_inner).push("b");
//! assert_eq!(names.into_inner().unwrap(), ["a", "b"]);
//! ```

pub use crate::facade::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
pub use crate::spin::{SpinGuard, SpinLock};
pub use std::sync::{PoisonError, TryLockError};

use std::sync::LazyLock;
// Outside of the models, as they order nothing.
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// For how long threads that find a [`FairMutex`] free may pass others that wait for it.
///
/// A waiting thread takes some ten microseconds to wake, and would mostly find the lock taken again by the thread that released it. To
/// have that thread wait each time would make every turn as long as a wake; to let it pass forever kept others waiting for
/// 40 ms while one created files.
const PATIENCE: Duration = Duration::from_micros(200);

/// A mutex that no thread waits for much longer than others hold it: one that has waited for 200 µs is next.
///
/// ```
/// use rcuwalk_sync::lock::{FairMutex, PoisonError};
///
/// let sum = FairMutex::new(1);
/// *sum.lock().unwrap_or_else(PoisonError::into_inner) += 1;
/// assert_eq!(*sum.try_lock().unwrap(), 2);
/// ```
#[derive(Debug)]
pub struct FairMutex<T> {
    value: Mutex<T>,
    /// Held by the thread that is next.
    next: Mutex<()>,
    /// How many threads wait, and since when none of them had a turn, in nanoseconds of [`now`]. Relaxed: they guard no memory, and a
    /// thread that sees them late passes one time more.
    waiting: AtomicU32,
    since: AtomicU64,
}

impl<T> FairMutex<T> {
    /// A mutex that nobody holds.
    pub fn new(value: T) -> FairMutex<T> {
        let (waiting, since) = (AtomicU32::new(0), AtomicU64::new(0));
        FairMutex { value: Mutex::new(value), next: Mutex::new(()), waiting, since }
    }

    /// Waits for the mutex and holds it.
    ///
    /// # Errors
    ///
    /// As [`std::sync::Mutex::lock`].
    #[inline]
    pub fn lock(&self) -> std::sync::LockResult<MutexGuard<'_, T>> {
        // A model checker has schedules of its own, and no clock.
        if crate::MODELLED {
            return self.value.lock();
        }
        if self.waiting.load(Relaxed) == 0 || !self.is_overdue() {
            match self.value.try_lock() {
                Ok(value) => return Ok(value),
                Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        self.wait()
    }

    /// Holds the mutex if nobody does.
    ///
    /// # Errors
    ///
    /// As [`std::sync::Mutex::try_lock`].
    pub fn try_lock(&self) -> std::sync::TryLockResult<MutexGuard<'_, T>> {
        self.value.try_lock()
    }

    #[cold]
    fn is_overdue(&self) -> bool {
        now().saturating_sub(self.since.load(Relaxed)) > PATIENCE.as_nanos() as u64
    }

    #[cold]
    fn wait(&self) -> std::sync::LockResult<MutexGuard<'_, T>> {
        if self.waiting.fetch_add(1, Relaxed) == 0 {
            self.since.store(now(), Relaxed);
        }
        let next = self.next.lock();
        let value = self.value.lock();
        self.since.store(now(), Relaxed);
        self.waiting.fetch_sub(1, Relaxed);
        drop(next);
        value
    }
}

/// Nanoseconds since the first call.
fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64
}

/// Lets threads that wait for a lock have it, before the caller asks for it again: one that released it just now would mostly be
/// there first.
pub fn let_others_in() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
    // What it takes to wake a thread that waits.
    #[cfg(not(any(loom, shuttle)))]
    std::thread::sleep(std::time::Duration::from_micros(50));
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests {
    use super::*;

    /// A thread that takes the lock again as soon as it has released it lets one that has waited for long come first.
    #[test]
    fn a_waiting_thread_is_next() {
        let lock = FairMutex::new(0u32);
        let passed = (0..20).filter(|_| {
            std::thread::scope(|scope| {
                let held = lock.lock().unwrap();
                let before = *held;
                scope.spawn(|| *lock.lock().unwrap() += 1);
                while lock.waiting.load(Relaxed) == 0 {
                    std::thread::yield_now();
                }
                std::thread::sleep(10 * PATIENCE);
                drop(held);
                *lock.lock().unwrap() == before
            })
        });
        // On a loaded machine one may be held up on its way to the head of the queue.
        assert!(passed.count() < 5, "a thread passes one that waits");
    }

    #[test]
    fn each_turn_is_had_alone() {
        let lock = FairMutex::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *lock.lock().unwrap() += 1));
            }
        });
        assert_eq!(*lock.lock().unwrap(), 40_000);
    }
}
