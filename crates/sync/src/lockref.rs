//! A reference count that a lockless walker may raise only while another holder keeps the object.
//!
//! Kernel: lib/lockref.c. Differs: no lock shares the word. What the kernel's lock guards, the name space lock guards
//! here, and the kernel's "dead" mark is a count of zero.

use crate::facade::{AtomicU32, Ordering, removed};

/// The count of references to a type-stable object; zero means free.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct LockRef(AtomicU32);

impl LockRef {
    /// Gives a free object its first reference. Only its allocator calls this.
    pub fn init(&self) {
        debug_assert_eq!(self.count(), 0, "a live object was initialised again");
        // [REF-3] pairs with [REF-1]: a thread that raises the count sees the object that was made before.
        // Model: models::get_sees_the_object_it_pins.
        self.0.store(1, ordering!("REF-3", Release));
    }

    /// The references now held; only a hint unless the caller excludes other holders.
    pub fn count(&self) -> u32 {
        // Relaxed: a hint.
        self.0.load(Ordering::Relaxed)
    }

    /// Takes a reference unless there is none left. The caller still has to validate that it is the object it looked
    /// for, and to [`put`](Self::put) it back if not.
    ///
    /// Kernel: `lockref_get_not_dead()`.
    #[inline]
    #[must_use]
    pub fn get_not_zero(&self) -> bool {
        // Relaxed: the exchange orders.
        let mut now = self.0.load(Ordering::Relaxed);
        while now != 0 && now != u32::MAX {
            // [REF-1] pairs with [REF-2] and [REF-3]: what earlier holders did to the object is visible to this one,
            // and the caller's validation cannot run before the count is raised.
            match self.0.compare_exchange_weak(now, now + 1, ordering!("REF-1", Acquire), Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => now = seen,
            }
        }
        false
    }

    /// Takes one more reference; the caller holds one already.
    ///
    /// Kernel: `lockref_get()`.
    #[inline]
    pub fn get(&self) {
        // Relaxed: the caller's own reference keeps the object, and orders what it knows of it.
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        debug_assert!(before != 0, "a reference was taken to a free object");
    }

    /// Gives a reference back; true if it was the last, so that the caller must free the object.
    ///
    /// Kernel: `lockref_put_return()`.
    #[inline]
    #[must_use]
    pub fn put(&self) -> bool {
        // [REF-2], the release half, pairs with [REF-4], the acquire half, and with [REF-1].
        // [REF-4] pairs with [REF-2]: the thread that frees the object has seen what every holder did to it.
        // Model: models::last_put_sees_every_holder.
        let half = ordering!("REF-4", AcqRel, Release);
        let before = self.0.fetch_sub(1, if removed("REF-2") { Ordering::Acquire } else { half });
        debug_assert!(before != 0, "a reference was given back twice");
        before == 1
    }
}
