//! How many tasks and namespaces a user has, in each user namespace.
//!
//! What a user makes counts for him, for the owner of the namespace he is in, for the owner of the one around that, and so on: a
//! user namespace gives nobody more than its owner may have.
//!
//! Kernel: kernel/ucount.c.

use crate::base::errno::{Errno, Result};
use crate::cred::Cred;
use crate::cred::userns::UserNamespace;
use rcuwalk_sync::Tally;
use rcuwalk_sync::lock::{Mutex, PoisonError};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// A kind of namespace of which a user has a limited number.
///
/// Kernel: include/linux/user_namespace.h `enum ucount_type`. Differs: the other kinds are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ucount {
    /// `user.max_user_namespaces`: user namespaces that tasks made.
    UserNamespaces,
    /// `user.max_mnt_namespaces`: mount namespaces that tasks made, and trees that open_tree(2) made and nobody mounted yet.
    MntNamespaces,
}

impl Ucount {
    pub(crate) const ALL: [Ucount; 2] = [Ucount::UserNamespaces, Ucount::MntNamespaces];

    /// The most there can be of any kind, which is also the limit until one is set. Kernel: `INT_MAX`.
    pub const MAX: u64 = i32::MAX as u64;
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Namespaces(Ucount),
    Tasks,
}

impl Kind {
    fn index(self) -> usize {
        match self {
            Kind::Namespaces(kind) => kind as usize,
            Kind::Tasks => Ucount::ALL.len(),
        }
    }
}

/// A user of a user namespace. Kernel: `struct ucounts`.
#[derive(Debug)]
pub(crate) struct UserCount {
    pub(crate) ns: Arc<UserNamespace>,
    uid: u32,
    /// The owner of `ns`, in the namespace around it. Kernel: `user_namespace.ucounts`.
    above: Option<Arc<UserCount>>,
    used: [Tally; Ucount::ALL.len() + 1],
}

impl UserCount {
    /// Whether this counts what is made with that credential.
    pub(crate) fn is_of(&self, cred: &Cred) -> bool {
        self.uid == cred.uid() && self.ns.is(cred.user_ns())
    }

    /// This user, and the owner of each namespace around him.
    fn chain(&self) -> impl Iterator<Item = &UserCount> {
        std::iter::successors(Some(self), |user| user.above.as_deref())
    }

    /// Counts one of a kind for all of the [`chain`](Self::chain), if none of them has `most` already.
    fn count(self: &Arc<Self>, kind: Kind, most: impl Fn(&UserNamespace) -> u64) -> Option<Counted> {
        let refused = self.chain().position(|user| !user.used[kind.index()].charge(1, most(&user.ns)));
        if let Some(refused) = refused {
            self.chain().take(refused).for_each(|user| user.used[kind.index()].release(1));
            return None;
        }
        Some(Counted { user: Arc::clone(self), kind })
    }

    /// Counts one more task of this user, however many he has.
    pub(crate) fn count_task(self: &Arc<Self>) -> Counted {
        match self.count(Kind::Tasks, |_| u64::MAX) {
            Some(counted) => counted,
            None => unreachable!("nobody has 2^64 tasks"),
        }
    }

    /// Counts one more namespace of this user. `most` is the limit in the initial user namespace, for each user there; every other
    /// one has its own.
    ///
    /// # Errors
    ///
    /// `ENOSPC`.
    ///
    /// Kernel: `inc_ucount()`.
    pub(crate) fn count_namespace(self: &Arc<Self>, kind: Ucount, most: u64) -> Result<Counted> {
        let most = |ns: &UserNamespace| if ns.is_init() { most } else { ns.ucount_max(kind) };
        self.count(Kind::Namespaces(kind), most).ok_or(Errno::ENOSPC)
    }

    /// Whether this user has more than `most` tasks, or the owner of a namespace around him more than his share.
    ///
    /// Kernel: `is_rlimit_overlimit()`.
    pub(crate) fn has_more_tasks_than(&self, mut most: u64) -> bool {
        self.chain().any(|user| {
            let over = user.used[Kind::Tasks.index()].used() > most;
            most = user.ns.process_limit();
            over
        })
    }
}

/// One thing that a user has, which counts until this is dropped. Kernel: `dec_ucount()`.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) user: Arc<UserCount>,
    kind: Kind,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.user.chain().for_each(|user| user.used[self.kind.index()].release(1));
    }
}

/// The users that have anything, by namespace and number.
#[derive(Debug, Default)]
pub(crate) struct UserCounts(Mutex<HashMap<(usize, u32), Weak<UserCount>>>);

impl UserCounts {
    /// Whose a task with this credential is.
    pub(crate) fn of(&self, cred: &Cred) -> Arc<UserCount> {
        self.get(cred.user_ns(), cred.uid())
    }

    /// The user of a namespace with kernel id `uid`.
    ///
    /// Kernel: `alloc_ucounts()`.
    pub(crate) fn get(&self, ns: &Arc<UserNamespace>, uid: u32) -> Arc<UserCount> {
        // Not under the lock: it goes up 33 namespaces at most.
        let above = ns.parent().map(|parent| self.get(parent, ns.owner()));
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (Arc::as_ptr(ns) as usize, uid);
        if let Some(user) = map.get(&key).and_then(Weak::upgrade) {
            return user;
        }
        if map.len() == map.capacity() {
            // Before it would grow: that keeps it within twice what there is.
            map.retain(|_, user| user.strong_count() != 0);
            let live = map.len();
            map.reserve(live + 8);
        }
        let user = Arc::new(UserCount { ns: Arc::clone(ns), uid, above, used: Default::default() });
        map.insert(key, Arc::downgrade(&user));
        user
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_without_tasks_are_forgotten() {
        let counts = UserCounts::default();
        let kept = counts.of(&Cred::user(0, 0, &[]));
        (1..10_000).for_each(|uid| drop(counts.of(&Cred::user(uid, 0, &[]))));
        assert!(counts.0.lock().unwrap().len() < 100);
        assert!(Arc::ptr_eq(&kept, &counts.of(&Cred::user(0, 0, &[]))));
    }
}
