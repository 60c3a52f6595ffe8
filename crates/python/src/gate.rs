//! Keeps fork(2) of the interpreter away from engine calls under way.
//!
//! A child gets a copy of the engine's memory as it was at that moment, but only the thread that forked: a lock that
//! another thread held would stay held for ever. So every call enters here, and `os.fork` waits until all have left.

use std::cell::RefCell;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static GATE: RwLock<()> = RwLock::new(());

thread_local! {
    /// Held from before a fork until after it, by the thread that forks; in the child by that thread's copy.
    static FORKING: RefCell<Option<RwLockWriteGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// Enters an engine call, which must not need the interpreter before the guard is dropped.
pub(crate) fn enter() -> RwLockReadGuard<'static, ()> {
    GATE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no call is under way, and lets none begin.
pub(crate) fn before_fork() {
    let closed = GATE.write().unwrap_or_else(PoisonError::into_inner);
    FORKING.with(|held| *held.borrow_mut() = Some(closed));
}

/// Lets calls go on, in the parent and in the child.
pub(crate) fn after_fork() {
    FORKING.with(|held| held.borrow_mut().take());
}
