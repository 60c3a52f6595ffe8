//! One name for each primitive, whether the program runs, or loom or shuttle explores it.
//!
//! `--cfg loom` and `--cfg shuttle` select the model checkers. Under loom the environment variable `RCUWALK_MUTANT`
//! names one ordering that is then weakened, so that a test run can show that its model notices.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(shuttle)]
pub(crate) use shuttle::sync::{
    Mutex,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::{
    Mutex,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

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

/// Whether this run tests the mutant without the ordering `id`.
#[cfg(loom)]
pub(crate) fn removed(id: &str) -> bool {
    use std::sync::LazyLock;
    static MUTANT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("RCUWALK_MUTANT").ok());
    MUTANT.as_deref() == Some(id)
}

/// Whether this run tests the mutant without the ordering `id`: never, outside loom.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn removed(_id: &str) -> bool {
    false
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
