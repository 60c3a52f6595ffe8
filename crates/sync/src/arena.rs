//! Type-stable objects addressed by 32-bit handles.

use crate::lock::{Mutex, PoisonError};
#[cfg(not(any(loom, shuttle)))]
use crate::mem::Region;
use crate::{AllocError, Budget};
#[cfg(not(any(loom, shuttle)))]
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// A slot number. Handle 0 is never given out, so it can stand for "none".
pub type Handle = u32;

/// Types whose every field is an atomic word, so that zeroed memory is a value of them and a racy read is defined.
///
/// # Safety
///
/// 1. All-zero bytes are a valid value of the type.
/// 2. The type has no drop glue and no padding that is read.
/// 3. Shared access from any number of threads is sound at any time.
///
/// Implemented by [`type_stable!`](crate::type_stable) alone, which proves all three from the field types.
#[doc(hidden)]
pub unsafe trait TypeStable: Default + Sync {}

// SAFETY: 1, 2, 3: atomic integers.
unsafe impl TypeStable for crate::Racy32 {}
// SAFETY: as above.
unsafe impl TypeStable for crate::Racy64 {}
// SAFETY: as above; the type is a transparent atomic.
unsafe impl TypeStable for crate::SeqCount {}
// SAFETY: as above.
unsafe impl TypeStable for crate::LockRef {}
// SAFETY: as above.
unsafe impl TypeStable for crate::chains::Link {}
// SAFETY: 1, 2, 3 hold for an array when they hold for its elements.
unsafe impl<T: TypeStable, const N: usize> TypeStable for [T; N] where [T; N]: Default {}

/// Defines a struct that may live in an [`Arena`]: every field is itself type-stable.
///
/// ```
/// rcuwalk_sync::type_stable! {
///     /// A point that may be read while it moves.
///     pub struct Point {
///         /// Covers `x` and `y`.
///         pub seq: rcuwalk_sync::SeqCount,
///         /// Metres east.
///         pub x: rcuwalk_sync::Racy32,
///         /// Metres north.
///         pub y: rcuwalk_sync::Racy32,
///     }
/// }
/// let arena = rcuwalk_sync::Arena::<Point>::new(1000)?;
/// let here = arena.alloc()?;
/// arena.get(here).x.set(7);
/// assert_eq!(arena.get(here).x.get(), 7);
/// # Ok::<(), rcuwalk_sync::AllocError>(())
/// ```
#[macro_export]
macro_rules! type_stable {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$fmeta:meta])* $fvis:vis $field:ident: $type:ty,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        #[repr(C)]
        $vis struct $name { $($(#[$fmeta])* $fvis $field: $type,)+ }

        const _: () = {
            const fn fields_are_type_stable<T: $crate::TypeStable>() {}
            $(fields_are_type_stable::<$type>();)+
            assert!(!::core::mem::needs_drop::<$name>());
        };

        // SAFETY: 1 and 3 hold because they hold for every field, as the constant above checks at compile time; 2 is
        // asserted there too, and padding between atomic fields is never read.
        unsafe impl $crate::TypeStable for $name {}
    };
}

/// A fixed number of type-stable slots in one reserved range. Slots never move and are never unmapped while the arena
/// lives, and reading one needs no lock and no pin.
#[derive(Debug)]
pub struct Arena<T> {
    #[cfg(not(any(loom, shuttle)))]
    slots: std::ptr::NonNull<T>,
    #[cfg(any(loom, shuttle))]
    slots: Box<[T]>,
    /// Capacity minus one; the capacity is a power of two.
    mask: u32,
    free: Mutex<Free>,
    account: Option<Account>,
    #[cfg(not(any(loom, shuttle)))]
    region: Region,
}

/// See [`Arena::view`].
#[derive(Debug)]
pub struct View<'a, T> {
    #[cfg(not(any(loom, shuttle)))]
    slots: std::ptr::NonNull<T>,
    #[cfg(any(loom, shuttle))]
    slots: &'a [T],
    mask: u32,
    #[cfg(not(any(loom, shuttle)))]
    arena: PhantomData<&'a Arena<T>>,
}

impl<T> Clone for View<'_, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for View<'_, T> {}

impl<'a, T: TypeStable> View<'a, T> {
    /// As [`Arena::get`].
    #[inline(always)]
    pub fn get(self, handle: Handle) -> &'a T {
        let index = (handle & self.mask) as usize;
        #[cfg(any(loom, shuttle))]
        return &self.slots[index];
        // SAFETY: `index` is below the capacity, so the slot lies in the reservation, which lives as long as the arena,
        // borrowed for `'a`. Its bytes are zero or were written through `&T`, and both are valid: `T: TypeStable`.
        #[cfg(not(any(loom, shuttle)))]
        unsafe {
            self.slots.add(index).as_ref()
        }
    }
}

impl<'a, T: TypeStable> View<'a, T> {
    /// As [`get`](Self::get), without the wrapping.
    ///
    /// # Safety
    ///
    /// 1. `index` is at most [`Arena::capacity`].
    #[inline(always)]
    pub(crate) unsafe fn get_unchecked(self, index: u32) -> &'a T {
        debug_assert!(index <= self.mask, "slot {index} is outside of the reservation");
        #[cfg(any(loom, shuttle))]
        return &self.slots[index as usize];
        // SAFETY: by 1 the slot lies in the reservation; the rest as in `get`.
        #[cfg(not(any(loom, shuttle)))]
        unsafe {
            self.slots.add(index as usize).as_ref()
        }
    }

    /// Asks the processor to fetch the cache line with byte `offset` of slot `handle`, which will be read soon.
    #[inline(always)]
    pub fn prefetch(self, handle: Handle, offset: usize) {
        // SAFETY: a prefetch touches no memory as far as the program can tell, whatever the address.
        #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let slot = self.slots.as_ptr().wrapping_add((handle & self.mask) as usize);
            _mm_prefetch::<_MM_HINT_T0>(slot.cast::<i8>().wrapping_add(offset));
        }
        #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
        let _ = (handle, offset);
    }
}

/// Slots of a chunk: as many as a word has bits.
const CHUNK: u32 = u64::BITS;

/// What is not in use: everything from `next` on, and what the chunks say.
#[derive(Debug, Default)]
struct Free {
    next: u32,
    in_use: u32,
    chunks: Vec<Chunk>,
    /// Chunks with free slots, the one that was given back to last at the end. Some may have none any more, or be cold.
    warm: Vec<u32>,
    /// Chunks that nobody used when they were put here.
    idle: Vec<u32>,
    /// Chunks whose memory was given back.
    cold: Vec<u32>,
}

/// A chunk that slots were taken from.
#[derive(Debug, Clone, Copy, Default)]
struct Chunk {
    /// One bit for each slot that was given back.
    free: u64,
    is_warm: bool,
    is_idle: bool,
    is_cold: bool,
}

impl Free {
    /// A free slot of a chunk that has its memory.
    fn pop(&mut self) -> Option<Handle> {
        while let Some(&at) = self.warm.last() {
            let chunk = &mut self.chunks[at as usize];
            if chunk.free != 0 && !chunk.is_cold {
                let slot = chunk.free.trailing_zeros();
                chunk.free &= chunk.free - 1;
                self.in_use += 1;
                return Some(at * CHUNK + slot);
            }
            chunk.is_warm = false;
            self.warm.pop();
        }
        None
    }

    fn push(&mut self, handle: Handle) {
        let at = handle / CHUNK;
        let chunk = &mut self.chunks[at as usize];
        debug_assert!(chunk.free >> (handle % CHUNK) & 1 == 0, "slot {handle} was given back twice");
        chunk.free |= 1 << (handle % CHUNK);
        self.in_use -= 1;
        // There is room in both lists: `begin_chunk` saw to it.
        if !std::mem::replace(&mut chunk.is_warm, true) {
            self.warm.push(at);
        }
        if chunk.free == u64::MAX && !std::mem::replace(&mut chunk.is_idle, true) {
            self.idle.push(at);
        }
    }

    /// Makes room for one more chunk in all lists, so that no list has to grow when a slot is given back.
    fn begin_chunk(&mut self) -> Result<(), AllocError> {
        let all = self.chunks.len() + 1;
        for list in [&mut self.warm, &mut self.idle, &mut self.cold] {
            list.try_reserve(all - list.len()).map_err(|_| AllocError::NoMemory)?;
        }
        self.chunks.try_reserve(1).map_err(|_| AllocError::NoMemory)?;
        self.chunks.push(Chunk::default());
        Ok(())
    }
}

/// Whose memory the slots of an arena are counted as, and how many bytes each.
#[derive(Debug)]
struct Account {
    budget: Arc<Budget>,
    slot: u64,
}

// SAFETY: `slots` points into `region`, which the arena owns; `T: TypeStable` may be shared between threads.
#[cfg(not(any(loom, shuttle)))]
unsafe impl<T: TypeStable> Send for Arena<T> {}
// SAFETY: as above.
#[cfg(not(any(loom, shuttle)))]
unsafe impl<T: TypeStable> Sync for Arena<T> {}

impl<T: TypeStable> Arena<T> {
    /// Reserves room for at least `capacity` objects (2³¹ at most), of which handle 0 is never given out. Memory is
    /// committed only where a slot is touched.
    ///
    /// # Errors
    ///
    /// [`AllocError::NoMemory`] if the system refuses the address space.
    pub fn new(capacity: u32) -> Result<Self, AllocError> {
        if capacity > 1 << 31 {
            return Err(AllocError::NoMemory);
        }
        // The rounding to whole pages keeps `Region::discard` and huge page advice on page boundaries.
        let capacity = capacity.next_power_of_two().max(2);
        let free = Mutex::new(Free { next: 1, ..Free::default() });
        #[cfg(any(loom, shuttle))]
        return Ok(Arena {
            slots: (0..capacity).map(|_| T::default()).collect(),
            mask: capacity - 1,
            free,
            account: None,
        });
        #[cfg(not(any(loom, shuttle)))]
        {
            const { assert!(align_of::<T>() <= 4096 && size_of::<T>() != 0) };
            let bytes = (capacity as usize).checked_mul(size_of::<T>()).ok_or(AllocError::NoMemory)?;
            let region = Region::reserve(bytes.next_multiple_of(4096))?;
            Ok(Arena { slots: region.base().cast(), mask: capacity - 1, free, account: None, region })
        }
    }

    /// The object in slot `handle`, live or not. A handle beyond the capacity wraps: it too leads to a valid object,
    /// which the caller's validation then rejects.
    #[inline(always)]
    pub fn get(&self, handle: Handle) -> &T {
        self.view().get(handle)
    }

    /// What is needed to get at the slots, by value. A loop that holds it in registers does not read it again after
    /// each acquiring load, as it would have to read the arena's own fields.
    #[inline(always)]
    pub fn view(&self) -> View<'_, T> {
        #[cfg(any(loom, shuttle))]
        return View { slots: &self.slots, mask: self.mask };
        #[cfg(not(any(loom, shuttle)))]
        View { slots: self.slots, mask: self.mask, arena: PhantomData }
    }

    /// The same, whose slots count `slot` bytes each against `budget`: by the chunk, from when one is begun until its memory is
    /// [given back](Self::give_back).
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn counted(capacity: u32, budget: Option<Arc<Budget>>, slot: u64) -> Result<Self, AllocError> {
        Ok(Arena { account: budget.map(|budget| Account { budget, slot }), ..Arena::new(capacity)? })
    }

    fn charge_chunk(&self) -> Result<(), AllocError> {
        let paid = |account: &Account| account.budget.charge(account.slot * u64::from(CHUNK));
        if self.account.as_ref().is_none_or(paid) { Ok(()) } else { Err(AllocError::NoMemory) }
    }

    /// Takes a slot that nobody uses. Its words are as its last user left them, or zero.
    ///
    /// # Errors
    ///
    /// [`AllocError::Full`] when every slot is in use. [`AllocError::NoMemory`] when the budget is used up.
    pub fn alloc(&self) -> Result<Handle, AllocError> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = free.pop() {
            return Ok(handle);
        }
        self.alloc_cold(&mut free)
    }

    /// Takes a slot of a chunk that has no memory yet, or none any more.
    fn alloc_cold(&self, free: &mut Free) -> Result<Handle, AllocError> {
        if let Some(&at) = free.cold.last() {
            self.charge_chunk()?;
            free.cold.pop();
            let chunk = &mut free.chunks[at as usize];
            chunk.is_cold = false;
            if !std::mem::replace(&mut chunk.is_warm, true) {
                free.warm.push(at);
            }
            return free.pop().ok_or(AllocError::Full);
        }
        if free.next > self.mask {
            return Err(AllocError::Full);
        }
        let handle = free.next;
        if (handle / CHUNK) as usize == free.chunks.len() {
            free.begin_chunk()?;
            if let Err(refused) = self.charge_chunk() {
                free.chunks.pop();
                return Err(refused);
            }
        }
        free.next += 1;
        free.in_use += 1;
        #[cfg(not(any(loom, shuttle)))]
        {
            let bytes = |slots: u32| slots as usize * size_of::<T>();
            self.region.grown(bytes(handle), bytes(handle + 1));
        }
        Ok(handle)
    }

    /// Gives a slot back. Readers may still hold its handle; it stays a valid object. Says whether more than `keep` chunks, of 64
    /// slots each, are free as a whole, so that memory could be [given back](Self::give_back).
    pub fn free(&self, handle: Handle, keep: u32) -> bool {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        debug_assert!(handle != 0 && handle < free.next, "slot {handle} was never given out");
        free.push(handle);
        free.idle.len() > keep as usize
    }

    /// Gives the memory of a chunk that nobody uses back to the system, if there is one and `retire` agrees, which is told its
    /// slots. They read as zero from then on, whenever a reader with a stale handle looks at them, and when they are taken again:
    /// all zero is a value of every type of slot. What a slot must not repeat, as a sequence count that readers hold it to, is for
    /// `retire` to remember, and for the taker to restore.
    ///
    /// A reader that sees such a zero also sees what this thread did before, as if it had acquired it: it has the zero
    /// from a fault, which took the lock of the page table after this thread's call had released it.
    pub fn give_back(&self, retire: impl FnOnce(Range<Handle>) -> bool) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = free.idle.pop() else { return };
        let chunk = &mut free.chunks[at as usize];
        chunk.is_idle = false;
        let slots = at * CHUNK..(at + 1) * CHUNK;
        if chunk.free != u64::MAX || chunk.is_cold || !retire(slots.clone()) {
            return;
        }
        chunk.is_cold = true;
        free.cold.push(at);
        self.discard(slots);
        if let Some(account) = &self.account {
            account.budget.release(account.slot * u64::from(CHUNK));
        }
    }

    /// Has the slots of a range read as zero, and gives their memory back, but for parts of pages at its ends: for slots that the
    /// owner knows to be in nobody's use.
    pub fn discard(&self, slots: Range<Handle>) {
        #[cfg(not(any(loom, shuttle)))]
        {
            let first = (slots.start as usize * size_of::<T>()).next_multiple_of(4096);
            let end = slots.end as usize * size_of::<T>() / 4096 * 4096;
            self.region.discard(first, end.saturating_sub(first));
        }
        #[cfg(any(loom, shuttle))]
        let _ = slots;
    }

    /// Has memory for slots that are soon to be taken, if there are many already. A caller of [`alloc`](Self::alloc) under a lock that
    /// others wait for calls this when it has released that.
    #[inline]
    pub fn prepare(&self) {
        #[cfg(not(any(loom, shuttle)))]
        self.region.prepare();
    }

    /// Asks for huge pages for all slots: for arenas whose slots are used in place, and all over.
    pub fn prefer_huge_pages(&self) {
        #[cfg(not(any(loom, shuttle)))]
        self.region.prefer_huge_pages();
    }

    /// Slots in use now.
    pub fn in_use(&self) -> u32 {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.in_use
    }

    /// Slots there are, slot 0 not counted.
    pub fn capacity(&self) -> u32 {
        self.mask
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Racy64;

    #[test]
    fn a_full_arena_is_an_error_and_a_freed_slot_comes_back() {
        let arena = Arena::<Racy64>::new(4).unwrap();
        let handles: Vec<_> = (0..3).map(|_| arena.alloc().unwrap()).collect();
        assert_eq!(handles, [1, 2, 3]);
        assert_eq!(arena.alloc(), Err(AllocError::Full));
        arena.get(2).set(9);
        arena.free(2, 0);
        assert_eq!((arena.in_use(), arena.capacity()), (2, 3));
        assert_eq!(arena.get(2).get(), 9, "a freed slot keeps its words");
        assert_eq!(arena.alloc(), Ok(2));
    }

    #[test]
    fn a_handle_out_of_range_leads_to_a_valid_object() {
        let arena = Arena::<Racy64>::new(4).unwrap();
        arena.get(0).set(5);
        assert_eq!(arena.get(1 << 20).get(), 5);
    }

    #[cfg(not(miri))]
    #[test]
    fn memory_is_there_before_it_is_taken() {
        let arena = Arena::<[Racy64; 16]>::new(1 << 16).unwrap();
        let page = (2 << 20) / 128;
        let resident = |slot: u32| {
            let of = std::fs::File::open("/proc/self/pagemap").unwrap();
            let mut entry = [0; 8];
            let address = std::ptr::from_ref(arena.get(slot)) as u64;
            std::os::unix::fs::FileExt::read_exact_at(&of, &mut entry, address / 4096 * 8).unwrap();
            u64::from_le_bytes(entry) >> 63 == 1
        };
        for slot in 1..page {
            assert_eq!(arena.alloc(), Ok(slot));
            arena.prepare();
            assert_eq!(resident(2 * page - 1), slot > page * 3 / 4 - 2, "slot {slot}");
        }
        assert!(!resident(2 * page), "not the one after it");
        // Growth that nobody prepares goes on.
        (page..4 * page).for_each(|slot| assert_eq!(arena.alloc(), Ok(slot)));
        assert!(!resident(4 * page - 1));
    }

    #[cfg(not(miri))]
    #[test]
    fn sixteen_million_objects_cost_memory_only_where_touched() {
        let arena = Arena::<[Racy64; 16]>::new(1 << 24).unwrap();
        arena.get(1 << 23)[0].set(1);
        assert_eq!(arena.get(1 << 23)[0].get(), 1);
        assert_eq!(arena.get(12345)[3].get(), 0);
    }

    #[test]
    fn idle_chunks_are_given_back_and_taken_again() {
        let chunk = u64::from(CHUNK) * 64;
        let budget = Arc::new(Budget::new(3 * chunk));
        let arena = Arena::<[Racy64; 8]>::counted(1 << 12, Some(Arc::clone(&budget)), 64).unwrap();
        let most = 3 * CHUNK - 1;
        let fill = || (0..most).map(|_| arena.alloc().unwrap()).collect::<Vec<_>>();
        let handles = fill();
        assert_eq!((arena.alloc(), budget.used()), (Err(AllocError::NoMemory), 3 * chunk));
        handles.iter().for_each(|&at| arena.get(at)[0].set(u64::from(at)));
        let idle: Vec<bool> = handles.iter().map(|&at| arena.free(at, 1)).collect();
        assert_eq!(idle.iter().position(|&idle| idle), Some(most as usize - 1), "chunk 0 lacks slot 0");
        arena.give_back(|_| false);
        assert_eq!((budget.used(), arena.get(CHUNK + 1)[0].get()), (3 * chunk, u64::from(CHUNK) + 1));
        arena.give_back(|slots| slots == (CHUNK..2 * CHUNK));
        assert_eq!(budget.used(), 2 * chunk);
        if cfg!(not(miri)) {
            assert_eq!(arena.get(CHUNK + 1)[0].get(), 0, "a stale handle leads to zeros");
        }
        arena.give_back(|_| panic!("nothing is idle any more that was not refused"));
        let mut again = fill();
        again.sort_unstable();
        assert_eq!((again, budget.used()), (handles, 3 * chunk), "each once");
    }

    #[test]
    fn too_large_a_reservation_is_an_error() {
        assert!(matches!(Arena::<Racy64>::new(u32::MAX), Err(AllocError::NoMemory)));
    }
}
