//! Byte strings in type-stable memory: long names, symlink bodies, ACLs, extended attributes.
//!
//! A string is written once, before its owner publishes its handle under the owner's sequence count. A reader copies the
//! words out and validates the owner's count; a string freed and used again meanwhile reads as garbage of a bounded
//! length, which the count then rejects.

use crate::lock::{Mutex, PoisonError};
use crate::{AllocError, Arena, Budget, Handle, Racy64};
use std::sync::Arc;

/// The longest string: an extended attribute's value with its name, and room to spare.
pub const MAX_LEN: usize = 1 << 17;

/// Words of a slab, which has blocks of one size; larger blocks are slabs in a row.
const SLAB: u32 = if cfg!(any(loom, shuttle)) { 4 } else { 1 << 13 };

/// Words that a store has room for at least: a slab for strings of each size, and some more.
const LEAST: u32 = if cfg!(any(loom, shuttle)) { 8 } else { 128 * SLAB };

/// Slabs in a row for the longest string.
const MAX_RUN: usize = if cfg!(any(loom, shuttle)) { 1 << 13 } else { 3 };

/// Strings of any length up to [`MAX_LEN`], addressed by handle.
#[derive(Debug)]
pub struct Blobs {
    /// Word `h` holds the length of the string `h`; its bytes follow.
    words: Arena<Racy64>,
    free: Mutex<Free>,
    budget: Option<Arc<Budget>>,
}

/// The slabs. The first is not used, so that no handle is zero.
#[derive(Debug)]
struct Free {
    slabs: Vec<Slab>,
    /// By class: slabs that have room, or had, until they were emptied or filled.
    partial: Vec<Vec<u32>>,
    /// By the number of slabs in a row: those that have no block.
    empty: Vec<Vec<u32>>,
    /// Words of blocks in use.
    in_use: u64,
}

/// A slab, or the first of some in a row.
#[derive(Debug, Default)]
struct Slab {
    /// The class of its blocks, while it has any.
    class: Option<usize>,
    /// Blocks in use.
    used: u32,
    /// Blocks that were handed out, ever since it has this class.
    begun: u32,
    /// Those that were given back.
    free: Vec<u32>,
    is_partial: bool,
}

/// Slabs that a block of so many words takes, or that hold blocks of it.
fn run_of(words: u32) -> usize {
    words.div_ceil(SLAB) as usize
}

/// Blocks of so many words in a slab.
fn blocks_of(words: u32) -> u32 {
    (SLAB / words).max(1)
}

/// The class of a block of `words` words, and the words a block of that class has: four classes to each power of two, so
/// that at most a quarter is wasted.
fn class(words: u32) -> (usize, u32) {
    if words <= 8 {
        return (words as usize, words);
    }
    let step = words.next_power_of_two().trailing_zeros() - 3;
    let quarters = words.div_ceil(1 << step);
    ((step * 8 + quarters) as usize, quarters << step)
}

impl Blobs {
    /// Reserves room for `words` eight-byte words, and for 8 MiB of them at least.
    ///
    /// # Errors
    ///
    /// [`AllocError::NoMemory`] if the system refuses the address space.
    pub fn new(words: u32) -> Result<Self, AllocError> {
        Blobs::counted(words, None)
    }

    /// The same, whose memory counts against `budget`: by the slab of 64 KiB, until it has no string.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn counted(words: u32, budget: Option<Arc<Budget>>) -> Result<Self, AllocError> {
        let free = Free {
            slabs: vec![Slab::default()],
            partial: (0..=class(MAX_LEN as u32 / 8 + 1).0).map(|_| Vec::new()).collect(),
            empty: (0..=MAX_RUN).map(|_| Vec::new()).collect(),
            in_use: 0,
        };
        Ok(Blobs { words: Arena::new(words.max(LEAST))?, free: Mutex::new(free), budget })
    }

    /// The slabs for blocks of `words` words, to begin with, which count from now on.
    fn begin_slab(&self, free: &mut Free, words: u32) -> Result<u32, AllocError> {
        let run = run_of(words);
        let next = free.slabs.len() as u32;
        if free.empty[run].is_empty()
            && u64::from(next + run as u32) * u64::from(SLAB) > u64::from(self.words.capacity()) + 1
        {
            return Err(AllocError::Full);
        }
        // Room for what `free` will put there.
        let all = free.slabs.len() + run;
        free.slabs.try_reserve(run).map_err(|_| AllocError::NoMemory)?;
        let list = &mut free.empty[run];
        list.try_reserve(all.saturating_sub(list.len())).map_err(|_| AllocError::NoMemory)?;
        let bytes = (run as u64) * u64::from(SLAB) * 8;
        if self.budget.as_ref().is_some_and(|budget| !budget.charge(bytes)) {
            return Err(AllocError::NoMemory);
        }
        Ok(free.empty[run].pop().unwrap_or_else(|| {
            free.slabs.resize_with(all, Slab::default);
            next
        }))
    }

    /// A block of `words` words, which is the size of `class`.
    fn take(&self, class: usize, words: u32) -> Result<Handle, AllocError> {
        let mut all = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = &mut *all;
        let blocks = blocks_of(words);
        let at = loop {
            let Some(&at) = free.partial[class].last() else {
                free.partial[class].try_reserve(1).map_err(|_| AllocError::NoMemory)?;
                let at = self.begin_slab(free, words)?;
                let slab = Slab { class: Some(class), is_partial: true, ..Slab::default() };
                free.slabs[at as usize] = slab;
                free.partial[class].push(at);
                break at;
            };
            let slab = &mut free.slabs[at as usize];
            if slab.used < blocks && (!slab.free.is_empty() || slab.begun < blocks) {
                break at;
            }
            slab.is_partial = false;
            free.partial[class].pop();
        };
        let slab = &mut free.slabs[at as usize];
        let block = slab.free.pop().unwrap_or_else(|| {
            slab.begun += 1;
            slab.begun - 1
        });
        slab.used += 1;
        free.in_use += u64::from(words);
        Ok(at * SLAB + block * words)
    }

    /// Stores `bytes` and gives their handle, which is not zero.
    ///
    /// # Errors
    ///
    /// [`AllocError::Full`] when the reservation is used up, or `bytes` is longer than [`MAX_LEN`]. [`AllocError::NoMemory`] when the
    /// budget is used up.
    pub fn alloc(&self, bytes: &[u8]) -> Result<Handle, AllocError> {
        if bytes.len() > MAX_LEN {
            return Err(AllocError::Full);
        }
        let (class, words) = class(1 + bytes.len().div_ceil(8) as u32);
        let handle = self.take(class, words)?;
        // [BLB-1] pairs with the fence [SEQ-2] in `SeqCount::retry`: a reader that sees a word of the new string, through
        // the handle of the one that lay here before, also sees that the former owner's count moved on.
        // Model: models::blob_reuse_is_noticed.
        fence!("BLB-1", Release);
        self.words.get(handle).set(bytes.len() as u64);
        for (i, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.words.get(handle + 1 + i as u32).set(u64::from_le_bytes(word));
        }
        Ok(handle)
    }

    /// Gives a string's memory back. Readers may still hold the handle; what they see there, zeros included once the slab has no
    /// string and goes back to the system, is rejected as [`Arena::give_back`] says.
    pub fn free(&self, handle: Handle) {
        let (class, words) = class(1 + self.len(handle).div_ceil(8) as u32);
        let mut all = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = &mut *all;
        let at = handle / SLAB;
        let (slab, partial) = (&mut free.slabs[at as usize], &mut free.partial[class]);
        debug_assert!(slab.class == Some(class), "block {handle} is not in a slab of its class");
        free.in_use -= u64::from(words);
        slab.used -= 1;
        // One slab of each class stays, for a string that comes and goes.
        let others = partial.len() > usize::from(slab.is_partial);
        if slab.used == 0 && (others || words > SLAB) {
            let run = run_of(words);
            partial.retain(|&other| other != at);
            *slab = Slab::default();
            free.empty[run].push(at);
            self.words.discard(at * SLAB..(at + run as u32) * SLAB);
            self.budget.iter().for_each(|budget| budget.release(run as u64 * u64::from(SLAB) * 8));
            return;
        }
        // A list that cannot grow loses the block until the slab has no other: nothing else would be safe.
        if slab.free.try_reserve(1).is_ok() {
            slab.free.push((handle % SLAB) / words);
        }
        if !slab.is_partial && partial.try_reserve(1).is_ok() {
            slab.is_partial = true;
            partial.push(at);
        }
    }

    /// The length in bytes; anything up to [`MAX_LEN`] if the string was freed.
    #[inline]
    pub fn len(&self, handle: Handle) -> usize {
        (self.words.get(handle).get() as usize).min(MAX_LEN)
    }

    /// Word `index` of the string, little endian, zero-padded at the end.
    #[inline]
    pub fn word(&self, handle: Handle, index: u32) -> u64 {
        self.words.get(handle.wrapping_add(1 + index)).get()
    }

    /// Appends the string to `out`.
    ///
    /// # Errors
    ///
    /// [`AllocError::NoMemory`] if `out` cannot grow.
    pub fn read(&self, handle: Handle, out: &mut Vec<u8>) -> Result<(), AllocError> {
        let len = self.len(handle);
        out.try_reserve(len).map_err(|_| AllocError::NoMemory)?;
        let end = out.len() + len;
        for index in 0..len.div_ceil(8) as u32 {
            let word = self.word(handle, index).to_le_bytes();
            out.extend_from_slice(&word[..word.len().min(end - out.len())]);
        }
        Ok(())
    }

    /// Bytes in use, headers and rounding included.
    pub fn bytes_in_use(&self) -> u64 {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).in_use * 8
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn strings_of_every_length_come_back() {
        let blobs = Blobs::new(1 << 20).unwrap();
        let longest = if cfg!(miri) { 300 } else { 70_000 };
        let text: Vec<u8> = (0..longest).map(|i| (i % 251) as u8).collect();
        let lens = (0..100).chain([255, 256, 4095, 65_535, 65_536, 70_000]);
        let lens: Vec<usize> = lens.filter(|&len| len <= longest).collect();
        let handles: Vec<_> = lens.iter().map(|&len| blobs.alloc(&text[..len]).unwrap()).collect();
        for (&len, &handle) in lens.iter().zip(&handles) {
            let mut out = b"kept".to_vec();
            blobs.read(handle, &mut out).unwrap();
            assert_eq!(out[..4], *b"kept");
            assert_eq!(out[4..], text[..len]);
        }
        let used = blobs.bytes_in_use();
        handles.iter().for_each(|&h| blobs.free(h));
        assert_eq!(blobs.bytes_in_use(), 0);
        lens.iter().for_each(|&len| assert!(handles.contains(&blobs.alloc(&text[..len]).unwrap())));
        assert_eq!(blobs.bytes_in_use(), used, "freed blocks are used again");
    }

    #[test]
    fn a_class_wastes_at_most_a_quarter() {
        for words in 1..=(MAX_LEN as u32 / 8 + 1) {
            let (_, size) = class(words);
            assert!(size >= words && size - words <= words / 4, "{words} -> {size}");
            assert_eq!(class(size), class(words), "{words}");
        }
    }

    #[test]
    fn a_full_store_is_an_error() {
        let blobs = Blobs::new(0).unwrap();
        // All slabs but the first, in rows of three.
        let strings = (LEAST / SLAB - 1) / 3;
        assert!((0..strings).all(|_| blobs.alloc(&[1; MAX_LEN]).is_ok()));
        assert_eq!(blobs.alloc(&[1; MAX_LEN]), Err(AllocError::Full));
        assert!(blobs.alloc(&[1; 32]).is_ok(), "one slab is left");
        assert_eq!(blobs.alloc(&vec![0; MAX_LEN + 1]), Err(AllocError::Full));
    }

    #[test]
    fn slabs_without_strings_go_back_to_the_budget() {
        let slab = u64::from(SLAB) * 8;
        let budget = Arc::new(Budget::new(20 * slab));
        let blobs = Blobs::counted(1 << 20, Some(Arc::clone(&budget))).unwrap();
        for round in 0..3 {
            let mut handles = Vec::new();
            let refused = loop {
                match blobs.alloc(&[7; 250]) {
                    Ok(handle) => handles.push(handle),
                    Err(refused) => break refused,
                }
            };
            assert_eq!((refused, budget.used()), (AllocError::NoMemory, 20 * slab));
            let blocks = SLAB / class(33).1;
            assert_eq!(handles.len() as u32, 20 * blocks, "round {round}");
            assert_eq!(handles.iter().collect::<std::collections::BTreeSet<_>>().len(), handles.len());
            // In another order than they came.
            handles.iter().step_by(2).chain(handles.iter().skip(1).step_by(2)).for_each(|&at| blobs.free(at));
            assert_eq!((blobs.bytes_in_use(), budget.used()), (0, slab), "one stays");
        }
        let long: Vec<_> = (0..3).map(|_| blobs.alloc(&[1; 100_000]).unwrap()).collect();
        assert_eq!(budget.used(), 7 * slab);
        long.iter().for_each(|&at| blobs.free(at));
        assert_eq!(budget.used(), slab);
    }
}
