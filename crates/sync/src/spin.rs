//! A lock for a few instructions.

use crate::facade::{AtomicU32, Ordering, hold_off};
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A mutual exclusion lock that is held for some tens of instructions, and never while something is waited for, as the
/// kernel's `spinlock_t`.
///
/// A thread that finds it taken stays away for some microseconds before it looks again, and yields the processor if it is taken
/// even then, since the holder may have been preempted. Nobody sleeps, so giving it back is a store: no system call, and no
/// atomic exchange.
///
/// ```
/// let numbers = rcuwalk_sync::lock::SpinLock::new(vec![1]);
/// numbers.lock().push(2);
/// assert_eq!(*numbers.lock(), [1, 2]);
/// ```
#[derive(Default)]
#[repr(C)]
pub struct SpinLock<T> {
    taken: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard alone, and there is one guard at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// A free lock around `value`.
    pub fn new(value: T) -> SpinLock<T> {
        SpinLock { taken: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Waits until nobody else holds it, and holds it until the guard is dropped.
    #[inline(always)]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        // Not looked at first: that would fetch the cache line twice, once to read it and once to write it.
        if !self.try_take() {
            self.wait();
        }
        SpinGuard { lock: self, value: PhantomData }
    }

    #[inline(always)]
    fn try_take(&self) -> bool {
        // [SPN-1] pairs with [SPN-2]: the holder sees what all earlier holders did to the value.
        // Model: models::spin_holder_sees_earlier_holders. Relaxed: a failure tells nothing.
        self.taken.compare_exchange(0, 1, ordering!("SPN-1", Acquire), Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn wait(&self) {
        for tries in 0.. {
            hold_off(tries);
            if self.try_take() {
                return;
            }
        }
    }
}

impl<T> std::fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpinLock").finish_non_exhaustive()
    }
}

/// A [`SpinLock`] that is held.
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
    /// It lends the value: threads may share it if they may share that.
    value: PhantomData<&'a mut T>,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, and lends the value no longer than it lives.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; and it is borrowed mutably for as long.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // [SPN-2] pairs with [SPN-1]: what this holder did to the value is visible to the next.
        self.lock.taken.store(0, ordering!("SPN-2", Release));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn no_turn_is_lost() {
        const TURNS: u32 = if cfg!(miri) { 20 } else { 20_000 };
        let turns = SpinLock::new(0_u32);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..TURNS).for_each(|_| *turns.lock() += 1));
            }
        });
        assert_eq!(*turns.lock(), 4 * TURNS);
    }
}
