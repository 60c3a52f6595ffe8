//! The watched file system, as calls see it: what they wait for, and what they count.

use crate::base::errno::{Errno, Result};
use crate::dcache::store::Namespace;
use crate::tmpfs::pages::FileData;
use rcuwalk_sync::lock::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use rcuwalk_sync::{Racy32, Racy64};
use std::sync::Arc;

/// What makes a file system's state durable.
pub trait Backing: std::fmt::Debug + Send + Sync {
    /// Makes durable what was done before; fsync(2) and its like wait for it. Called with nothing locked that
    /// [`Changes::drain`] needs.
    ///
    /// # Errors
    ///
    /// `EIO`, `ENOSPC`: it is not durable, and is told of again with the next changes.
    fn sync(&self) -> Result<()>;
}

/// The watched file system, as calls see it.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Whether it is watched at all: all that calls look at where it is not.
    pub(crate) on: Racy32,
    /// Held shared by a call that changes contents, alone while changes are told.
    pub(crate) gate: RwLock<()>,
    pub(crate) backing: Mutex<Option<Arc<dyn Backing>>>,
    /// Bytes of contents that changed and were not told yet; written under the name space lock.
    pub(crate) unsaved: Racy64,
    /// The most of them before a writer has to wait.
    pub(crate) limit: Racy64,
    /// An error number that what takes space fails with; 0 if nothing does.
    pub(crate) refusal: Racy32,
}

impl Watch {
    /// Passed by calls that take space, with nothing locked. Kernel: `balance_dirty_pages_ratelimited()`.
    #[inline]
    pub(crate) fn admit(&self) -> Result<()> {
        if self.on.get() == 0 { Ok(()) } else { self.admit_watched() }
    }

    #[cold]
    fn admit_watched(&self) -> Result<()> {
        self.may_grow()?;
        if self.unsaved.get() > self.limit.get() { self.sync() } else { Ok(()) }
    }

    /// Whether what takes space is refused.
    #[inline]
    pub(crate) fn may_grow(&self) -> Result<()> {
        Errno::from_raw(self.refusal.get() as i32).map_or(Ok(()), Err)
    }

    /// Waits until what was done is durable, if anybody makes it so.
    pub(crate) fn sync(&self) -> Result<()> {
        if self.on.get() == 0 {
            return Ok(());
        }
        let backing = self.backing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        backing.map_or(Ok(()), |backing| backing.sync())
    }

    /// Keeps changes from being told while contents and attributes disagree.
    #[inline]
    pub(crate) fn enter(&self) -> Option<RwLockReadGuard<'_, ()>> {
        (self.on.get() != 0).then(|| self.gate.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts what an edit of contents changed; `before` was unsaved in them already.
    pub(crate) fn edited(&self, ns: &Namespace, data: &mut FileData, before: u64) {
        if ns.feed.is_some() {
            // Only an edit that began before the watch can come here without.
            if !data.is_tracked() {
                data.track();
                data.mark(0..u64::MAX);
            }
            self.unsaved.set(self.unsaved.get() + data.unsaved().saturating_sub(before));
        }
    }
}
