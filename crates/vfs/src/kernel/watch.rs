//! The watched file system, as calls see it: what they wait for, and what they count.

use crate::base::errno::{Errno, Result};
use crate::dcache::feed::{CHUNK_BYTES, Costs};
use crate::dcache::store::Namespace;
use crate::tmpfs::pages::{CHUNK_PAGES, FileData, PAGE_SIZE};
use rcuwalk_sync::lock::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use rcuwalk_sync::{Racy32, Racy64};
use std::sync::Arc;

/// What makes a file system's state durable.
pub trait Backing: std::fmt::Debug + Send + Sync {
    /// Makes durable what was done before; fsync(2) and its like wait for it. Called with nothing locked that
    /// [`Changes::drain`](crate::changes::Changes::drain) needs.
    ///
    /// # Errors
    ///
    /// `EIO`, `ENOSPC`: it is not durable, and is told of again with the next changes.
    fn sync(&self) -> Result<()>;

    /// Called, with nothing locked, when changes need more than was [granted](crate::trees::changes::Changes::grant): grants more if there is room for
    /// it. If it does not, what takes space fails with `ENOSPC`.
    fn make_room(&self) {
        // What was made durable gives its room back.
        let _ = self.sync();
    }
}

/// The most that a call costs beside contents: a rename has two names, two directories, two files and what is gone; bytes.
const CALL_BYTES: u64 = 128 << 10;

/// What a call under way may cost.
#[derive(Debug)]
pub(crate) struct Room<'w> {
    watch: &'w Watch,
    bytes: u64,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        *self.watch.in_flight() -= self.bytes;
    }
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
    pub(crate) costs: Arc<Costs>,
    /// Bytes that calls under way may cost.
    in_flight: Mutex<u64>,
}

impl Watch {
    /// Passed by calls that change something, with nothing locked: sees to room for what the call costs when it is made durable.
    /// Whether there is any says [`may_grow`](Self::may_grow), where the call would take space. Kernel:
    /// `balance_dirty_pages_ratelimited()`.
    #[inline]
    pub(crate) fn admit(&self) -> Option<Room<'_>> {
        self.admit_whole(0)
    }

    /// Whether anything is made durable at all.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.get() != 0
    }

    /// The same as [`admit`](Self::admit) for a call that has so many bytes made durable that were not, or with others: of a file that
    /// gets its first name, of all the attributes beside one that is set.
    #[inline]
    pub(crate) fn admit_whole(&self, bytes: u64) -> Option<Room<'_>> {
        self.is_on().then(|| self.admit_watched(bytes.saturating_mul(2).saturating_add(CALL_BYTES)))
    }

    /// The same for a call that gives a file so many bytes of contents.
    ///
    /// # Errors
    ///
    /// As [`may_grow`](Self::may_grow).
    #[inline]
    pub(crate) fn admit_contents(&self, bytes: u64) -> Result<Option<Room<'_>>> {
        if !self.is_on() { Ok(None) } else { self.admit_contents_watched(bytes).map(Some) }
    }

    #[cold]
    fn admit_contents_watched(&self, bytes: u64) -> Result<Room<'_>> {
        // The first chunk, and those in which they begin and end.
        let chunks = bytes / (CHUNK_PAGES * PAGE_SIZE as u64) + 3;
        if self.unsaved.get() > self.limit.get() {
            self.sync()?;
        }
        let room = self.admit_watched(chunks.saturating_mul(CHUNK_BYTES).saturating_add(CALL_BYTES));
        self.may_grow_watched()?;
        Ok(room)
    }

    #[cold]
    fn admit_watched(&self, bytes: u64) -> Room<'_> {
        // More than any disk has, and not so much that calls could not be added up.
        let bytes = bytes.min(1 << 50);
        *self.in_flight() += bytes;
        let room = Room { watch: self, bytes };
        if !self.has_room() {
            self.backing().iter().for_each(|backing| backing.make_room());
        }
        room
    }

    /// Whether all calls under way have room.
    fn has_room(&self) -> bool {
        let in_flight = self.in_flight();
        *in_flight <= self.costs.left.get()
    }

    pub(crate) fn in_flight(&self) -> MutexGuard<'_, u64> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a call that was [admitted](Self::admit) may take space.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: there is no room to make it durable; what the last attempt to make changes durable failed with.
    #[inline]
    pub(crate) fn may_grow(&self) -> Result<()> {
        if !self.is_on() { Ok(()) } else { self.may_grow_watched() }
    }

    #[cold]
    fn may_grow_watched(&self) -> Result<()> {
        Errno::from_raw(self.refusal.get() as i32).map_or(Ok(()), Err)?;
        if self.has_room() { Ok(()) } else { Err(Errno::ENOSPC) }
    }

    fn backing(&self) -> Option<Arc<dyn Backing>> {
        self.backing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until what was done is durable, if anybody makes it so.
    pub(crate) fn sync(&self) -> Result<()> {
        if self.on.get() == 0 {
            return Ok(());
        }
        self.backing().map_or(Ok(()), |backing| backing.sync())
    }

    /// Keeps changes from being told while contents and attributes disagree.
    #[inline]
    pub(crate) fn enter(&self) -> Option<RwLockReadGuard<'_, ()>> {
        (self.on.get() != 0).then(|| self.gate.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts what an edit of contents changed; so many bytes were unsaved in them before, and so many chunks.
    #[inline]
    pub(crate) fn edited(&self, ns: &Namespace, data: &mut FileData, (bytes, chunks): (u64, u64)) {
        if ns.feed.is_some() {
            // Only an edit that began before the watch can come here without.
            if !data.is_tracked() {
                data.track();
                data.mark(0..u64::MAX);
            }
            let (bytes_now, chunks_now) = data.unsaved();
            self.unsaved.set(self.unsaved.get() + bytes_now.saturating_sub(bytes));
            // The first chunk is told of with any other: it moves into the inode's record, or out of it.
            let first = u64::from(chunks == 0 && chunks_now != 0);
            self.costs.spend((chunks_now.saturating_sub(chunks) + first) * CHUNK_BYTES);
        }
    }
}
