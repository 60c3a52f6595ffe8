//! One name for each primitive, whether the program runs, or loom or shuttle explores it.
//!
//! `--cfg loom` and `--cfg shuttle` select the model checkers. `--cfg mutant="ID"` weakens the one ordering of that ID,
//! so that a test run can show that its model notices.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Tells the processor, or the model checker, that this thread waits for another.
#[inline]
pub(crate) fn relax() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
    #[cfg(not(any(loom, shuttle)))]
    std::hint::spin_loop();
}

/// The ordering `$order`, or `Relaxed` in the mutant that removes `$id`.
macro_rules! ordering {
    ($id:literal, $order:ident) => {
        if cfg!(mutant = $id) { $crate::facade::Ordering::Relaxed } else { $crate::facade::Ordering::$order }
    };
}

/// A fence of ordering `$order`, or nothing in the mutant that removes `$id`.
macro_rules! fence {
    ($id:literal, $order:ident) => {
        if !cfg!(mutant = $id) {
            $crate::facade::fence($crate::facade::Ordering::$order)
        }
    };
}
