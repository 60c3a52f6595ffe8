//! One name for each primitive, whether the program runs, or loom or shuttle explores it.
//!
//! `--cfg loom` and `--cfg shuttle` select the model checkers. Under them the environment variable `RCUWALK_MUTANT` names one
//! ordering that is then weakened, or one step of the walk that is left out, so that a test run can show that its model notices.

#[cfg(loom)]
pub use loom::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
#[cfg(shuttle)]
pub use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
#[cfg(not(any(loom, shuttle)))]
pub use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Waits a moment for another thread, for the `tries`-th time: at first on the processor, then, since a writer may have
/// been preempted in the middle of its change, by giving the processor up.
#[inline]
pub(crate) fn relax(tries: u32) {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
    #[cfg(not(any(loom, shuttle)))]
    if tries.is_multiple_of(64) {
        std::thread::yield_now()
    } else {
        std::hint::spin_loop()
    };
    let _ = tries;
}

/// Waits, for the `tries`-th time, for the holder of a lock that is held for some tens of instructions.
///
/// A lock that is found taken is wanted by two threads all the time, or by chance. In the first case it is better to let one
/// of them have it some dozen times in a row, with everything it guards in its cache, than to take turns, where each turn fetches
/// those lines from the other processor: with 3 µs two threads that open and close files come to as many as one does, looking
/// again at once to a tenth (`rcuwalk bench`, open+close). In the second case it is what waiting for a system call would take.
#[inline]
pub(crate) fn hold_off(tries: u32) {
    #[cfg(any(loom, shuttle))]
    relax(tries);
    #[cfg(not(any(loom, shuttle)))]
    {
        const HOLD_OFF: std::time::Duration = std::time::Duration::from_micros(3);
        // Still taken after that: the holder may have been preempted.
        if tries > 0 {
            std::thread::yield_now();
        }
        let start = std::time::Instant::now();
        while start.elapsed() < HOLD_OFF {
            std::hint::spin_loop();
        }
    }
}

/// Whether this run tests the mutant without the ordering or the step `id`.
#[cfg(any(loom, shuttle))]
pub fn removed(id: &str) -> bool {
    use std::sync::LazyLock;
    static MUTANT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("RCUWALK_MUTANT").ok());
    MUTANT.as_deref() == Some(id)
}

/// Whether this run tests the mutant without the ordering or the step `id`: never, outside the model checkers.
#[cfg(not(any(loom, shuttle)))]
#[inline(always)]
pub const fn removed(_id: &str) -> bool {
    false
}

/// A check that the lockless walk depends on: whether it fails. In the mutant without the step `$id` it never does.
#[doc(hidden)]
#[macro_export]
macro_rules! step {
    ($id:literal, $fails:expr) => {
        !$crate::removed($id) && $fails
    };
}

/// The ordering `$order`, or `$weaker` (`Relaxed` unless given) in the mutant that removes `$id`.
macro_rules! ordering {
    ($id:literal, $order:ident) => {
        ordering!($id, $order, Relaxed)
    };
    ($id:literal, $order:ident, $weaker:ident) => {
        if $crate::facade::removed($id) {
            $crate::facade::Ordering::$weaker
        } else {
            $crate::facade::Ordering::$order
        }
    };
}

/// A fence of ordering `$order`, or nothing in the mutant that removes `$id`.
macro_rules! fence {
    ($id:literal, $order:ident) => {
        if !$crate::facade::removed($id) {
            $crate::facade::fence($crate::facade::Ordering::$order)
        }
    };
}
