//! Words that are read while they may be written.
//!
//! A field under a sequence count is read by walkers that a writer does not wait for. In Rust a plain racy read is
//! undefined behaviour, so such a field is an atomic, read and written `Relaxed`: the count's own fences order it.

use crate::facade::{AtomicU32, AtomicU64, Ordering};

/// A 32-bit word that another object's sequence count covers.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Racy32(AtomicU32);

/// A 64-bit word that another object's sequence count covers.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Racy64(AtomicU64);

macro_rules! racy {
    ($racy:ident, $atomic:ident, $word:ty) => {
        impl $racy {
            /// A word that holds `value`.
            pub fn new(value: $word) -> Self {
                Self($atomic::new(value))
            }

            /// The word as this thread sees it now; the caller validates it by the sequence count that covers it.
            #[inline(always)]
            pub fn get(&self) -> $word {
                // Relaxed: the count's [SEQ-1] and [SEQ-2] order this read.
                self.0.load(Ordering::Relaxed)
            }

            /// Replaces the word; the caller holds the write side of the sequence count that covers it.
            #[inline(always)]
            pub fn set(&self, value: $word) {
                // Relaxed: the count's [SEQ-3] and [SEQ-4] order this write.
                self.0.store(value, Ordering::Relaxed);
            }
        }
    };
}

racy!(Racy32, AtomicU32, u32);
racy!(Racy64, AtomicU64, u64);

/// A statistic: a sum that many threads add to and nobody decides by.
#[derive(Debug, Default)]
#[repr(transparent)]
// Outside the models, as it orders nothing.
pub struct Counter(std::sync::atomic::AtomicU64);

impl Counter {
    /// Adds `n`. Writes shared memory: not for hot paths.
    pub fn add(&self, n: u64) {
        // Relaxed: a sum orders nothing.
        self.0.fetch_add(n, std::sync::atomic::Ordering::Relaxed);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        // Relaxed: as above.
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// Numbers that are given out once each, from 1 on.
///
/// ```
/// static TICKETS: rcuwalk_sync::Serial = rcuwalk_sync::Serial::new();
/// assert_ne!(TICKETS.next(), TICKETS.next());
/// ```
#[derive(Debug)]
// As above, and a static cannot hold an atomic of theirs.
pub struct Serial(std::sync::atomic::AtomicU64);

impl Serial {
    /// A series that starts with 1.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Serial {
        Serial(std::sync::atomic::AtomicU64::new(1))
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        // Relaxed: each caller gets another number, in whatever order.
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
}
