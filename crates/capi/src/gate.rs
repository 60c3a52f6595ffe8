//! Every function passes this on its way in and out: panics end here, and fork(2) waits until no call is inside.
//!
//! A child of fork has one thread, and locks that the others held stay locked for ever. So the thread that forks first
//! closes the gates, which waits for calls in flight; parent and child then both open them. Calls do not block, so this
//! takes as long as the longest call, an import perhaps.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, RwLock, RwLockWriteGuard, TryLockError};

use rcuwalk::{Errno, Result, Task};

/// Several gates, so that threads do not all write to one.
static GATES: [RwLock<()>; 16] = [const { RwLock::new(()) }; 16];
/// The gate of the next thread.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// The process is a child of fork from within a call: who else was inside is not known.
static LOST: AtomicBool = AtomicBool::new(false);

thread_local! {
    static GATE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % GATES.len();
    /// Calls of this thread under way, one inside the other: a callback may call again.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Gates that this thread has closed in order to fork.
    static CLOSED: RefCell<Vec<RwLockWriteGuard<'static, ()>>> = const { RefCell::new(Vec::new()) };
}

/// Counts a call in and out.
struct Inside;

impl Inside {
    fn new() -> Inside {
        DEPTH.set(DEPTH.get() + 1);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Runs a function of the interface: its answer, or a negated error number; `-EIO` if it panicked, or if the process was
/// forked from within a call.
pub(crate) fn enter(function: impl FnOnce() -> Result<i64>) -> i64 {
    static FORKS: Once = Once::new();
    FORKS.call_once(crate::sys::watch_forks);
    // A nested call is inside already; the gate might be closing.
    let _open = (DEPTH.get() == 0)
        .then(|| GATES[GATE.with(|gate| *gate)].read().unwrap_or_else(PoisonError::into_inner));
    if LOST.load(Ordering::Relaxed) {
        return -i64::from(Errno::EIO.raw());
    }
    let _inside = Inside::new();
    let answer = catch_unwind(AssertUnwindSafe(function)).unwrap_or(Err(Errno::EIO));
    answer.unwrap_or_else(|errno| -i64::from(errno.raw()))
}

/// The task, for one call. Who comes from a callback does not wait, for it might be for itself.
///
/// # Errors
///
/// `EBUSY`.
pub(crate) fn lock(task: &Arc<Mutex<Task>>) -> Result<MutexGuard<'_, Task>> {
    if DEPTH.get() <= 1 {
        return Ok(task.lock().unwrap_or_else(PoisonError::into_inner));
    }
    match task.try_lock() {
        Ok(task) => Ok(task),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Errno::EBUSY),
    }
}

/// Before fork(2), in the thread that forks.
pub(crate) fn before_fork() {
    if DEPTH.get() == 0 {
        let closed = GATES.iter().map(|gate| gate.write().unwrap_or_else(PoisonError::into_inner));
        CLOSED.with_borrow_mut(|all| all.extend(closed));
    }
}

/// After fork(2), in the parent.
pub(crate) fn in_parent() {
    CLOSED.with_borrow_mut(Vec::clear);
}

/// After fork(2), in the child.
pub(crate) fn in_child() {
    if DEPTH.get() != 0 {
        LOST.store(true, Ordering::Relaxed);
    }
    crate::sys::renew_pid();
    CLOSED.with_borrow_mut(Vec::clear);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_become_errors() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        assert_eq!(enter(|| panic!("a mistake of the library")), -5);
        std::panic::set_hook(hook);
        assert_eq!(enter(|| Ok(7)), 7, "and nothing else");
        assert_eq!(enter(|| Err(Errno::ENOENT)), -2);
    }

    #[test]
    fn a_task_in_use_is_busy_for_callbacks() {
        let vfs = rcuwalk::Vfs::builder().capacity(64).build().expect("a file system");
        let task = Arc::new(Mutex::new(vfs.task(rcuwalk::Cred::root())));
        let answer = enter(|| {
            let _held = lock(&task)?;
            Ok(enter(|| lock(&task).map(|_| 0)))
        });
        assert_eq!(answer, -i64::from(Errno::EBUSY.raw()));
        assert_eq!(enter(|| lock(&task).map(|_| 0)), 0);
    }
}
