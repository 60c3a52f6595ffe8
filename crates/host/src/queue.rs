//! Directories that are still to be read, and how threads share them.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::batch::{Token, join};

/// An open directory that jobs below it start from.
pub(crate) struct Anchor {
    pub(crate) fd: OwnedFd,
    /// Its path, for messages.
    pub(crate) path: Vec<u8>,
}

/// A directory to read.
pub(crate) struct Job {
    pub(crate) anchor: Arc<Anchor>,
    /// From the anchor; "." is the anchor itself.
    pub(crate) path: Vec<u8>,
    pub(crate) token: Token,
    /// What the parent listed.
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

impl Job {
    /// The path for messages.
    pub(crate) fn full_path(&self) -> Vec<u8> {
        if self.path == b"." { self.anchor.path.clone() } else { join(&self.anchor.path, &self.path) }
    }
}

/// Jobs that threads have given away. A thread keeps its own jobs to itself while no thread is idle, so this lock is taken
/// when a thread runs dry, not for every directory.
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    wake: Condvar,
    /// Threads that wait; a hint for those that work.
    hungry: AtomicUsize,
    threads: usize,
}

struct QueueState {
    jobs: Vec<Job>,
    waiting: usize,
    closed: bool,
}

impl Queue {
    pub(crate) fn new(first: Job, threads: usize) -> Queue {
        Queue {
            state: Mutex::new(QueueState { jobs: vec![first], waiting: 0, closed: false }),
            wake: Condvar::new(),
            hungry: AtomicUsize::new(0),
            threads,
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // A panicking thread leaves the state whole: no call below can panic between two changes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job; `None` when every thread is here, so that no more can come.
    pub(crate) fn take(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.jobs.pop() {
                return Some(job);
            }
            if state.waiting + 1 == self.threads {
                state.closed = true;
                self.wake.notify_all();
                return None;
            }
            state.waiting += 1;
            self.hungry.store(state.waiting, Relaxed);
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
            self.hungry.store(state.waiting, Relaxed);
        }
    }

    pub(crate) fn give(&self, jobs: impl Iterator<Item = Job>) {
        self.lock().jobs.extend(jobs);
        self.wake.notify_all();
    }

    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_all();
    }

    /// Whether a thread waits for work that is not there.
    pub(crate) fn is_hungry(&self) -> bool {
        self.hungry.load(Relaxed) > 0
    }

    /// Should this thread panic, the others must not wait for its share.
    pub(crate) fn close_on_panic(&self) -> CloseOnPanic<'_> {
        CloseOnPanic(self)
    }
}

/// See [`Queue::close_on_panic`].
pub(crate) struct CloseOnPanic<'a>(&'a Queue);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close();
        }
    }
}
