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
