//! Reserved address space: one anonymous mapping of zeroes that never moves and costs memory only where it is touched.

use crate::AllocError;
use std::ptr::NonNull;
// Outside of the models, as it orders nothing.
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The size of a huge page on x86-64 and arm64 with 4 KiB base pages.
const HUGE: usize = 2 << 20;

/// How long before growth enters a huge page it is to be prepared: 4,096 slots of 128 bytes, some milliseconds' work.
const AHEAD: usize = HUGE / 4;

/// A range of zeroed bytes, aligned to at least 4 KiB, readable and writable throughout.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
    /// Where the huge page begins that growth comes to next, while nobody has prepared it; else 0. Relaxed: it guards no memory.
    next: AtomicUsize,
}

// SAFETY: a `Region` is an address range; who may touch which byte is the business of its users.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `len` bytes (not zero) without committing memory.
    #[cfg(not(miri))]
    pub(crate) fn reserve(len: usize) -> Result<Region, AllocError> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice overlaps nothing.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) };
        match base.map(|base| NonNull::new(base.cast())) {
            Ok(Some(base)) => Ok(Region { base, len, next: AtomicUsize::new(0) }),
            _ => Err(AllocError::NoMemory),
        }
    }

    /// Under Miri, which has no lazy mappings, the range is ordinary zeroed memory.
    #[cfg(miri)]
    pub(crate) fn reserve(len: usize) -> Result<Region, AllocError> {
        // SAFETY: the layout has a non-zero size.
        let base = unsafe { std::alloc::alloc_zeroed(Self::layout(len)) };
        let next = AtomicUsize::new(0);
        NonNull::new(base).map(|base| Region { base, len, next }).ok_or(AllocError::NoMemory)
    }

    #[cfg(miri)]
    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len, 4096).expect("a page-aligned layout")
    }

    /// The first byte.
    #[inline(always)]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Told of growth from `before` to `after` bytes in use, which others wait for: sees to it that huge pages are there when they are
    /// entered, the first excepted. [`prepare`](Self::prepare) makes them; where nobody calls it, the first access does.
    ///
    /// A store that has outgrown one huge page is worth them: at a million files a third of a random lookup is page
    /// table walks. A small store is not, and stays at 4 KiB pages.
    pub(crate) fn grown(&self, before: usize, after: usize) {
        if before / HUGE != after / HUGE && self.next.swap(0, Relaxed) != 0 {
            self.advise_huge(after / HUGE * HUGE, HUGE);
        }
        let next = (after + AHEAD) / HUGE * HUGE;
        if (before + AHEAD) / HUGE != (after + AHEAD) / HUGE && next + HUGE <= self.len && !cfg!(miri) {
            self.next.store(next, Relaxed);
        }
    }

    /// Makes the huge page that growth comes to next, if that is near. To clear it takes a tenth of a millisecond, and much longer on a
    /// virtual machine whose host has to find the memory.
    #[inline]
    pub(crate) fn prepare(&self) {
        if self.next.load(Relaxed) != 0 {
            self.prepare_next();
        }
    }

    #[cold]
    fn prepare_next(&self) {
        let next = self.next.swap(0, Relaxed);
        if next != 0 {
            self.advise_huge(next, HUGE);
            self.populate(next, HUGE);
        }
    }

    /// Asks for huge pages throughout.
    pub(crate) fn prefer_huge_pages(&self) {
        if !cfg!(miri) {
            self.advise_huge(0, self.len);
        }
    }

    /// Asks for huge pages in `len` bytes from byte `from` on, which is a multiple of the page size.
    fn advise_huge(&self, from: usize, len: usize) {
        assert!(from.is_multiple_of(4096) && from.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: the range lies inside the reservation, as just checked; advice changes no byte. `from` counts from
        // the base, which mmap aligned to a page, as madvise demands. Being advice, its failure costs nothing.
        let _ = unsafe {
            rustix::mm::madvise(
                self.base.as_ptr().wrapping_add(from).cast(),
                len,
                rustix::mm::Advice::LinuxHugepage,
            )
        };
    }
}

impl Region {
    /// Has `len` bytes from byte `from` on backed by memory, as if each was written without a change. `from` is a multiple of the page size.
    fn populate(&self, from: usize, len: usize) {
        assert!(from.is_multiple_of(4096) && from.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: the range lies inside the reservation, as just checked, which is readable and writable; no byte changes. `from`
        // counts from the base, which mmap aligned to a page. Where it fails, each page comes when it is first touched.
        let _ = unsafe {
            rustix::mm::madvise(
                self.base.as_ptr().wrapping_add(from).cast(),
                len,
                rustix::mm::Advice::LinuxPopulateWrite,
            )
        };
    }

    /// Gives the memory of `len` bytes at `from` back; they read as zero afterwards. Both are whole pages.
    pub(crate) fn discard(&self, from: usize, len: usize) {
        assert!(from.is_multiple_of(4096) && from.checked_add(len).is_some_and(|end| end <= self.len));
        if cfg!(miri) || len == 0 {
            return;
        }
        // SAFETY: the range lies inside the reservation, which is private and anonymous: its pages become zero pages.
        // Every user of a `Region` keeps only atomic words in it, for which zero is a valid value at any time.
        let _ = unsafe {
            rustix::mm::madvise(
                self.base.as_ptr().wrapping_add(from).cast(),
                len,
                rustix::mm::Advice::LinuxDontNeed,
            )
        };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, whole, and nobody holds a reference into it once its owner is dropped.
        #[cfg(not(miri))]
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        // SAFETY: allocated by `reserve` with this very layout.
        #[cfg(miri)]
        unsafe {
            std::alloc::dealloc(self.base.as_ptr(), Self::layout(self.len));
        }
    }
}
