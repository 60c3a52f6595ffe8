//! How many tasks a user has, in each user namespace.
//!
//! Kernel: kernel/ucount.c.

use crate::cred::Cred;
use crate::cred::userns::UserNamespace;
use rcuwalk_sync::lock::{Mutex, PoisonError};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// A user of a user namespace, held by each task of his. Kernel: `struct ucounts`.
#[derive(Debug)]
pub(crate) struct UserCount {
    pub(crate) ns: Arc<UserNamespace>,
    uid: u32,
}

impl UserCount {
    /// Whether this counts tasks with that credential.
    pub(crate) fn is_of(&self, cred: &Cred) -> bool {
        self.uid == cred.uid() && self.ns.is(cred.user_ns())
    }

    /// Whether tasks of this user are also that one's, who owns a namespace around them.
    fn counts_for(&self, other: &UserCount) -> bool {
        let (mut ns, mut uid) = (&self.ns, self.uid);
        loop {
            if uid == other.uid && ns.is(&other.ns) {
                return true;
            }
            let Some(parent) = ns.parent() else { return false };
            (ns, uid) = (parent, ns.owner());
        }
    }
}

/// The users that have tasks, by namespace and number.
#[derive(Debug, Default)]
pub(crate) struct UserCounts(Mutex<HashMap<(usize, u32), Weak<UserCount>>>);

impl UserCounts {
    fn map(&self) -> rcuwalk_sync::lock::MutexGuard<'_, HashMap<(usize, u32), Weak<UserCount>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose task one with this credential is.
    pub(crate) fn of(&self, cred: &Cred) -> Arc<UserCount> {
        let mut map = self.map();
        let key = (Arc::as_ptr(cred.user_ns()) as usize, cred.uid());
        if let Some(user) = map.get(&key).and_then(Weak::upgrade) {
            return user;
        }
        if map.len() == map.capacity() {
            // Before it would grow: that keeps it within twice what there is.
            map.retain(|_, user| user.strong_count() != 0);
            let live = map.len();
            map.reserve(live + 8);
        }
        let user = Arc::new(UserCount { ns: Arc::clone(cred.user_ns()), uid: cred.uid() });
        map.insert(key, Arc::downgrade(&user));
        user
    }

    /// Whether a user has more than `most` tasks, or the owner of a namespace around him more than his share. `more` are to
    /// be counted beside those that hold `user`.
    ///
    /// Kernel: kernel/ucount.c `is_rlimit_overlimit()`.
    pub(crate) fn is_over(&self, user: &UserCount, mut most: u64, more: isize) -> bool {
        let map = self.map();
        let mut at = UserCount { ns: Arc::clone(&user.ns), uid: user.uid };
        loop {
            let tasks: usize = map
                .values()
                .filter(|other| other.upgrade().is_some_and(|other| other.counts_for(&at)))
                .map(Weak::strong_count)
                .sum();
            if tasks.saturating_add_signed(more) as u64 > most {
                return true;
            }
            most = at.ns.process_limit();
            let Some(parent) = at.ns.parent() else { return false };
            at = UserCount { uid: at.ns.owner(), ns: Arc::clone(parent) };
        }
    }
}
